// tmpfs drops what it has allocated when a signal comes, and would begin anew: in smaller and
// smaller slices no timer of the program's keeps it from its end.
#include "base/allocate.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace ddp::base {

int allocate(int fd, std::size_t bytes) {
    constexpr std::size_t least_slice = std::size_t{64} << 10;
    std::size_t slice = bytes;
    for (std::size_t done = 0; done < bytes;) {
        const std::size_t now = std::min(slice, bytes - done);
        const int code = ::posix_fallocate(fd, static_cast<off_t>(done), static_cast<off_t>(now));
        if (code == 0) {
            done += now;
        } else if (code == EINTR) {
            slice = std::max(slice / 2, least_slice);
        } else {
            return code;
        }
    }
    return 0;
}

}  // namespace ddp::base
