// The memory that a group's ranks allocated together: one piece a rank in each allocation. All
// ranks map all pieces, so that a rank can read and write its peers' pieces. A piece may hold
// memory of the rank's that was adopted. Invariant: an allocation stays mapped until every rank has
// released it.
#pragma once

#include "backends/shm/region/adopted_pages.hpp"
#include "backends/shm/region/shared_memory.hpp"
#include "backends/shm/region/shared_region.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace ddp::shm {

class SharedAllocations {
public:
    SharedAllocations(int rank, int ranks);
    ~SharedAllocations();
    SharedAllocations(const SharedAllocations&) = delete;
    SharedAllocations& operator=(const SharedAllocations&) = delete;

    // Adds the next allocation, in the same order on all ranks: rank r's piece is at r * stride.
    // Returns this rank's piece. The memory stays mapped until the last copy of that is gone on
    // every rank, since peers may still register theirs.
    std::shared_ptr<void> add(std::shared_ptr<SharedMemory> memory, std::size_t stride);
    // The same with this rank's `own` in its piece; returns what keeps it there. Throws as
    // AdoptedPages: then the ranks go on as if it had been released here.
    std::shared_ptr<void> adopt(std::shared_ptr<SharedMemory> memory, std::size_t stride,
                                std::span<std::byte> own, const std::string& what);

    // Where these bytes of this rank lie; allocation 0 where not all of them lie in one allocation.
    struct Place {
        BufferLocation location = {};
        std::byte* data = nullptr;              // where this rank finds what its peers see
        const AdoptedPages* adopted = nullptr;  // that they are of, if any
    };
    Place locate(const void* data, std::size_t bytes) const;
    // Where some bytes begin of what `rank` announced as `location`. Throws Error when they do not
    // lie in its piece of an allocation.
    struct Extent {
        std::size_t first, bytes;
    };
    std::byte* address(int rank, const BufferLocation& location, const Extent& extent) const;

private:
    struct Registry;  // outlives this as long as memory of it is in use

    std::byte* own_piece(const SharedMemory& memory, std::size_t stride) const {
        return memory.data() + static_cast<std::size_t>(rank_) * stride;
    }

    int rank_;
    std::uint32_t last_id_ = 0;
    std::shared_ptr<Registry> registry_;
};

}  // namespace ddp::shm
