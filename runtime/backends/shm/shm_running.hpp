// The call that a ShmBackend is running: what its sources share, private to them.
#pragma once

#include "backends/shm/shm_backend.hpp"

#include <algorithm>
#include <span>
#include <string>

namespace ddp::shm {

struct ShmBackend::Running {
    const backends::Call& call;
    std::uint64_t sequence;
    const base::Deadline& deadline;
    std::size_t element_bytes;
    backends::Store staging;  // how bytes go into slots
    std::uint32_t first_phase = 0;
    bool is_small = false;        // what this rank gives goes in one phase
    bool stages = true;           // puts something into its slots
    std::size_t chunk_bytes = 0;  // of an all_reduce: a chunk's, or two chunks' that go as one
    // What this rank will read of another's slot, small: to be asked for as soon as it is there.
    std::span<const std::byte> awaited = {};

    const std::byte* input() const { return static_cast<const std::byte*>(call.input); }
    std::byte* output() const { return static_cast<std::byte*>(call.output); }
    std::size_t root() const { return static_cast<std::size_t>(call.root); }
    std::string operator()() const {  // for messages
        return backends::describe(call) + ", operation " + std::to_string(sequence);
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
