// The memory that a group's ranks allocated together: one piece a rank in each allocation, all of
// them mapped by all ranks, so that a rank can read and write what its peers hold.
#pragma once

#include "backends/shm/region/shared_memory.hpp"
#include "backends/shm/region/shared_region.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace ddp::shm {

class SharedAllocations {
public:
    SharedAllocations(int rank, int ranks);
    ~SharedAllocations();
    SharedAllocations(const SharedAllocations&) = delete;
    SharedAllocations& operator=(const SharedAllocations&) = delete;

    // Takes in the next allocation, in the same order on all ranks: piece r is at r * stride.
    // Returns this rank's piece. The memory stays mapped until the last copy of that has gone on
    // every rank, since peers may still announce theirs.
    std::shared_ptr<void> add(std::shared_ptr<SharedMemory> memory, std::size_t stride);

    // Where these bytes of this rank lie; allocation 0 when not all of them in one allocation.
    Location locate(const void* data, std::size_t bytes) const;
    // Where some bytes begin of what `rank` announced as `location`. Throws Error when they do not
    // lie in its piece of an allocation.
    struct Extent {
        std::size_t first, bytes;
    };
    std::byte* address(int rank, const Location& location, const Extent& extent) const;

private:
    struct Registry;  // outlives this as long as memory of it is in use

    int rank_;
    std::uint32_t last_id_ = 0;
    std::shared_ptr<Registry> registry_;
};

}  // namespace ddp::shm
