// The seam between process groups and what moves the bytes. A backend runs one collective at a
// time, to its end, on the caller's thread; order, threads and futures are the process group's
// business.
#pragma once

#include "base/deadline.hpp"

#include <ddp/backend.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ddp::backends {

enum class Collective : std::uint8_t { all_reduce, broadcast, all_gather, reduce_scatter, barrier };
const char* to_string(Collective) noexcept;

// One collective as one rank calls it. Nothing but the two pointers differs between ranks.
struct Call {
    Collective kind = Collective::barrier;
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;
    int root = 0;
    // all_reduce, broadcast: of the tensor. all_gather: of the input. reduce_scatter: of the
    // output.
    std::size_t elements = 0;
    const void* input = nullptr;  // may equal output (or this rank's part of it)
    void* output = nullptr;

    std::size_t bytes() const { return elements * size_of(dtype); }
};
// "all_reduce of 128 float32 (sum)": for messages.
std::string describe(const Call&);

class Backend {
public:
    virtual ~Backend() = default;

    virtual ddp::Backend kind() const = 0;
    // Blocks until this rank's part is done and its memory free. `sequence` counts the group's
    // calls from 1. One thread at a time. Throws PeerError, TimeoutError, UsageError (the ranks'
    // calls differ); afterwards the backend is failed on all ranks and is not called again.
    virtual void run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) = 0;
};

}  // namespace ddp::backends
