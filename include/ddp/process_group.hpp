// ProcessGroup: the ranks of a job and the collectives between them. A value that main owns; no
// globals, nothing to finalise. Source: torch.distributed's ProcessGroup and init_process_group.
// Threads: the members may be called from any thread, but all ranks must start the same collectives
// in the same order (send and recv have none); a mismatch is an error on every rank. Two threads
// that start calls which look alike (kind, size, dtype) must agree on their order themselves.
// Collectives of one group run one after another. A collective is done when this rank's memory is
// free; the ranks that a broadcast's root sends to may not have come yet: what goes wrong with them
// shows at the root's next collective, if any.
// Same bits: every reduction adds in one fixed order, the balanced binary tree over ranks,
// ((0+1)+(2+3))+..., whatever the backend, size, path and timing (NCCL: its own); half types are
// added in float32 and rounded once. So each run gives each rank the same bits.
// Failure: a rank that dies, a deadline that passes or a mismatch fails the group: the operation
// throws, all others in flight end with an error, and so does each later call. On each rank the
// error names the line that started the operation there: `site`, see call_site.hpp.
#pragma once

#include <ddp/backend.hpp>
#include <ddp/call_site.hpp>
#include <ddp/collective_options.hpp>
#include <ddp/export.hpp>
#include <ddp/init_process_group.hpp>
#include <ddp/reduce_op.hpp>
#include <ddp/shard.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>
#include <ddp/work.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace ddp {

namespace process_group {
class GroupAccess;
}

class DDP_API ProcessGroup {
public:
    ProcessGroup(ProcessGroup&&) noexcept;
    ProcessGroup& operator=(ProcessGroup&&) noexcept;
    // Waits for what is in flight. Not collective: ranks may leave at different times. No other
    // thread may be in wait() of one of its Works, or come to it, meanwhile.
    ~ProcessGroup();

    int rank() const noexcept;         // in this group, from 0 on
    int size() const noexcept;         // ranks of it
    int local_rank() const noexcept;   // among those of this host
    int local_size() const noexcept;   // ranks of this host
    Shard shard() const noexcept;      // {rank, size}: what a sampler needs
    Device device() const noexcept;    // this rank's: its GPU, or of the CPU's (see device.hpp)
    Backend backend() const noexcept;  // never `automatic`
    std::chrono::milliseconds timeout() const noexcept;  // of each collective

    // How far this rank is, for ddp-launch: two stores, so call it each step. A rate of 0: unknown.
    void publish_progress(std::int64_t step, double steps_per_second = 0,
                          const CallSite& site = CallSite::here()) noexcept;

