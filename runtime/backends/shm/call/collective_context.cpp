#include "backends/shm/call/collective_context.hpp"

#include "backends/call_header.hpp"

namespace ddp::shm {

std::string CollectiveContext::operator()() const {
    return backends::describe(call) + backends::describe_source(call.source) + ", operation " +
           std::to_string(sequence);
}

// As few as are needed for the lines of a position to have left the caches of their readers when it
// is used again: the next call may begin at the same one.
void CollectiveContext::choose_positions(std::size_t bytes) {
    const std::size_t least = bytes > slots.chunk_bytes ? 2 : 1;
    const std::size_t piece = std::min(bytes, slots.chunk_bytes);
    slots.positions = slots_per_rank / slots.slots_per_chunk;
    if (group.region->swaps_slots()) return;
    while (slots.positions > least &&
           slots.positions / 2 * piece >= group.tuning.coloring.footprint_bytes) {
        slots.positions /= 2;
    }
}

// An output in place has just been read, so its lines are in the caches.
void CollectiveContext::choose_output_store(std::size_t bytes, bool in_place) {
    const std::uint64_t least = group.tuning.streaming.min_output_bytes;
    const bool streams = least > 0 && bytes >= least && !in_place;
    if (streams) output_store = backends::Store::streaming;
}

}  // namespace ddp::shm
