#include "backends/shm/transfer/chunk_places.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <string>

namespace ddp::shm {
namespace {

bool overlap(const ChunkPlace& a, const ChunkPlace& b) {
    return a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

ChunkPlaces::ChunkPlaces(const SharedRegion& region, int rank, int peer)
    : region_(region),
      rank_(rank),
      peer_(peer),
      swaps_(region.tuning().coloring.swaps != 0 &&
             region.channel_slot_room() > region.channel_slot_bytes()),
      room_(channel_slots * region.channel_slot_room()),
      own_room_(region.channel_slot(rank, peer, 0)),
      their_room_(region.channel_slot(peer, rank, 0)) {}

ChunkPlace ChunkPlaces::choose_in_own_room(const Counters& counters, std::size_t bytes,
                                           std::size_t message_bytes) const {
    const ChunkPlace place = place_in_turn(counters.chunk, bytes, message_bytes);
    return !swaps_ || is_free(place, counters) ? place : find_free(counters, bytes);
}

// Its own slot of the channel; of a long message another part of it each time (slot colouring).
ChunkPlace ChunkPlaces::place_in_turn(std::uint64_t chunk, std::size_t bytes,
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
ChunkPlace ChunkPlaces::find_free(const Counters& counters, std::size_t bytes) const {
    const std::size_t step = region_.channel_slot_bytes();
    for (std::size_t offset = 0; offset + step <= room_; offset += step) {
        const ChunkPlace place{false, offset, bytes};
        if (is_free(place, counters)) return place;
    }
    throw Error("shm: rank " + std::to_string(peer_) + " left no room in its channel");
}

// Of this rank's room are in use: what the peer has not read; the last that it has read, as it may
// be writing there; and what it has written there, as long as this rank has not read that.
bool ChunkPlaces::is_free(const ChunkPlace& place, const Counters& counters) const {
    const std::uint64_t oldest = std::max<std::uint64_t>(counters.read, 1) - 1;
    for (std::uint64_t chunk = oldest; chunk < counters.chunk; ++chunk) {
        const ChunkPlace& sent = sent_[chunk % remembered];
        if (!sent.in_receivers_room && overlap(sent, place)) return false;
    }
    const Channel& theirs = region_.channel(peer_, rank_);
    const std::uint64_t written = theirs.written.load(channel_orders.see_written);
    const std::uint64_t unread =
        std::min<std::uint64_t>(written - counters.received, channel_slots);
    for (std::uint64_t i = 0; i < unread; ++i) {
        const std::uint32_t word = theirs.place[(counters.received + i) % channel_slots];
        const ChunkPlace theirs_here = ChunkPlace::of_word(word, region_.channel_slot_bytes());
        if (theirs_here.in_receivers_room && overlap(theirs_here, place)) return false;
    }
    return true;
}

void ChunkPlaces::throw_outside() const {
    throw Error("shm: rank " + std::to_string(peer_) + " announced a chunk outside of its channel");
}

}  // namespace ddp::shm
