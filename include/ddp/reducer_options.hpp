// How a Reducer works, and what it measures. The names and defaults are those of PyTorch's
// DistributedDataParallel where it has them.
#pragma once

#include <ddp/comm_hook.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace ddp {

// For bucket_cap_mb: a few sizes are tried in the first steps, and the one with the shortest steps
// is kept (see Reducer::bucket_cap_mb).
inline constexpr double autotune = -1;

// All ranks pass the same, but for comm_hook and time_on_gpu, which are not compared.
struct ReducerOptions {  // designated initialisers come in this order
    // A bucket closes when it holds at least so many MiB; > 0, or `autotune`. The first one, which
    // is ready first, closes at first_bucket_mb so that communication starts early.
    double bucket_cap_mb = 25;
    double first_bucket_mb = 1;
    // True: gradients live in the buckets: construction moves Parameter::grad there (values are
    // kept), nothing is copied afterwards, and the memory it was in is the reducer's until that
    // ends. wait() names what the program still writes there, as far as it looks: in the first
    // three steps that send, at the first 16 bytes of each gradient, in CPU memory; later writes,
    // and those to other elements alone (some rows of an embedding), train on gradients that are no
    // averages without a word, which checksum_steps finds. False: memory that stays where it is;
    // gradients are copied in and out. Not set: false for a bare Reducer, whose program may have
    // pointers of its own; true for wrapped nets, which read Parameter::grad.
    std::optional<bool> gradient_as_bucket_view = {};
    // Gradients of float16 and bfloat16 are sent, and added, as float32, and rounded once when they
    // are averages; an optimiser with float32 weights reads Reducer::float32_average. A comm_hook
    // gets them as float32, and one that compresses narrows them again. Their buckets take twice
    // the memory and bytes, not counted in bucket_cap_mb. For gradients that stay where they are:
    // gradient_as_bucket_view is false then unless set, and refused if true; so are logical_ranks.
    bool reduce_in_float32 = false;
    // Backwards that do not reach every parameter: each tells what it leaves out (see
    // Reducer::start_backward). Buckets are then not put into order of arrival.
    bool find_unused_parameters = false;
    // Every backward is like the first: the same parameters, each marked ready as often as there
    // (a parameter used twice). The first one sends nothing before wait().
    bool static_graph = false;
    // DistributedDataParallel::forward copies rank 0's buffers to all ranks, unless the forward
    // before it was under no_sync.
    bool broadcast_buffers = true;
    // The run is that of so many ranks, whatever the size of the group: each rank does the share of
    // several, one backward after the other, and only the last of these sends. The same bits for
    // every size, unless a comm_hook rounds: it gets the sum of a rank's turns. A multiple of the
    // size by a power of two; 0: the size.
    std::size_t logical_ranks = 0;
    // Instead of the all-reduce.
    CommHook comm_hook = {};
    // Every so many steps, compare a checksum of all gradients and values over ranks, and throw a
    // UsageError that names the first parameter that differs; on a GPU also of what each rank has
    // launched there, in its order. 0: never.
    std::size_t checksum_steps = 0;
    // For a model on a GPU: statistics(), asked before the next backward, has its times of
    // communication, of two events a bucket, and waits for the step's end there.
    bool time_on_gpu = false;
};

// What the last step that sent gradients took on this rank. Of a model on a GPU these are what the
// host took to launch it, but with time_on_gpu communication, exposed and overlap are the GPU's.
struct StepStatistics {
    std::uint64_t step = 0;                    // counted from 1
    std::chrono::nanoseconds forward{};        // 0 without DistributedDataParallel
    std::chrono::nanoseconds backward{};       // from start_backward, without `exposed`
    std::chrono::nanoseconds communication{};  // of all buckets; 0 on a GPU, and with a comm_hook
    std::chrono::nanoseconds exposed{};        // of it, the part that wait() waited for
    double overlap = 0;                        // 1 - exposed / communication, between 0 and 1
    std::size_t buckets = 0;                   // sent
    std::size_t buckets_before_last_gradient = 0;  // sent while backward still computed
    std::size_t bytes = 0;                         // in them
};

// One line: {"step": 3, "forward_ns": ..., ...}.
DDP_API std::string to_json(const StepStatistics&);

}  // namespace ddp
