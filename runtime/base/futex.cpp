#include "base/futex.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace ddp::base {
namespace {

int private_flag(FutexScope scope) { return scope == FutexScope::process ? FUTEX_PRIVATE_FLAG : 0; }

}  // namespace

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, FutexScope scope,
                std::optional<std::chrono::nanoseconds> timeout) noexcept {
    const timespec time{0, timeout ? static_cast<long>(timeout->count()) : 0};
    ::syscall(SYS_futex, &word, FUTEX_WAIT | private_flag(scope), expected,
              timeout ? &time : nullptr, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word, FutexScope scope) noexcept {
    ::syscall(SYS_futex, &word, FUTEX_WAKE | private_flag(scope), INT_MAX, nullptr, nullptr, 0);
}

}  // namespace ddp::base
