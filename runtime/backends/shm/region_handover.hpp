// The second way to a shared region, for processes that may not open each other's /proc/<pid>/fd
// (not dumpable, or another user's view of /proc): its maker hands the descriptor out over an
// abstract Unix socket, which has no name in any file system. Each side checks by SO_PEERCRED who
// the other is.
#pragma once

#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <thread>

namespace ddp::shm {

// Hands out `region_fd` (borrowed) to processes of the same user, on a thread, until it is
// destroyed.
class RegionHandover {
public:
    explicit RegionHandover(int region_fd);  // throws SystemError
    ~RegionHandover();
    RegionHandover(const RegionHandover&) = delete;
    RegionHandover& operator=(const RegionHandover&) = delete;

    const std::string& name() const { return name_; }  // of the socket; no blanks in it

private:
    void serve() const;

    int region_fd_;
    std::string name_;
    base::UniqueFd listener_;
    base::UniqueFd stop_;  // an eventfd
    std::thread thread_;
};

// The descriptor that process `maker` hands out under `name`. Throws SystemError, UsageError when
// somebody else answers.
base::UniqueFd receive_region(const std::string& name, pid_t maker, const base::Deadline& deadline);

}  // namespace ddp::shm
