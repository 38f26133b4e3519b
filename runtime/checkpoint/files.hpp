// Files: the system calls that a checkpoint is made of, behind an interface, so that tests can lose
// power, fill the disk or fail any one of them. Nothing else in this room touches the disk.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::checkpoint {

struct FileStatus {
    bool regular = false;
    bool own = false;  // belongs to the user that runs this process
    std::uint64_t size = 0;
};

// No errno of the kernel's: the call was not made, as this host's lease has ended
// (contract/control_page.hpp).
inline constexpr int lease_has_ended = 4096;

// One system call each. The result is the call's own when it is not negative, and -errno otherwise.
class Files {
public:
    using Path = const std::string&;

    virtual ~Files() = default;

    virtual int create(Path path) = 0;  // for writing; an existing file or a link is EEXIST
    virtual int open(Path path) = 0;    // for reading; a link is ELOOP; does not wait for a FIFO
    virtual int status(int fd, FileStatus& status) = 0;
    virtual ssize_t read(int fd, std::span<std::byte> bytes) = 0;
    virtual ssize_t write(int fd, std::span<const std::byte> bytes) = 0;
    // The disk may begin with these bytes of the file. Only for speed: sync() says how it went.
    virtual int start_writeback(int fd, std::uint64_t offset, std::uint64_t bytes) = 0;
    virtual int sync(int fd) = 0;  // fsync(2)
    virtual int close(int fd) = 0;

    virtual int rename(Path from, Path to) = 0;
    virtual int remove(Path path) = 0;
    virtual int make_directory(Path path) = 0;
    virtual int sync_directory(Path path) = 0;
    virtual int list(Path path, std::vector<std::string>& names) = 0;
    // A descriptor that holds the directory until it is closed or the process ends; EWOULDBLOCK
    // when another holds it.
    virtual int lock_directory(Path path) = 0;
};

// The real ones. `lease_holds` is asked right before each call that gives, changes or removes a
// name: such a call is not made, and returns -lease_has_ended, when the answer is no. Any thread.
std::unique_ptr<Files> make_system_files(std::function<bool()> lease_holds);
// Those of this process's own lease.
Files& system_files();

}  // namespace ddp::checkpoint
