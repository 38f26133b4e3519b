// Brings one bucket to its average over ranks: which operation that is, starting it, and what is
// left to do when it is done.
#pragma once

#include "reducer/memory/gradient_memory.hpp"

#include <ddp/comm_hook.hpp>
#include <ddp/process_group.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

namespace ddp::reducer {

// A bucket in flight. Must not outlive the memory of its bucket. Invariant: what the operation
// writes to (`took`, what `then` owns) goes only after the operation has ended.
struct SentBucket {
    SentBucket() = default;
    explicit SentBucket(BucketWork work, std::unique_ptr<std::chrono::nanoseconds> time = nullptr)
        : took(std::move(time)), started(std::move(work)) {}
    SentBucket(SentBucket&&) = default;
    SentBucket& operator=(SentBucket&& other) noexcept {
        started.work = Work();
        took = std::move(other.took);
        started = std::move(other.started);
        return *this;
    }
    ~SentBucket() { started.work = Work(); }

    // How long the operation ran; written by the thread that runs it, before the work is done. Null
    // for a hook's.
    std::unique_ptr<std::chrono::nanoseconds> took;
    BucketWork started;
};

// In place, by the group's own all-reduce, after the work on the stream. Throws UsageError for
// integers on a GPU that are divided by anything but the group's size.
BucketWork start_average(const TensorView& tensor, ProcessGroup& group, std::size_t divisor,
                         Stream stream);

class BucketSender {
public:
    // `logical_ranks`: of the group; `own_logical_ranks`: of this rank.
    BucketSender(ProcessGroup& group, CommHook hook, std::size_t logical_ranks,
                 std::size_t own_logical_ranks)
        : group_(group),
          hook_(std::move(hook)),
          divisor_(logical_ranks),
          own_logical_ranks_(own_logical_ranks) {}

    // What sums are divided by from now on; set by join().
    void set_divisor(std::size_t divisor) { divisor_ = divisor; }

    // The factor that packing a bucket's gradients on a GPU may apply, so that a plain sum is the
    // average.
    double folded_factor(const BucketMemory& bucket) const;
    struct SendOptions {
        std::size_t index;
        bool is_last;
        bool folded = false;  // the gradients have been multiplied by folded_factor
    };
    // After the work on the stream.
    SentBucket send(const BucketMemory& bucket, SendOptions options, Stream stream);

private:
    BucketWork send_by_hook(const BucketMemory& bucket, SendOptions options, Stream stream);
    SentBucket all_reduce(const TensorView& tensor, ReduceOp op);
    SentBucket all_reduce_on_gpu(const TensorView& tensor, bool folded, Stream stream);

    ProcessGroup& group_;
    CommHook hook_;
    std::size_t divisor_;
    std::size_t own_logical_ranks_;
};

}  // namespace ddp::reducer
