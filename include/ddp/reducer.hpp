// Reducer: averages gradients over ranks while backward still computes others. For a training loop
// of your own: raw pointers, no module. Source: PyTorch's c10d::Reducer (arXiv 2006.15704).
//
// Gradients are grouped into flat buckets in reverse order of registration; a bucket whose
// gradients are all ready starts its all-reduce, always in bucket order, so that ranks never
// disagree.
#pragma once

#include <ddp/export.hpp>
#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>

#include <cstddef>
#include <memory>
#include <span>

namespace ddp {

struct ReducerOptions {
    // A bucket closes when it holds at least so many MiB; must be > 0. The first one, which is
    // ready first, closes at first_bucket_mb so that communication starts early.
    double bucket_cap_mb = 25;
    double first_bucket_mb = 1;
    // Gradients live in the buckets: construction moves Parameter::grad there (values are kept) and
    // nothing is copied afterwards. False for memory that cannot move: gradients are copied in and
    // out.
    bool gradient_as_bucket_view = true;
};

class DDP_API Reducer {
    class Impl;

public:
    // Collective. Checks on every rank that all ranks hold the same parameters (count, names,
    // shapes, dtypes, devices), then copies rank 0's values to all. Borrows the parameters and the
    // group: both must outlive the reducer. Throws UsageError, on every rank, that names the first
    // differing parameter with both ranks' descriptions; UsageError for an empty name, a name used
    // twice, a gradient unlike its value; SystemError, on every rank, without memory for buckets.
    Reducer(std::span<Parameter> parameters, ProcessGroup& group,
            const ReducerOptions& options = {});
    // Waits for what is in flight. In views mode the gradients' memory goes with it:
    // Parameter::grad is pointed back at where it was before, values copied there.
    ~Reducer();
    Reducer(Reducer&&) noexcept;
    Reducer& operator=(Reducer&&) noexcept;

    // The gradient of this parameter is complete for this backward. Starts the all-reduce of each
    // bucket that is now complete, after the work already on `stream`. Never blocks. Throws
    // UsageError for an index out of range, and for the second call in one backward.
    void mark_ready(std::size_t parameter, Stream stream = {});
    // Ends the backward: afterwards (on `stream`) each gradient is the average over ranks. Blocks
    // for CPU memory. Throws UsageError that names the parameters whose gradient never came, and
    // what collectives throw.
    void wait(Stream stream = {});

    // While it lives, mark_ready and wait do nothing: gradients accumulate on this rank only. The
    // first backward after it sends the sum. All ranks must do the same.
    class [[nodiscard]] DDP_API NoSync {
    public:
        ~NoSync();
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        friend class Reducer;
        explicit NoSync(Impl& impl);
        Impl& impl_;
    };
    NoSync no_sync() { return NoSync{*impl_}; }  // UsageError when one lives already

    std::size_t num_buckets() const noexcept;

private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp
