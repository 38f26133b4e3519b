// Communication hooks: what a Reducer does with a full bucket instead of all-reducing it. Source:
// torch.distributed.algorithms.ddp_comm_hooks.
#pragma once

#include <ddp/export.hpp>
#include <ddp/process_group.hpp>
#include <ddp/stream.hpp>
#include <ddp/tensor.hpp>
#include <ddp/work.hpp>

#include <cstddef>
#include <functional>
#include <span>

namespace ddp {

// One full bucket, as a hook sees it.
struct GradBucket {
    // The gradients of one dtype, one after the other, padding between them; with reduce_in_float32
    // float32 for those of 16 bits. What the hook leaves here is every parameter's gradient. Stays
    // where it is until the hook's work is done.
    TensorView buffer;
    std::size_t index = 0;                    // buckets go in this order, the same on all ranks
    bool is_last = false;                     // of this backward
    std::span<const std::size_t> parameters;  // whose gradients these are; valid during the call
    // What sums are to be divided by for an average: the number of ranks, of logical ranks, or of
    // ranks that still have input under join().
    std::size_t divisor = 1;
};

// Communication that a hook has started.
struct BucketWork {
    Work work;
    // What is left to do once it is done; may block. On a GPU it is put on the stream, which is
    // Reducer::wait's and has been made to wait for the work.
    std::function<void(Stream)> then = {};
};

// Called when a bucket is full, in bucket order, from the thread that called mark_ready (or wait):
// starts the communication and returns it. Reducer::wait waits for it and calls `then`, also in
// bucket order. Every rank must start the same operations. A hook must leave the same bits on all
// ranks, divided by bucket.divisor if averages are wanted: the reducer does not divide. What it
// throws comes out of Reducer::wait on its rank; the group is failed, so the other ranks get a
// PeerError.
using CommHook = std::function<BucketWork(GradBucket&, ProcessGroup&, Stream)>;

// What a reducer does without a hook, as a hook.
DDP_API CommHook all_reduce_hook();
// Half the bytes: each rank's gradients are divided, rounded to a half type, summed (on the CPU in
// float32, rounded once; on GPUs as NCCL adds halves) and widened again. On a GPU they keep memory
// of half a bucket for each bucket; such a hook serves one reducer. For floating-point gradients of
// 32 or 64 bits; others are sent as they are. bfloat16 keeps float32's range; in float16 gradients
// beyond 65504 become infinite.
DDP_API CommHook fp16_compress_hook();
DDP_API CommHook bf16_compress_hook();

}  // namespace ddp
