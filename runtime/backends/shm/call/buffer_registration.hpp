// Which of a rank's buffers its peers may access in a call, and which path the data takes because
// of that. Invariant: the path follows from the descriptors of all ranks, so all choose the same.
#pragma once

#include "backends/shm/call/collective_context.hpp"

#include <cstddef>
#include <cstdint>

namespace ddp::shm {

// What a rank does in a call with a root; without one all ranks do both.
enum class Role : std::uint8_t { sender, receiver, both };

// Of the buffers of a call on this rank. `per_peer`: what one rank reads of another's, or 0 where
// peers' memory is not to be accessed by its address.
struct BufferBytes {
    std::size_t input, output, per_peer;
};

// Enters into this rank's next descriptor where the buffers lie that peers may access.
BufferRegistration register_buffers(CollectiveContext& context, Role role,
                                    const BufferBytes& bytes);

enum class DataPath : std::uint8_t {
    staged,       // through slots
    staged_anew,  // likewise, after ranks that had registered their buffers have staged too
    direct        // peers access each other's buffers
};
// After begin().
DataPath path_of(const CollectiveContext& context);

}  // namespace ddp::shm
