#include "backends/shm/transfer/chunk_places.hpp"

#include <ddp/error.hpp>

#include <string>

namespace ddp::shm {

void throw_no_room_left(int peer) {
    throw Error("shm: rank " + std::to_string(peer) + " left no room in its channel");
}

void throw_outside_of_channel(int peer) {
    throw Error("shm: rank " + std::to_string(peer) + " announced a chunk outside of its channel");
}

template class BasicChunkPlaces<SharedRegion>;

}  // namespace ddp::shm
