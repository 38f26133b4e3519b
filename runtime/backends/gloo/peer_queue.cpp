#include "backends/gloo/peer_queue.hpp"

#include "backends/gloo/slots.hpp"
#include "base/process/background_thread.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace ddp::gloo {
namespace {

using namespace std::chrono_literals;

using backends::Transfer;

constexpr auto short_while = 20ms;

AbortReason given_up(const Mesh& mesh, const Transfer& transfer, const base::Deadline* deadline) {
    const std::string within = deadline != nullptr
                                   ? " did not end within " + base::to_string(deadline->timeout())
                                   : std::string(" was given up");
    return {AbortKind::timed_out, transfer.peer,
            "gloo: " + backends::describe(transfer) + within + " on " + mesh.name_of(mesh.rank()) +
                "; waiting for " + mesh.name_of(transfer.peer) +
                "; is it stopped, or in other code?"};
}

}  // namespace

void QueuedTransfer::finish(std::exception_ptr error) noexcept {
    const std::lock_guard lock(events_->mutex);
    error_ = std::move(error);
    finished_.store(true, std::memory_order_release);
    ++events_->finished;
    events_->changed.notify_all();
}

void QueuedTransfer::throw_error() const {
    if (error_) std::rethrow_exception(error_);
}

void QueuedTransfer::wait() {
    std::unique_lock lock(events_->mutex);
    events_->changed.wait(lock, [this] { return is_finished(); });
}

std::uint64_t QueuedTransfer::wait_for_completion(std::uint64_t seen,
                                                  base::Deadline::Clock::time_point end) {
    std::unique_lock lock(events_->mutex);
    events_->changed.wait_until(lock, end,
                                [&] { return is_finished() || events_->finished != seen; });
    return events_->finished;
}

PeerQueue::PeerQueue(Mesh& mesh)
    : mesh_(mesh), thread_(base::start_background_thread([this] { run(); })) {}

PeerQueue::~PeerQueue() {
    std::shared_ptr<QueuedTransfer> under_way;
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        if (!queue_.empty()) under_way = queue_.front();
        changed_.notify_all();
    }
    if (under_way) mesh_.end(given_up(mesh_, under_way->transfer(), nullptr));
    thread_.join();
}

void PeerQueue::start(std::shared_ptr<QueuedTransfer> transfer) {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(transfer));
    changed_.notify_all();
}

// What is queued when the peer queue stops ends with the group's error, at once.
void PeerQueue::run() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const std::shared_ptr<QueuedTransfer> transfer = queue_.front();
        lock.unlock();
        std::exception_ptr error;
        try {
            move(transfer->transfer());
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        queue_.pop_front();
        transfer->finish(error);
    }
}

void PeerQueue::move(const Transfer& transfer) {
    const WaitContext context{backends::describe(transfer), nullptr};
    const bool sends = transfer.direction == Direction::send;
    std::uint64_t own = transfer.bytes;
    std::uint64_t theirs = 0;
    const std::array<Message, 2> sizes{
        Message{Direction::send, transfer.peer, sends ? sender_slot : receiver_slot, &own,
                sizeof own},
        Message{Direction::receive, transfer.peer, sends ? receiver_slot : sender_slot, &theirs,
                sizeof theirs}};
    mesh_.exchange(sizes, context);
    if (own != theirs) {
        const int me = mesh_.rank();
        mesh_.fail({AbortKind::misused, transfer.peer,
                    "gloo: " + mesh_.name_of(sends ? me : transfer.peer) + " sends " +
                        std::to_string(sends ? own : theirs) + " bytes to " +
                        mesh_.name_of(sends ? transfer.peer : me) + ", which receives " +
                        std::to_string(sends ? theirs : own) +
                        "; the n-th send must have the bytes of the n-th recv"});
    }
    const Message data{transfer.direction, transfer.peer, transfer_slot, transfer.data,
                       transfer.bytes};
    mesh_.exchange({&data, 1}, context);
}

PendingQueuedTransfer::~PendingQueuedTransfer() {
    if (transfer_->is_finished()) return;
    mesh_->end(given_up(*mesh_, transfer_->transfer(), nullptr));
    transfer_->wait();
}

bool PendingQueuedTransfer::advance() {
    if (done_ || !transfer_->is_finished()) return false;
    transfer_->throw_error();
    done_ = true;
    return true;
}

void PendingQueuedTransfer::rest(std::uint64_t) { ::sched_yield(); }

void PendingQueuedTransfer::wait_a_little(const base::Deadline& deadline) {
    const auto end = std::min(deadline.end(), base::Deadline::Clock::now() + short_while);
    seen_ = transfer_->wait_for_completion(seen_, end);
}

void PendingQueuedTransfer::give_up(const base::Deadline& deadline) {
    mesh_->fail(given_up(*mesh_, transfer_->transfer(), &deadline));
}

}  // namespace ddp::gloo
