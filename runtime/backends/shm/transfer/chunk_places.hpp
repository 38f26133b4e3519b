// Where the chunks lie that two ranks send each other. Each channel has room of its own, in which a
// sender goes round; but best is the place of the chunk that this rank has read last from the
// other, in whichever room: its lines are in this core's caches, and in no one else's way.
// protocol.md says why nobody else writes there. Invariant: a chunk is written only where no chunk
// lies that its receiver may still read, and none that the peer may be writing.
#pragma once

#include "backends/shm/region/shared_region.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::shm {

struct ChunkPlace {
    bool in_receivers_room = false;  // else in the sender's
    std::size_t offset = 0;
    std::size_t bytes = 0;

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

// This rank's view of its two channels with one peer. Of the thread that advances.
class ChunkPlaces {
public:
    ChunkPlaces(const SharedRegion& region, int rank, int peer);

    // For chunk `chunk` of what this rank sends, of `bytes`, a part of a message of so many.
    // `read`: how many the peer has read, of `received`: this rank of the peer's, as last seen.
    struct Counters {
        std::uint64_t chunk, read, received;
    };
    ChunkPlace choose(const Counters& counters, std::size_t bytes, std::size_t message_bytes) {
        ChunkPlace place;
        last_was_swapped_ = last_read_.has_value() && last_read_->bytes >= bytes;
        if (last_was_swapped_) {
            place = {!last_read_->in_receivers_room, last_read_->offset, bytes};
        } else {
            place = choose_in_own_room(counters, bytes, message_bytes);
        }
        last_read_.reset();  // a chunk may lie there now
        sent_[counters.chunk % remembered] = place;
        return place;
    }
    // Where the next one of that size will be, as far as that is known now; else null.
    std::byte* find_likely_next(std::uint64_t chunk, std::size_t bytes) const {
        return last_was_swapped_ ? nullptr : address_of_sent(place_in_turn(chunk, bytes, bytes));
    }
    std::byte* address_of_sent(const ChunkPlace& place) const {
        return (place.in_receivers_room ? their_room_ : own_room_) + place.offset;
    }
    // Where the peer's chunk lies. Throws Error where it does not lie in a channel's room.
    std::byte* address_of_received(const ChunkPlace& place) const {
        if (place.offset > room_ || place.bytes > room_ - place.offset) throw_outside();
        return (place.in_receivers_room ? own_room_ : their_room_) + place.offset;
    }
    // It has been read, and that been published. Whether this rank is likely to write there next.
    bool note_read(const ChunkPlace& place) {
        if (swaps_) last_read_ = place;
        return last_was_swapped_;
    }

private:
    static constexpr std::size_t remembered = 2 * channel_slots;

    ChunkPlace choose_in_own_room(const Counters& counters, std::size_t bytes,
                                  std::size_t message_bytes) const;
    ChunkPlace place_in_turn(std::uint64_t chunk, std::size_t bytes,
                             std::size_t message_bytes) const;
    ChunkPlace find_free(const Counters& counters, std::size_t bytes) const;
    bool is_free(const ChunkPlace& place, const Counters& counters) const;
    [[noreturn]] void throw_outside() const;

    const SharedRegion& region_;
    int rank_, peer_;
    bool swaps_;
    std::size_t room_;  // in bytes, of a channel's chunks
    std::byte* own_room_;
    std::byte* their_room_;
    std::array<ChunkPlace, remembered> sent_{};  // by chunk
    std::optional<ChunkPlace> last_read_;        // unless a chunk was sent from there since
    bool last_was_swapped_ = false;
};

}  // namespace ddp::shm
