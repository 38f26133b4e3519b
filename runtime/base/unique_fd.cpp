#include "base/unique_fd.hpp"

#include <unistd.h>

#include <cerrno>

namespace ddp::base {

void UniqueFd::reset(int fd) noexcept {
    if (fd_ >= 0) {
        const int saved_errno = errno;  // a destructor between a failed call and its report
        ::close(fd_);
        errno = saved_errno;
    }
    fd_ = fd;
}

}  // namespace ddp::base
