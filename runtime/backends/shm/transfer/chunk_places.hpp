// Where the chunks lie that two ranks send each other. Each channel has room of its own, in which a
// sender goes round; but best is the place of the chunk that this rank has read last from the
// other, in whichever room: its lines are in this core's caches, and in no one else's way.
// protocol.md says why nobody else writes there. Invariant: a chunk is written only where no chunk
// lies that its receiver may still read, and none that the peer may be writing; tests/explorer
// checks it.
#pragma once

#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/chunk_place.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ddp::shm {

// This rank's view of its two channels with one peer. Of the thread that advances.
template <class Region>
class BasicChunkPlaces {
public:
    BasicChunkPlaces(const Region& region, int rank, int peer);

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
        if (place.offset > room_ || place.bytes > room_ - place.offset) {
            throw_outside_of_channel(peer_);
        }
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

    const Region& region_;
    int rank_, peer_;
    bool swaps_;
    std::size_t room_;  // in bytes, of a channel's chunks
    std::byte* own_room_;
    std::byte* their_room_;
    std::array<ChunkPlace, remembered> sent_{};  // by chunk
    std::optional<ChunkPlace> last_read_;        // unless a chunk was sent from there since
    bool last_was_swapped_ = false;
};

template <class Region>
BasicChunkPlaces<Region>::BasicChunkPlaces(const Region& region, int rank, int peer)
    : region_(region),
      rank_(rank),
      peer_(peer),
      swaps_(region.tuning().coloring.swaps != 0 &&
             region.channel_slot_room() > region.channel_slot_bytes()),
      room_(channel_slots * region.channel_slot_room()),
      own_room_(region.channel_slot(rank, peer, 0)),
      their_room_(region.channel_slot(peer, rank, 0)) {}

template <class Region>
ChunkPlace BasicChunkPlaces<Region>::choose_in_own_room(const Counters& counters, std::size_t bytes,
                                                        std::size_t message_bytes) const {
    const ChunkPlace place = place_in_turn(counters.chunk, bytes, message_bytes);
    return !swaps_ || is_free(place, counters) ? place : find_free(counters, bytes);
}

// Its own slot of the channel; of a long message another part of it each time (slot colouring).
template <class Region>
ChunkPlace BasicChunkPlaces<Region>::place_in_turn(std::uint64_t chunk, std::size_t bytes,
                                                   std::size_t message_bytes) const {
    const Tuning::Coloring& coloring = region_.tuning().coloring;
    const std::size_t slot = chunk % channel_slots * region_.channel_slot_room();
    if (coloring.min_bytes == 0 || message_bytes < coloring.min_bytes) return {false, slot, bytes};
    const std::size_t part = std::min(region_.channel_slot_bytes(), message_bytes);
    const std::size_t room = std::min<std::size_t>(region_.channel_slot_room(),
                                                   coloring.footprint_bytes / channel_slots);
    return {false, slot + color_of(chunk / channel_slots, part, room), bytes};
}

// Any that is free, of all that a chunk may take: those in use are too few to touch all of them.
template <class Region>
ChunkPlace BasicChunkPlaces<Region>::find_free(const Counters& counters, std::size_t bytes) const {
    const std::size_t step = region_.channel_slot_bytes();
    for (std::size_t offset = 0; offset + step <= room_; offset += step) {
        const ChunkPlace place{false, offset, bytes};
        if (is_free(place, counters)) return place;
    }
    throw_no_room_left(peer_);
}

// Of this rank's room are in use: what the peer has not read; the last that it has read, as it may
// be writing there; and what it has written there, as long as this rank has not read that.
template <class Region>
bool BasicChunkPlaces<Region>::is_free(const ChunkPlace& place, const Counters& counters) const {
    const std::uint64_t oldest = std::max<std::uint64_t>(counters.read, 1) - 1;
    for (std::uint64_t chunk = oldest; chunk < counters.chunk; ++chunk) {
        const ChunkPlace& sent = sent_[chunk % remembered];
        if (!sent.in_receivers_room && sent.overlaps(place)) return false;
    }
    const auto& theirs = region_.channel(peer_, rank_);
    const std::uint64_t written = theirs.written.load(channel_orders.see_written);
    const std::uint64_t unread =
        std::min<std::uint64_t>(written - counters.received, channel_slots);
    for (std::uint64_t i = 0; i < unread; ++i) {
        const std::uint32_t word = theirs.place[(counters.received + i) % channel_slots];
        const ChunkPlace theirs_here = ChunkPlace::of_word(word, region_.channel_slot_bytes());
        if (theirs_here.in_receivers_room && theirs_here.overlaps(place)) return false;
    }
    return true;
}

using ChunkPlaces = BasicChunkPlaces<SharedRegion>;
extern template class BasicChunkPlaces<SharedRegion>;

}  // namespace ddp::shm
