#include "process_group/delayed_thread.hpp"

#include "base/process/background_thread.hpp"

#include <ddp/error.hpp>

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ddp::process_group {
namespace {

constexpr int most_backoff = 16;

}  // namespace

DelayedThread::DelayedThread(std::function<bool()> work)
    : work_(std::move(work)), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC)) {
    if (!timer_) throw SystemError("process group: a timer for its thread", errno);
    thread_ = base::start_background_thread([this] { loop(); });
}

DelayedThread::~DelayedThread() { stop(); }

void DelayedThread::set_timer(std::chrono::nanoseconds delay) noexcept {
    const auto at_least = std::max(delay, std::chrono::nanoseconds{1});  // 0 would disarm it
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_least);
    itimerspec when{};
    when.it_value.tv_sec = seconds.count();
    when.it_value.tv_nsec = static_cast<long>((at_least - seconds).count());
    ::timerfd_settime(timer_.get(), 0, &when, nullptr);
    // Who arms may have put off the end that stop() had set.
    const itimerspec now{{}, {0, 1}};
    if (stopping_.load(std::memory_order_acquire)) {
        ::timerfd_settime(timer_.get(), 0, &now, nullptr);
    }
}

void DelayedThread::loop() noexcept {
    for (;;) {
        std::uint64_t expirations = 0;
        if (::read(timer_.get(), &expirations, sizeof expirations) < 0) continue;
        if (stopping_.load(std::memory_order_acquire)) return;
        // Before the work: what is asked for while it runs makes it run again.
        const Armed armed = armed_.exchange(Armed::no, std::memory_order_acq_rel);
        if (work_()) {
            backoff_ = soon_backoff_ = 1;
        } else {
            std::atomic<int>& backoff = armed == Armed::soon ? soon_backoff_ : backoff_;
            backoff = std::min(2 * backoff, most_backoff);
        }
    }
}

void DelayedThread::stop() noexcept {
    stopping_.store(true, std::memory_order_release);
    set_timer(std::chrono::nanoseconds{1});
    if (thread_.joinable()) thread_.join();
}

}  // namespace ddp::process_group
