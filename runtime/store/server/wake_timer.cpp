// A timerfd. Times are handed over as what is left, so that the clocks need not be the same.
#include "store/server/wake_timer.hpp"

#include <ddp/error.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ddp::store {

WakeTimer::WakeTimer() : fd_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {
    if (!fd_) throw SystemError{"store: timerfd_create", errno};
}

void WakeTimer::set(Clock::time_point time) {
    using std::chrono::nanoseconds;
    if (time_ && *time_ <= time) return;
    const auto left = std::max<nanoseconds>(time - Clock::now(), nanoseconds{1});
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
    itimerspec spec{};
    spec.it_value.tv_sec = seconds.count();
    spec.it_value.tv_nsec = nanoseconds{left - seconds}.count();
    if (::timerfd_settime(fd_.get(), 0, &spec, nullptr) == 0) time_ = time;
}

void WakeTimer::acknowledge() {
    std::uint64_t times = 0;
    [[maybe_unused]] const auto count = ::read(fd_.get(), &times, sizeof times);
    time_.reset();
}

}  // namespace ddp::store
