#include "process_group/transfer_queue.hpp"

#include <algorithm>

namespace ddp::process_group {
namespace {

using namespace std::chrono_literals;

constexpr auto delay = 50us;
constexpr auto yield_time = 1ms;
// Fruitless rounds before the clock is read, which takes longer than a round.
constexpr std::uint64_t rounds_without_clock = 256;

// In a catch block: what has been caught, with this rank's line.
std::exception_ptr error_at(const CallSite& site) noexcept {
    try {
        backends::rethrow_at(site);
    } catch (...) {
        return std::current_exception();
    }
}

}  // namespace

backends::Transfer transfer_of(const P2POp& op, const CallSite& site) {
    const auto direction =
        op.kind == P2POp::send ? backends::Direction::send : backends::Direction::receive;
    return {direction, op.peer.rank, op.tensor.data, op.tensor.bytes(), site};
}

void TransferOperation::wait() {
    wait_quietly();
    if (batch_->error) std::rethrow_exception(batch_->error);
}

void TransferOperation::wait_quietly() noexcept {
    if (!is_completed()) queue_->complete(batch_.get());
}

TransferQueue::TransferQueue(std::shared_ptr<backends::Backend> backend,
                             contract::ControlPage& page, std::uint32_t group,
                             std::span<const int> job_ranks, contract::Timeline timeline)
    : backend_(std::move(backend)),
      recorder_(page, group, timeline),
      job_ranks_(job_ranks.begin(), job_ranks.end()) {}

TransferQueue::~TransferQueue() { stop(); }

std::unique_ptr<TransferOperation> TransferQueue::start(std::span<const P2POp> transfers,
                                                        std::chrono::milliseconds timeout,
                                                        const CallSite& site) {
    const std::lock_guard lock(lock_);
    if (failure_) std::rethrow_exception(failure_);
    if (!thread_) thread_ = std::make_unique<DelayedThread>([this] { return progress_all(); });
    auto batch = std::allocate_shared<TransferBatch>(base::RecyclingAllocator<TransferBatch>{},
                                                     base::Deadline::roughly_after(timeout), site);
    batch->pending.reserve(transfers.size());
    try {
        for (const P2POp& op : transfers) {
            batch->pending.push_back(backend_->start_transfer(transfer_of(op, site)));
        }
    } catch (...) {
        // Those that have started leave a hole in their channels' order.
        failure_ = error_at(site);
        backend_->fail();
        std::rethrow_exception(failure_);
    }
    batches_.push_back(batch);
    note_change();
    thread_->arm(delay);
    return std::make_unique<TransferOperation>(shared_from_this(), std::move(batch));
}

void TransferQueue::complete(const TransferBatch* wanted) noexcept {
    std::unique_lock lock(lock_);
    const auto done = [&] { return wanted ? wanted->is_completed() : batches_.empty(); };
    const bool is_first = waited_.load(std::memory_order_relaxed) == nullptr;
    if (is_first) waited_.store(wanted, std::memory_order_relaxed);
    while (!done()) {
        if (is_progressing_) {
            sleep(lock);
        } else {
            progress(lock, wanted);
        }
    }
    if (is_first) waited_.store(nullptr, std::memory_order_relaxed);
    if (!batches_.empty()) thread_->arm(delay);
}

// The thread that makes progress does so for all batches, and arms the queue's own thread for those
// that it leaves.
bool TransferQueue::progress_all() noexcept {
    std::unique_lock lock(lock_);
    if (is_progressing_ || batches_.empty()) return false;
    progress(lock, nullptr);
    return true;
}

// Moves all transfers on until the wanted one is done, or, without one, all of them.
void TransferQueue::progress(std::unique_lock<QueueLock>& lock,
                             const TransferBatch* wanted) noexcept {
    is_progressing_ = true;
    std::uint64_t idle_rounds = 0;
    for (std::uint64_t rounds = 1; wanted ? !wanted->is_completed() : !batches_.empty(); ++rounds) {
        const std::uint64_t changes = changes_.load(std::memory_order_relaxed);
        round_.clear();
        for (const auto& batch : batches_) round_.push_back(batch.get());
        lock.unlock();
        while (changes_.load(std::memory_order_acquire) == changes) {
            const bool look_at_clock =
                idle_rounds >= rounds_without_clock || rounds % rounds_without_clock == 0;
            idle_rounds = advance_all(look_at_clock) ? 0 : idle_rounds + 1;
            if (idle_rounds > 0) idle(idle_rounds - 1);
            ++rounds;
        }
        lock.lock();
    }
    round_.clear();
    is_progressing_ = false;
    wake_sleepers();
}

// Whether anything moved or ended. Transfers that are done are let go. A batch that has ended may
// be gone.
bool TransferQueue::advance_all(bool look_at_clock) noexcept {
    bool any = false;
    for (TransferBatch* const batch : round_) {
        std::exception_ptr error;
        try {
            bool moved = false;
            for (auto& pending : batch->pending) moved = pending->advance() || moved;
            if (moved) {
                std::erase_if(batch->pending, [](const auto& one) { return one->is_done(); });
            }
            any = any || moved;
            if (moved) recorder_.goes_on();
            if (look_at_clock && !batch->pending.empty() && batch->deadline.passed()) {
                batch->pending.front()->give_up(batch->deadline);
            }
        } catch (...) {
            error = error_at(batch->site);
        }
        if (error || batch->pending.empty()) {
            finish(*batch, error);
            any = true;
        }
    }
    return any;
}

// Between two rounds of which the first moved nothing.
void TransferQueue::idle(std::uint64_t round) noexcept {
    TransferBatch& first = *round_.front();
    try {
        if (round >= rounds_without_clock) {
            const auto now = base::Deadline::Clock::now();
            if (round == rounds_without_clock) yield_end_ = now + yield_time;
            record_wait();
            if (now >= yield_end_) return first.pending.front()->wait_a_little(first.deadline);
        }
        first.pending.front()->rest(round);
    } catch (...) {
        finish(first, error_at(first.site));
    }
}

// Of what a thread waits for: what has been posted in advance holds nobody up. A batch of the round
// is there as long as its round lasts.
void TransferQueue::record_wait() noexcept {
    const auto batch = std::ranges::find(round_, waited_.load(std::memory_order_relaxed));
    if (batch == round_.end() || (*batch)->pending.empty()) return;
    const backends::Transfer& transfer = (*batch)->pending.front()->transfer();
    const auto peer = static_cast<std::size_t>(transfer.peer);
    recorder_.waits({.sends = transfer.direction == backends::Direction::send,
                     .peer = peer < job_ranks_.size() ? job_ranks_[peer] : transfer.peer,
                     .bytes = transfer.bytes},
                    (*batch)->site);
}

void TransferQueue::finish(TransferBatch& batch, const std::exception_ptr& error) noexcept {
    const std::lock_guard lock(lock_);
    if (error) {
        failure_ = error;
        backend_->fail();
    }
    const auto place = std::ranges::find(batches_, &batch, &std::shared_ptr<TransferBatch>::get);
    const std::shared_ptr<TransferBatch> kept = std::move(*place);  // maybe as its last owner
    batches_.erase(place);
    recorder_.goes_on();
    note_change();
    batch.pending.clear();
    batch.error = error;
    batch.completed.store(true, std::memory_order_release);
    wake_sleepers();
}

// Under the lock: no other thread counts meanwhile.
void TransferQueue::note_change() noexcept {
    changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// A condition variable, not an eventcount: whatever ends a sleep is changed under the lock, so
// nothing has to be said about orders, and the fast path takes the lock in any case.
void TransferQueue::sleep(std::unique_lock<QueueLock>& lock) {
    ++sleeping_;
    changed_.wait(lock);
    --sleeping_;
}

void TransferQueue::wake_sleepers() {
    if (sleeping_ > 0) changed_.notify_all();
}

void TransferQueue::stop() noexcept {
    if (!thread_) return;
    complete(nullptr);
    thread_->stop();
}

}  // namespace ddp::process_group
