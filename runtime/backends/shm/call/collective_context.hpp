// One collective under way on one rank: the call, the state of the group, and which slots the call
// uses. Invariant: what decides where data lie in slots follows from the call, the group's tuning
// and its chunk number, so all ranks find the same.
#pragma once

#include "backends/backend.hpp"
#include "backends/reduction/reduce.hpp"
#include "backends/shm/call/group_state.hpp"
#include "base/deadline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>

namespace ddp::shm {

// Which bytes of each rank's slots a call uses.
struct SlotUse {
    std::size_t chunk_bytes = 0;  // of an all_reduce
    std::size_t slots_per_chunk = 1;
    std::size_t positions = slots_per_rank;  // slots, or pairs of slots, that chunks cycle through
    std::size_t offset = 0;                  // the slot's colour: where a call of one chunk begins
};

struct CollectiveContext {
    GroupState& group;
    const backends::Call& call;
    std::uint64_t sequence;
    const base::Deadline& deadline;
    std::size_t element_bytes;
    std::size_t copy_size = call.bytes();  // the size whose copy-mode statistics this call uses
    backends::Store output_store = backends::Store::cached;
    std::uint32_t first_phase = 0;
    bool fits_one_phase = false;  // this rank's input
    bool writes_slots = true;     // this rank sends, or stages what peers reduce
    SlotUse slots = {};
    // A small range of a peer's slot that this rank reads: begin() prefetches it.
    std::span<const std::byte> prefetched = {};
    // Where the data are: those of adopted memory where peers see them.
    const std::byte* input_data = static_cast<const std::byte*>(call.input);
    std::byte* output_data = static_cast<std::byte*>(call.output);
    struct AdoptedOutput {
        const AdoptedPages* pages = nullptr;
        std::size_t bytes = 0;
    };
    AdoptedOutput adopted_output = {};

    const std::byte* input() const { return input_data; }
    std::byte* output() const { return output_data; }
    std::size_t root() const { return static_cast<std::size_t>(call.root); }
    // That rank's slot of chunk `index` of the call, and the result slot of the chunk.
    std::byte* slot(std::size_t rank, std::size_t index) const {
        return group.region->slot(static_cast<int>(rank), chunk_number(index)) + slots.offset;
    }
    std::byte* result(std::size_t index) const {
        return group.region->result(chunk_number(index)) + slots.offset;
    }
    // Copies into this rank's slot, where peers read it, and to `also` unless that is null.
    void copy_to_slot(std::byte* slot, const std::byte* from, std::size_t bytes,
                      std::byte* also = nullptr) const {
        group.slot_writer.write(copy_size, slot, from, bytes, also);
    }
    // Copies into this rank's output. The two are the same memory or do not overlap.
    void copy_to_output(std::byte* to, const std::byte* from, std::size_t bytes) const {
        if (output_store == backends::Store::cached) {
            copy_from_slot(group.tuning.copying, to, from, bytes);
        } else {
            backends::copy(to, from, bytes, output_store);
        }
    }

    // The call uses `bytes` of each rank's slots, for its only chunk; `room` of each is free.
    // Each time a slot is used again the call uses another part of it (slot colouring).
    void color_slots(std::size_t bytes, std::size_t room);
    // For an all_reduce of so many bytes.
    void choose_positions(std::size_t bytes);
    // The call writes so many bytes to this rank's output.
    void choose_output_store(std::size_t bytes, bool in_place);
    // In a chunk of which the results of two ranks change places (SharedRegion::swaps_slots).
    bool swaps_results(std::size_t index) const {
        return group.region->swaps_slots() && are_results_swapped(chunk_number(index));
    }
    // Has begin() prefetch that range of a peer's slot, if it is small.
    void prefetch_slot(std::size_t rank, std::size_t offset, std::size_t bytes) {
        if (bytes <= max_prefetch_bytes) prefetched = {slot(rank, 0) + offset, bytes};
    }
    // After begin(), which reads the factors of all ranks.
    backends::Reduction reduction() const {
        const bool scaled = call.op.kind == ReduceOp::premul_sum;
        return {
            call.dtype, call.op.kind,
            scaled ? std::span<const double>(group.scratch.factors) : std::span<const double>()};
    }
    std::string operator()() const;  // describes the call, for messages
    // From here on the call works where its peers do.
    void use_adopted_output(const SharedAllocations::Place& place, std::size_t bytes) {
        output_data = place.data;
        adopted_output = {place.adopted, bytes};
    }
    // At the end: what peers have written to the ends of an adopted output.
    void take_adopted_ends() const {
        if (adopted_output.pages == nullptr) return;
        adopted_output.pages->take_ends(
            {static_cast<std::byte*>(call.output), adopted_output.bytes});
    }

private:
    std::uint64_t chunk_number(std::size_t index) const {
        return group.next_chunk + index % slots.positions;
    }
};

// Part of a block of bytes: what chunk `index` of the call moves of it.
struct ChunkSlice {
    std::size_t index, offset, bytes;

    static ChunkSlice of(std::size_t index, std::size_t total, std::size_t piece) {
        const std::size_t offset = std::min(index * piece, total);
        return {index, offset, std::min(piece, total - offset)};
    }
};

inline void CollectiveContext::color_slots(std::size_t bytes, std::size_t room) {
    const std::uint64_t least = group.tuning.coloring.min_bytes;
    const std::size_t usable =
        slots.slots_per_chunk *
        std::min<std::size_t>(room, group.tuning.coloring.footprint_bytes / slots_per_rank);
    if (least == 0 || bytes < least || bytes > usable) return;
    if (group.region->swaps_slots() && backends::all_send(call.kind)) return;
    slots.offset = color_of(group.next_chunk / slots_per_rank, bytes, usable);
}

}  // namespace ddp::shm
