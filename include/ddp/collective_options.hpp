// What the collectives of a ProcessGroup are told beside tensors.
#pragma once

#include <ddp/backend.hpp>
#include <ddp/tensor.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ddp {

// The rank that data comes from, or goes to.
struct Root {
    int rank = 0;
};
struct Peer {
    int rank = 0;
};

// Elements that this rank sends to, and gets from, each rank: size() numbers each.
struct SplitSizes {
    std::span<const std::size_t> input;
    std::span<const std::size_t> output;
};

// One of a batch of transfers. Source: torch.distributed.P2POp.
struct P2POp {
    enum Kind : std::uint8_t { send, recv };
    Kind kind = send;
    TensorView tensor;
    Peer peer;
};

// Ranks of equal color form a group, ordered by key, then by rank. Source: MPI_Comm_split.
struct SplitOptions {
    int color = 0;
    int key = 0;
};

// How a group is made.
struct InitOptions {
    Backend backend = Backend::automatic;  // the best that all ranks can have
    // The deadline of init and of each collective: from its start on a rank to its end there.
    std::chrono::milliseconds timeout = std::chrono::minutes{10};
};

}  // namespace ddp
