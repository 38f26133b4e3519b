// The order in which pieces of one memory go to other places of it, where some would be written
// over before they have left: through a scratch memory, and where they go in circles through the
// host's.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace ddp::reducer {

// Bytes of the memory.
struct Move {
    std::size_t from, to, bytes;
};

struct CopyStep {
    enum class Place { memory, scratch, host };
    Place from;
    std::size_t from_at;
    Place to;
    std::size_t to_at;
    std::size_t bytes;
};

struct Relocation {
    std::vector<CopyStep> steps;  // one after the other; none within a place overlaps itself
    std::size_t scratch_bytes = 0;
    std::size_t host_bytes = 0;
};

// Of moves from places that are disjoint, to places that are. At most so many bytes of scratch
// memory, more than 0, are used: by a piece that goes to where it partly is.
Relocation plan_relocation(std::span<const Move> moves, std::size_t most_scratch_bytes);

}  // namespace ddp::reducer