    // Replaces `tensor` on every rank by the element-wise reduction over all ranks, in place.
    // All ranks pass the same number of elements, dtype and op. Returns at once; the memory is
    // borrowed until the Work is done. Other collectives likewise.
    Work all_reduce(const TensorView& tensor, ReduceOp op = ReduceOp::sum, Stream stream = {},
                    const CallSite& site = CallSite::here());
    // Out of place, from `input` to `output`: same elements and dtype, maybe the same memory.
    Work all_reduce(const TensorView& input, const TensorView& output, ReduceOp op,
                    Stream stream = {}, const CallSite& site = CallSite::here());
    // One number a rank; blocks and returns the reduction. For losses and counts.
    template <TensorElement T>
    T all_reduce(T value, ReduceOp op = ReduceOp::sum, const CallSite& site = CallSite::here()) {
        all_reduce_number(TensorView{&value, Shape{}, dtype_of<T>()}, op, site);
        return value;
    }
    // Many tensors in one operation, in place: for small ones, whose latencies would add up.
    Work all_reduce_coalesced(std::span<const TensorView> tensors, ReduceOp op = ReduceOp::sum,
                              Stream stream = {}, const CallSite& site = CallSite::here());
    // The reduction for root alone; `output` (may be the input) is used on root only.
    Work reduce(const TensorView& input, const TensorView& output, Root root = {},
                ReduceOp op = ReduceOp::sum, Stream stream = {},
                const CallSite& site = CallSite::here());
    // Copies root's `tensor` to all ranks.
    Work broadcast(const TensorView& tensor, Root root = {}, Stream stream = {},
                   const CallSite& site = CallSite::here());
    Work broadcast_coalesced(std::span<const TensorView> tensors, Root root = {},
                             Stream stream = {}, const CallSite& site = CallSite::here());
    // `output`: size() times the elements of `input`, by rank. `input` may be this rank's part.
    Work all_gather(const TensorView& input, const TensorView& output, Stream stream = {},
                    const CallSite& site = CallSite::here());
    // Uneven: rank r gives counts[r] elements (0 is fine), one after the other in `output`.
    Work all_gather(const TensorView& input, const TensorView& output,
                    std::span<const std::size_t> counts, Stream stream = {},
                    const CallSite& site = CallSite::here());
    // As all_gather, but for root alone; `output` is used on root only.
    Work gather(const TensorView& input, const TensorView& output, Root root = {},
                Stream stream = {}, const CallSite& site = CallSite::here());
    // The reverse: rank r gets part r of root's `input`, which is used on root only.
    Work scatter(const TensorView& input, const TensorView& output, Root root = {},
                 Stream stream = {}, const CallSite& site = CallSite::here());
    // `input`: size() parts like `output`. Rank r gets part r, reduced; `output` may be that part.
    Work reduce_scatter(const TensorView& input, const TensorView& output,
                        ReduceOp op = ReduceOp::sum, Stream stream = {},
                        const CallSite& site = CallSite::here());
    // Part r of `input` goes to rank r, and part r of `output` comes from it. Distinct memory.
    Work all_to_all(const TensorView& input, const TensorView& output, Stream stream = {},
                    const CallSite& site = CallSite::here());
    Work all_to_all(const TensorView& input, const TensorView& output, const SplitSizes& sizes,
                    Stream stream = {}, const CallSite& site = CallSite::here());
    // Done when all ranks have started it.
    Work barrier(const CallSite& site = CallSite::here());

    // Point to point, beside the collectives and without order to them. The n-th send to a rank
    // meets its n-th recv from this one, of the same bytes. A batch is done when all of it is. On
    // GPUs all operations of a group are in one order: what waits for each other goes in one batch.
    Work send(const TensorView& tensor, Peer to, Stream stream = {},
              const CallSite& site = CallSite::here());
    Work recv(const TensorView& tensor, Peer from, Stream stream = {},
              const CallSite& site = CallSite::here());
    Work batch_send_recv(std::span<const P2POp> transfers, Stream stream = {},
                         const CallSite& site = CallSite::here());

    // Zeroed memory that collectives of this group need not copy (on shm: shared between the
    // ranks), of the CPU or of device(). Collective; blocks; the same shape and dtype on all ranks.
    // It may outlive the group. Throws SystemError, on every rank, when there is not enough.
    Tensor allocate(const Shape& shape, DType dtype, const Device& where = {},
                    const CallSite& site = CallSite::here());
    // The same for memory that there is: on shm its whole pages become shared ones, also with a
    // child of fork, at their addresses and with their bytes, until the last copy of the result is
    // gone: before the memory, and while nothing uses it, as now. Not a stack's, nor shared pages.
    std::shared_ptr<void> adopt(const TensorView& memory, const CallSite& site = CallSite::here());
    // Of some of the ranks, with this backend; between hosts, the best there. Collective; block.
    ProcessGroup split(const SplitOptions& options, const CallSite& site = CallSite::here());
    // The ranks in the order given, the same on all; nothing for a rank that is not among them.
    std::optional<ProcessGroup> new_group(std::span<const int> ranks,
                                          const CallSite& site = CallSite::here());

    class Impl;
    explicit ProcessGroup(std::unique_ptr<Impl>) noexcept;  // made by init_process_group

private:
    friend class process_group::GroupAccess;  // the library's own
    Work start_all_reduce(const TensorView& tensor, ReduceOp op, Stream stream,
                          const CallSite& site, std::chrono::nanoseconds* took);
    void all_reduce_number(const TensorView& number, ReduceOp op, const CallSite& site);  // blocks
    std::optional<ProcessGroup> split_by(std::int64_t color, std::int64_t key, const CallSite&);
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
