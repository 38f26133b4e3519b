#include "process_group/held_calls.hpp"

#include <cstddef>
#include <iterator>

namespace ddp::process_group {

void HeldCalls::add(Held&& held) {
    const std::lock_guard lock(mutex_);
    held_.push_back(std::move(held));
    count_.store(held_.size(), std::memory_order_release);
}

bool HeldCalls::remove(const void* owner) noexcept {
    const std::lock_guard lock(mutex_);
    const bool had = std::erase_if(held_, [&](const Held& one) { return one.owner == owner; }) > 0;
    count_.store(held_.size(), std::memory_order_release);
    return had;
}

void HeldCalls::start_held(const Which& which) {
    const std::lock_guard lock(mutex_);
    if (is_starting_) return;
    is_starting_ = true;
    const std::thread::id me = std::this_thread::get_id();
    for (std::size_t i = 0; i < held_.size();) {
        const Held& one = held_[i];
        if (one.thread != me || one.number >= which.before_number ||
            (which.without_gradients_only && !one.has_no_gradients)) {
            ++i;
            continue;
        }
        const std::function<void()> start = std::move(held_[i].start);
        held_.erase(std::next(held_.begin(), static_cast<std::ptrdiff_t>(i)));
        start();
    }
    count_.store(held_.size(), std::memory_order_release);
    is_starting_ = false;
}

}  // namespace ddp::process_group
