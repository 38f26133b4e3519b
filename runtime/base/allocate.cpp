#include "base/allocate.hpp"

#include <fcntl.h>

#include <cerrno>

namespace ddp::base {

int allocate(int fd, std::size_t bytes) {
    for (;;) {
        const int code = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
        if (code != EINTR) return code;  // a program's timer signal is no reason to fail
    }
}

}  // namespace ddp::base
