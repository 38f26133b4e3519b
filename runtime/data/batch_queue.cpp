// A ring of slots without a lock: a slot belongs to who claimed its batch until `full` is set, then
// to the loop until `taken_` has passed it. Threads that have nothing to do sleep at eventcounts: a
// thread that changes something stores that first, then calls wake().
#include "data/batch_queue.hpp"

#include "base/pause_cpu.hpp"

#include <sched.h>

#include <chrono>
#include <thread>
#include <utility>

namespace ddp::data {

BatchQueue::BatchQueue(std::size_t num_batches, std::size_t window)
    : num_batches_(num_batches), slots_(window) {}

// To sleep and be woken takes longer than to prepare a small batch, so it looks for a while first,
// but now and then sleeps at once when it has the core of who will wake it: the scheduler leaves
// two threads that yield to each other on one core, and wakes a sleeper on one that is idle.
template <class Ready>
void BatchQueue::wait_for(WaitList& sleepers, const Ready& ready) {
    constexpr int looks = 64;
    for (int look = 0; look < looks; ++look) {
        if (ready()) return;
        base::pause_cpu();
    }
    const bool may_move = sleepers.long_waits++ % 64 == 0;
    if (may_move && sched_getcpu() == sleepers.waker_core) return sleepers.changed.await(ready);
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds{50};
    do {
        if (ready()) return;
        std::this_thread::yield();
    } while (std::chrono::steady_clock::now() < end);
    sleepers.changed.await(ready);
}

void BatchQueue::wake(WaitList& sleepers) {
    if (const int core = sched_getcpu(); core != sleepers.waker_core) sleepers.waker_core = core;
    sleepers.changed.notify_all();
}

std::optional<std::size_t> BatchQueue::claim() {
    std::size_t next = 0;
    do {
        wait_for(waiting_to_claim_, [&] {
            next = claimed_;
            return claims_closed_ || next == num_batches_ || next < taken_ + slots_.size();
        });
        if (claims_closed_ || next == num_batches_) return std::nullopt;
    } while (!claimed_.compare_exchange_weak(next, next + 1));
    slots_[next % slots_.size()].item = {};
    return next;
}

void BatchQueue::deliver(std::size_t number, Item item) {
    const bool failed = item.error != nullptr;
    if (failed) claims_closed_ = true;
    Slot& slot = slots_[number % slots_.size()];
    slot.item = std::move(item);
    slot.full = true;
    wake(waiting_to_take_);
    if (failed) wake(waiting_to_claim_);
}

std::shared_ptr<void> BatchQueue::take(std::shared_ptr<void> used) {
    const std::size_t next = taken_;
    Slot& slot = slots_[next % slots_.size()];
    wait_for(waiting_to_take_, [&] { return slot.full || takes_closed_ || next == num_batches_; });
    if (takes_closed_ || next == num_batches_) return nullptr;
    Item item = std::exchange(slot.item, {std::move(used), nullptr});
    slot.full = false;
    if (item.error) takes_closed_ = true;
    taken_ = next + 1;
    wake(waiting_to_claim_);
    if (item.error) std::rethrow_exception(item.error);
    return std::move(item.batch);
}

void BatchQueue::close() {
    claims_closed_ = true;
    takes_closed_ = true;
    wake(waiting_to_claim_);
    wake(waiting_to_take_);
}

}  // namespace ddp::data
