#include "base/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp::base {
namespace {

int private_flag(FutexScope scope) { return scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0; }

timespec timespec_of(std::chrono::nanoseconds duration) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
    return {static_cast<std::time_t>(seconds.count()),
            static_cast<long>((duration - seconds).count())};
}

}  // namespace

void futex_wait_at(const void* word, std::uint32_t expected, FutexScope scope,
                   std::optional<std::chrono::nanoseconds> timeout) noexcept {
    const timespec time = timespec_of(timeout.value_or(std::chrono::nanoseconds{0}));
    ::syscall(SYS_futex, word, FUTEX_WAIT | private_flag(scope), expected,
              timeout ? &time : nullptr, nullptr, 0);
}

void futex_wake_all_at(const void* word, FutexScope scope) noexcept {
    ::syscall(SYS_futex, word, FUTEX_WAKE | private_flag(scope), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddp::base
