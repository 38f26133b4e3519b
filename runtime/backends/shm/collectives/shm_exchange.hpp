// What the collectives other than all_reduce have in common: one phase a chunk. Who gives stages;
// who takes copies or reduces from the slots. Where no rank stages, all reach into each other's
// memory (shm_direct.cpp).
#pragma once

#include "backends/shm/collectives/shm_running.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace ddp::shm {

inline std::size_t round_down(std::size_t value, std::size_t multiple) {
    return value / multiple * multiple;
}

inline std::size_t chunks_of(std::size_t bytes, std::size_t piece) {
    return (bytes + piece - 1) / piece;
}

// Which of the pieces in `from`'s slot is for `to`: there is none for itself.
inline std::size_t place(std::size_t from, std::size_t to) { return to < from ? to : to - 1; }

// `stage(i)` puts chunk i of what this rank gives into its slot, `take(i)` gets what it wants of
// chunk i; `chunks()` is their number, the same on all ranks, known once the calls are compared.
// `direct()` does all of it in peers' memory.
template <class Chunks, class Stage, class Take, class Direct>
struct ShmBackend::Exchange {
    Role role;
    Extents bytes;
    const Chunks& chunks;
    const Stage& stage;
    const Take& take;
    const Direct& direct;
};

template <class Chunks, class Stage, class Take, class Direct>
void ShmBackend::exchange(Running& running, const Exchange<Chunks, Stage, Take, Direct>& how) {
    Extents bytes = how.bytes;
    if (bytes.part > tuning_.direct_exchange_bytes_max) bytes.part = 0;
    const Offer offer = offer_memory(running, how.role, bytes);
    if (offer.input == MemoryKind::ordinary) how.stage(0);
    announce(running, offer);
    if (how.role == Role::gives && running.is_small && how.chunks() <= 1) {
        leave_unsettled(running);
        how.take(0);  // what it gives to itself
        ++chunk_;
        return;
    }
    begin(running);
    switch (path_of(running)) {
        case Path::direct:
            how.direct();
            require_all_stayed(running);
            barrier_.arrive_and_wait(running.deadline, running);
            return;
        case Path::staged_after_all:
            if (how.role != Role::takes && offer.input != MemoryKind::ordinary) how.stage(0);
            barrier_.arrive_and_wait(running.deadline, running);
            break;
        case Path::staged:
            break;
    }
    const std::size_t count = std::max<std::size_t>(how.chunks(), 1);
    std::uint32_t staged = running.first_phase;
    for (std::size_t chunk = 0; chunk < count; ++chunk) {
        if (chunk > 0) barrier_.wait(staged, running.deadline, running);
        if (chunk + 1 < count) {
            how.stage(chunk + 1);
            staged = barrier_.arrive();
        }
        how.take(chunk);
    }
    chunk_ += count;
}

}  // namespace ddp::shm
