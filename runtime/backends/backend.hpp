// The seam between process groups and what moves the bytes. A backend runs one collective at a
// time, to its end, on the caller's thread, and any number of point-to-point transfers beside it;
// order, threads and futures are the process group's business.
#pragma once

#include "base/deadline.hpp"
#include "base/recycled.hpp"
#include "contract/call_signature.hpp"

#include <ddp/backend.hpp>
#include <ddp/call_site.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/tensor.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace ddp::backends {

using contract::Collective;
using contract::to_string;
// Whether every rank's data go to others.
bool all_send(Collective kind) noexcept;

// The parts of an uneven all_gather or all_to_all, in elements.
struct Parts {
    // all_gather: what each rank gives (the same on all ranks). all_to_all: what this rank sends
    // to each rank. reduce_scatter (shm alone): what each rank gets (the same on all ranks).
    std::vector<std::size_t> send;
    std::vector<std::size_t> receive;  // all_to_all: what this rank gets from each rank
};

// One collective as one rank calls it. Between ranks only the pointers differ, op.factor, the Parts
// of all_to_all, and the site.
struct Call {
    Collective kind = Collective::barrier;
    DType dtype = DType::uint8;
    ReduceOp op = ReduceOp::sum;
    int root = 0;  // of broadcast, reduce, gather, scatter
    // all_reduce, broadcast, reduce: of the tensor. all_gather, gather, all_to_all: of the part of
    // one rank. reduce_scatter, scatter: likewise, so of the output. 0 with `parts`.
    std::size_t elements = 0;
    // The two may be the same memory (all_gather, reduce_scatter, gather, scatter: the smaller may
    // be this rank's part of the larger; all_to_all: distinct). Null where a rank has none: the
    // output of reduce and gather off the root, the input of scatter off the root.
    const void* input = nullptr;
    void* output = nullptr;
    std::shared_ptr<const Parts> parts = nullptr;  // null: even
    std::uint32_t source = 0;                      // who calls (call_header.hpp); 0: the program
    CallSite site = {};                            // where this rank starts it

    std::size_t bytes() const { return elements * size_of(dtype); }
    // Where the program does; a call of the library names its source instead.
    CallSite site_in_program() const { return source == 0 ? site : CallSite{}; }
};
// "all_reduce of 128 float32 (sum)": for messages.
std::string describe(const Call&);

enum class Direction : std::uint8_t { send, receive };

// One point-to-point transfer as one of its two ranks sees it. Matched in the order in which they
// were started, for each ordered pair of ranks.
struct Transfer {
    Direction direction = Direction::send;
    int peer = 0;  // not this rank
    void* data = nullptr;
    std::size_t bytes = 0;
    CallSite site = {};
};
// "send of 128 bytes to rank 1": for messages.
std::string describe(const Transfer&);

// "train.cpp:42": for messages. The last part of the path: the job's report is of one program.
std::string describe(const CallSite&);
// In a catch block, where a call ended: throws what has been caught, with this rank's line in its
// message if there is one. The others' errors name theirs, as no text travels with a call.
[[noreturn]] void rethrow_at(const CallSite& site);

// A transfer under way; made by start_transfer.
class PendingTransfer : public base::Recycled {
public:
    virtual ~PendingTransfer() = default;
    // Moves what can be moved now, without blocking; whether that was anything. One thread at a
    // time, over all pending transfers of a backend. Throws PeerError, UsageError (the two sides'
    // sizes differ).
    virtual bool advance() = 0;
    // All is moved and the memory free.
    virtual bool is_done() const = 0;
    // As it was started.
    virtual const Transfer& transfer() const = 0;
    // After the `round`th fruitless advance in a row: passes a moment, at most until another thread
    // has used this core. The thread that advances.
    virtual void rest(std::uint64_t round) = 0;
    // Blocks for a short while (at most about 20 ms), at best until there is something to move.
    // Throws PeerError. The thread that advances.
    virtual void wait_a_little(const base::Deadline& deadline) = 0;
    // The deadline has passed: fails the backend on all ranks and throws TimeoutError.
    [[noreturn]] virtual void give_up(const base::Deadline& deadline) = 0;
};

// Of this rank alone. Throws SystemError.
std::shared_ptr<void> allocate_private(std::size_t bytes);

class Backend {
public:
    virtual ~Backend() = default;

    virtual ddp::Backend kind() const = 0;
    // Blocks until this rank's part is done and its memory free. `sequence` counts the group's
    // calls from 1. One thread at a time. Throws PeerError, TimeoutError, UsageError (the ranks'
    // calls differ), with the site in their messages; afterwards the backend is failed on all ranks
    // and is not called again.
    virtual void run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) = 0;
    // Collective, in the order of `run` and under its rules. Throws SystemError on every rank when
    // it cannot be had on one; the backend stays usable then. Of an allocate: this rank's part,
    // aligned to 4096 bytes, zero. Of an adopt, whose memory is `output`: what keeps it adopted.
    virtual std::shared_ptr<void> provide_memory(const Call& call, std::uint64_t sequence,
                                                 const base::Deadline& deadline) = 0;
    // Something that the backend did not find itself ended an operation on this rank: the others
    // are told, unless they have been told of something before.
    virtual void fail() noexcept {}
    // What ends the group as far as is known without waiting: what another rank found, what the
    // launcher found, a rank whose process is gone (it may have left in the regular way, its part
    // being done).
    // `during` is what the error says it interrupted. Null: nothing. Any thread; never blocks.
    virtual std::exception_ptr find_trouble(const std::string& /*during*/) noexcept {
        return nullptr;
    }
    // This rank ends because of what find_trouble has found: the others are told the same, so that
    // they blame the first who went and not this one, which goes now.
    virtual void pass_on_trouble() noexcept {}
    // Never blocks. Any thread.
    virtual std::unique_ptr<PendingTransfer> start_transfer(const Transfer& transfer) = 0;
};

}  // namespace ddp::backends
