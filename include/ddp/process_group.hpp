// ProcessGroup: the ranks of a job and the collectives between them. A value that main owns; no
// globals, nothing to finalise. Source: torch.distributed's ProcessGroup and init_process_group.
//
// Threads: the members may be called from any thread, but all ranks must start the same operations
// in the same order; a mismatch is an error on every rank. Operations of one group run one after
// another.
//
// Same bits: every reduction adds in one fixed order, the balanced binary tree over ranks,
// ((0+1)+(2+3))+..., so that each run gives each rank the same bits.
//
// Failure: a rank that dies, a deadline that passes or a mismatch fails the group: the operation
// throws, all others in flight end with an error, and so does each later call. A failed group is
// not repaired.
#pragma once

#include <ddp/backend.hpp>
#include <ddp/export.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/shard.hpp>
#include <ddp/store.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>
#include <ddp/work.hpp>
#include <ddp/worker_env.hpp>

#include <chrono>
#include <cstdint>
#include <memory>

namespace ddp {

// The rank that data comes from.
struct Root {
    int rank = 0;
};

struct InitOptions {
    Backend backend = Backend::automatic;
    // The deadline of init and of each collective: from its start on a rank to its end there.
    std::chrono::milliseconds timeout = std::chrono::minutes{10};
};

class DDP_API ProcessGroup {
public:
    ProcessGroup(ProcessGroup&&) noexcept;
    ProcessGroup& operator=(ProcessGroup&&) noexcept;
    // Waits for what is in flight. Not collective: ranks may leave at different times.
    ~ProcessGroup();

    int rank() const noexcept;
    int size() const noexcept;
    int local_rank() const noexcept;
    int local_size() const noexcept;
    Shard shard() const noexcept;  // {rank, size}: what a sampler needs
    Device device() const noexcept;
    Backend backend() const noexcept;
    std::chrono::milliseconds timeout() const noexcept;

    // Replaces `tensor` on every rank by the element-wise reduction over all ranks, in place.
    // All ranks pass the same number of elements, dtype and op. Returns at once; the memory is
    // borrowed until the Work is done. Other collectives likewise.
    Work all_reduce(TensorView tensor, ReduceOp op = ReduceOp::sum, Stream stream = {});
    // Out of place: reads `input`, writes `output` (same elements and dtype; may be the same
    // memory).
    Work all_reduce(TensorView input, TensorView output, ReduceOp op, Stream stream = {});
    // One number a rank; blocks and returns the reduction. For losses and counts.
    template <TensorElement T>
    T all_reduce(T value, ReduceOp op = ReduceOp::sum) {
        all_reduce(TensorView{&value, Shape{}, dtype_of<T>()}, op).wait();
        return value;
    }
    // Copies root's `tensor` to all ranks.
    Work broadcast(TensorView tensor, Root root = {}, Stream stream = {});
    // `output` holds size() times the elements of `input`: rank r's at position r. `input` may be
    // this rank's part of `output`.
    Work all_gather(TensorView input, TensorView output, Stream stream = {});
    // `input` holds size() times the elements of `output`; rank r gets the reduction of part r.
    // `output` may be this rank's part of `input`.
    Work reduce_scatter(TensorView input, TensorView output, ReduceOp op = ReduceOp::sum,
                        Stream stream = {});
    // Done when all ranks have started it.
    Work barrier();

    class Impl;
    explicit ProcessGroup(std::unique_ptr<Impl>) noexcept;  // made by init_process_group
    Impl& impl() noexcept { return *impl_; }

private:
    std::unique_ptr<Impl> impl_;
};

// Joins the job that the environment describes (worker_env): meets the other ranks through the
// store, agrees with them on a backend, and returns when all are there. Collective; may be called
// again for a further group, by all ranks in the same order. Without such an environment: a world
// of one. Blocks up to options.timeout. Throws UsageError (the environment makes no sense; a
// backend that cannot be had: names rank, host and reason, on every rank), TimeoutError (names the
// missing ranks), SystemError.
DDP_API ProcessGroup init_process_group(const InitOptions& options = {});

// The same with a place and a store of the caller's own (`me.master` is not used). The store must
// be empty of earlier groups' keys: wrap it in make_prefix_store for a second group.
DDP_API ProcessGroup init_process_group(const WorkerEnv& me, std::shared_ptr<Store> store,
                                        const InitOptions& options = {});

}  // namespace ddp
