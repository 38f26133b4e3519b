// The call that a ShmBackend is running: what its sources share, private to them.
#pragma once

#include "backends/call_header.hpp"
#include "backends/shm/shm_backend.hpp"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>

namespace ddp::shm {

struct ShmBackend::Range {
    std::size_t begin, end;
};

struct ShmBackend::Running {
    ShmBackend& backend;
    const backends::Call& call;
    std::uint64_t sequence;
    const base::Deadline& deadline;
    std::size_t element_bytes;
    std::size_t size = call.bytes();                     // by which the way into slots is chosen
    backends::Store delivery = backends::Store::cached;  // how what comes goes into the output
    std::uint32_t first_phase = 0;
    bool is_small = false;              // what this rank gives goes in one phase
    bool stages = true;                 // puts something into its slots
    std::size_t chunk_bytes = 0;        // of an all_reduce
    std::size_t slots = 1;              // that each of its chunks takes
    std::size_t places = slots_a_rank;  // slots, or pairs of them, that its chunks take by turns
    std::size_t shift = 0;              // where in its slots a call of one chunk begins
    // What this rank will read of another's slot, small: to be asked for as soon as it is there.
    std::span<const std::byte> awaited = {};

    const std::byte* input() const { return static_cast<const std::byte*>(call.input); }
    std::byte* output() const { return static_cast<std::byte*>(call.output); }
    std::size_t root() const { return static_cast<std::size_t>(call.root); }
    // In that rank's slot of the call's chunk, and in the chunk's result.
    std::byte* slot(std::size_t rank, std::size_t index) const {
        return backend.region_->slot(static_cast<int>(rank), backend.chunk_ + index % places) +
               shift;
    }
    std::byte* result(std::size_t index) const {
        return backend.region_->result(backend.chunk_ + index % places) + shift;
    }
    // Into this rank's slot, where others read it; `also` to there, unless that is null.
    void put(std::byte* slot, const std::byte* from, std::size_t bytes,
             std::byte* also = nullptr) const {
        backend.stores_.put(size, slot, from, bytes, also);
    }
    // The call takes `bytes` of each rank's slots for its only chunk; each has room for `piece`.
    void rotate(std::size_t bytes, std::size_t piece) {
        const std::uint64_t least = backend.tuning_.rotating_bytes;
        const std::size_t room =
            slots * std::min<std::size_t>(piece, backend.tuning_.rotating_room / slots_a_rank);
        if (least == 0 || bytes < least || bytes > room) return;
        constexpr std::size_t pair = 2 * cache_line;
        const std::size_t part = (bytes + pair - 1) / pair * pair;
        const std::size_t parts = std::max<std::size_t>(room / part, 1);
        shift = backend.chunk_ / slots_a_rank % parts * part;
    }
    // An all_reduce of so many bytes goes through no more places than it needs for the lines to
    // have left the caches when their turn comes again: the next one may begin at the same place.
    void choose_places(std::size_t bytes) {
        const std::size_t least = bytes > chunk_bytes ? 2 : 1;
        const std::size_t piece = std::min(bytes, chunk_bytes);
        places = slots_a_rank / slots;
        while (places > least && places / 2 * piece >= backend.tuning_.rotating_room) places /= 2;
    }
    // The call brings so many bytes to each output. In place their lines are in the caches, as they
    // have been read.
    void deliver(std::size_t bytes, bool in_place) {
        const std::uint64_t least = backend.tuning_.streaming_output_bytes;
        const bool streams = least > 0 && bytes >= least && !in_place;
        if (streams) delivery = backends::Store::streaming;
    }
    // Into this rank's output. The two are the same memory or do not overlap.
    void take(std::byte* to, const std::byte* from, std::size_t bytes) const {
        const bool plain = backend.tuning_.claims_outputs == 0 && to != from && bytes > 0;
        if (plain && delivery == backends::Store::cached) {
            std::memcpy(to, from, bytes);
        } else {
            backends::copy(to, from, bytes, delivery);
        }
    }
    std::string operator()() const {  // for messages
        return backends::describe(call) + backends::describe_source(call.source) + ", operation " +
               std::to_string(sequence);
    }
};

// Bytes first to first + count of a block, moved as chunk `index` of the call.
struct ShmBackend::Window {
    std::size_t index;
    std::size_t first;
    std::size_t count;

    static Window of(std::size_t index, std::size_t total, std::size_t piece) {
        const std::size_t first = std::min(index * piece, total);
        return {index, first, std::min(piece, total - first)};
    }
};

}  // namespace ddp::shm
