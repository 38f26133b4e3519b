// A place in the rooms of the two channels of a pair of ranks. Invariant: the sender's and the
// receiver's words for a room differ, so that both find the same bytes.
#pragma once

#include "backends/shm/region/region_layout.hpp"

#include <cstddef>
#include <cstdint>

namespace ddp::shm {

struct ChunkPlace {
    bool in_receivers_room = false;  // else in the sender's
    std::size_t offset = 0;
    std::size_t bytes = 0;

    bool overlaps(const ChunkPlace& other) const {
        return offset < other.offset + other.bytes && other.offset < offset + bytes;
    }

    // As it is published; offsets are of whole lines.
    static constexpr std::uint32_t receivers_bit = 1U << 31U;
    std::uint32_t to_word() const {
        const auto line = static_cast<std::uint32_t>(offset / cache_line);
        return line | (in_receivers_room ? receivers_bit : 0);
    }
    static ChunkPlace of_word(std::uint32_t word, std::size_t bytes) {
        return {(word & receivers_bit) != 0, (word & ~receivers_bit) * cache_line, bytes};
    }
};

// Throw Error, which blames the peer. (chunk_places.cpp)
[[noreturn]] void throw_no_room_left(int peer);
[[noreturn]] void throw_outside_of_channel(int peer);

}  // namespace ddp::shm
