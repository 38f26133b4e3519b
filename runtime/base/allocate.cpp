// tmpfs drops what it has allocated when a signal comes, and begins anew: in slices a timer of the
// program's cannot keep it from its end.
#include "base/allocate.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace ddp::base {

int allocate(int fd, std::size_t bytes) {
    constexpr std::size_t slice_bytes = std::size_t{1} << 20;
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t slice = std::min(slice_bytes, bytes - done);
        const int code = ::posix_fallocate(fd, static_cast<off_t>(done), static_cast<off_t>(slice));
        if (code == 0) {
            done += slice;
        } else if (code != EINTR) {
            return code;
        }
    }
    return 0;
}

}  // namespace ddp::base
