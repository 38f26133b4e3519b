#include "bench/shared_pages.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <string>

namespace ddp::bench {

// Rank 0's memory file, opened by its descriptor's path, so that nothing with a name is left
// behind.
SharedPages::SharedPages(ProcessGroup& group, std::size_t bytes) : bytes_(bytes) {
    std::array<std::int64_t, 2> owner{};  // pid, descriptor
    int fd = -1;
    if (group.rank() == 0) {
        fd = ::memfd_create("ddp-bench", MFD_CLOEXEC);
        if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) fd = -1;
        owner = {::getpid(), fd};
    }
    group.broadcast(owner).wait();
    if (group.rank() != 0) {
        const std::string path =
            "/proc/" + std::to_string(owner[0]) + "/fd/" + std::to_string(owner[1]);
        fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    }
    void* const memory =
        fd < 0 ? MAP_FAILED
               : ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    const int error = errno;
    const bool all_have_it = group.all_reduce(int{memory != MAP_FAILED}, ReduceOp::min) != 0;
    if (fd >= 0) ::close(fd);
    if (memory != MAP_FAILED) memory_ = static_cast<std::byte*>(memory);
    if (all_have_it) return;
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
    throw SystemError("--floor: cannot share memory between ranks", error);
}

SharedPages::~SharedPages() { ::munmap(memory_, bytes_); }

}  // namespace ddp::bench
