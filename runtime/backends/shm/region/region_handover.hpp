// The second way to open a shared region, for processes that may not open each other's
// /proc/<pid>/fd (not dumpable, or another user's view of /proc): the creator sends the descriptor
// over an abstract Unix socket, which has no name in any file system. Invariant: each side has
// checked by SO_PEERCRED which process of which user the other is before a descriptor is passed.
#pragma once

#include "backends/shm/region/host_kernel.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ddp::shm {

// Hands out `region_fd` (borrowed) to processes of the same user, on a thread, until it is
// destroyed. `receivers`: to these processes alone, where they are known.
class RegionHandover {
public:
    // Throws SystemError.
    explicit RegionHandover(int region_fd, std::vector<pid_t> receivers = {},
                            const HostKernel& kernel = HostKernel::real());
    ~RegionHandover();
    RegionHandover(const RegionHandover&) = delete;
    RegionHandover& operator=(const RegionHandover&) = delete;

    const std::string& name() const { return name_; }  // of the socket; no blanks in it

private:
    void serve() const;
    bool may_have_it(int socket) const;

    int region_fd_;
    std::vector<pid_t> receivers_;
    const HostKernel& kernel_;
    std::string name_;
    base::UniqueFd listener_;
    base::UniqueFd stop_;  // an eventfd
    std::thread thread_;
};

// Whether a text can be the name of such a socket.
bool is_handover_name(std::string_view text);

// The descriptor that process `creator` hands out under `name`. Throws SystemError, UsageError when
// another process, or another user's, answers.
base::UniqueFd receive_region(const std::string& name, pid_t creator,
                              const base::Deadline& deadline,
                              const HostKernel& kernel = HostKernel::real());

}  // namespace ddp::shm
