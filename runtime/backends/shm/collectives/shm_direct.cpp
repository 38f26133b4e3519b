// Collectives without slots, between their two phases: each rank reads and writes peers' memory
// where it lies, mapped or by its address.
#include "backends/shm/collectives/shm_running.hpp"

#include <atomic>
#include <cstring>

namespace ddp::shm {
namespace {

// Nobody reads there now: the plain copy is faster than the one into slots, which asks for lines.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, backends::Store store) {
    if (store == backends::Store::streaming) return backends::copy(to, from, bytes, store);
    std::memmove(to, from, bytes);
}

}  // namespace

const Announcement& ShmBackend::announced(const Running& running, std::size_t peer) const {
    return barrier_.announcement(static_cast<int>(peer), running.first_phase);
}

// Points to that place of each rank's input; all of them are mapped.
void ShmBackend::find_inputs(const Running& running, const SharedAllocations::Extent& part) {
    inputs_[rank_] = running.input() + part.first;
    for (std::size_t peer = 0; peer < ranks_; ++peer) {
        if (peer == rank_) continue;
        const Location input = announced(running, peer).details.input;
        inputs_[peer] = allocations_.address(static_cast<int>(peer), input, part);
    }
}

// To that place of a peer's output, which it has offered.
void ShmBackend::write_to(const Running& running, std::size_t peer, std::size_t at,
                          const std::byte* from, std::size_t bytes) {
    const int rank = static_cast<int>(peer);
    const Location output = announced(running, peer).details.output;
    if (output.allocation == 0) {
        peers_.write(rank, output.offset + at, from, bytes, running);
    } else {
        copy(allocations_.address(rank, output, {at, bytes}), from, bytes, running.delivery);
    }
}

// After the last look at others' memory, before arriving: who leaves earlier than all, and does
// something else with its memory, has aborted first.
void ShmBackend::require_all_stayed(const Running& running) const {
    std::atomic_thread_fence(std::memory_order_acquire);
    if (waiter_.is_aborted()) waiter_.throw_abort(running());
}

void ShmBackend::move(const Running& running, const Move& move, std::size_t given) {
    if (move.bytes == 0) return;
    if (move.giver == move.taker) {
        return copy(running.output() + move.to, running.input() + move.from, move.bytes,
                    running.delivery);
    }
    const Offer offer = announced(running, move.taker).line.signature.offer;
    if (offer.output == MemoryKind::none) given = 0;
    if (rank_ == move.giver) {
        if (given == 0) return;
        return write_to(running, move.taker, move.to, running.input() + move.from, given);
    }
    const int giver = static_cast<int>(move.giver);
    const Location input = announced(running, move.giver).details.input;
    const std::size_t bytes = move.bytes - given;
    std::byte* const to = running.output() + move.to + given;
    if (bytes == 0) return;
    if (input.allocation == 0) {
        peers_.read(giver, input.offset + move.from + given, to, bytes, running);
    } else {
        const std::byte* const from =
            allocations_.address(giver, input, {move.from + given, bytes});
        copy(to, from, bytes, running.delivery);
    }
}

}  // namespace ddp::shm
