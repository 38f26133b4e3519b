// One backward of a Reducer, made new for each: from start_backward(), or from the first
// mark_ready() or wait() without it, to the end of wait(). With several logical ranks a rank,
// mark_ready() and wait() without start_backward() throw UsageError. "It" below is the backward.
//
//   so far in this backward        start_backward()   no_sync() begins   wait()
//   nothing marked, nothing sent   abandons it        allowed (1)        ends it
//   marked or sent, it sends       UsageError         UsageError         ends it, averages
//   marked, it accumulates         abandons it (2)    allowed (1)        ends it, no averages
//
//   mark_ready() is allowed in all of them.
//   (1) Whether a backward sends is settled when it starts. Where no_sync() has begun or ended
//       since, the next mark_ready() abandons it and starts another; so does wait() where nothing
//       is marked.
//   (2) UsageError with several logical ranks a rank, each of whose backwards must come to its end.
//
// An abandoned backward has sent no bucket, and no gradient of it was to be sent. Gradients that it
// marked stay as if it had ended; what it said of unused parameters is forgotten.
#pragma once

#include "backends/call_header.hpp"
#include "process_group/held_calls.hpp"
#include "reducer/backward_marks.hpp"
#include "reducer/bucket_sender.hpp"
#include "reducer/gpu_times.hpp"
#include "reducer/memory/gradient_memory.hpp"
#include "reducer/used_parameters.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/parameter.hpp>
#include <ddp/reducer_options.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

namespace ddp::reducer {

// Of a bucket in one backward.
struct BucketProgress {
    std::size_t missing = 0;       // gradients
    std::optional<Stream> stream;  // a GPU's: has all work on the gradients that came
    SentBucket sent;
    std::exception_ptr error;  // of making or sending it, for wait()
};

// What all backwards of one reducer share. Invariant: it outlives each of them, and at most one
// Backward uses it at a time. The lists at the end belong to that one; they are kept here so that
// the next finds their memory and a step allocates none.
struct BackwardContext {
    // `memory` is for the caller to make, before the first backward.
    BackwardContext(std::span<Parameter> parameters, ProcessGroup& group, ReducerOptions options);

    std::span<Parameter> parameters;
    ProcessGroup& group;
    ReducerOptions options;  // logical_ranks is not 0
    Device model_device;     // of parameters, gradients and buffers
    device::StreamOrder streams;
    std::optional<GradientMemory> memory;
    std::optional<GpuTimes> times;  // asked for, on a GPU
    BucketSender sender;
    BackwardMarks marks;
    UsedParameters used;

    std::vector<BucketProgress> buckets;
    std::vector<bool> complete;      // by parameter
    std::vector<KeptGradient> kept;  // by parameter
};

// Invariant: buckets are sent in their order, each once and only when all of its gradients are
// complete, so that all ranks start the same collectives; whatever goes wrong waits until all are
// sent, and finish() throws it.
class Backward {
public:
    enum class Kind : std::uint8_t {
        accumulates,  // sends nothing: no_sync(), or not the last logical rank of this rank
        sends,
        shadows,  // sends zeros: the step of other ranks, in join() after this rank's last batch
    };

    // `source` is what this backward's collectives carry.
    Backward(BackwardContext& context, Kind kind, backends::Source source);
    ~Backward();  // waits for what is in flight
    Backward(const Backward&) = delete;
    Backward& operator=(const Backward&) = delete;

    // To be called once, first. As Reducer::start_backward.
    void start(std::span<const std::size_t> unused, Stream stream);
    void mark_ready(std::size_t parameter, Stream stream);
    // Sends what is left, waits for all buckets and leaves the averages on `stream`. `step` counts
    // the backwards that send, from 1. Throws what went wrong here, but not the mistakes of marks.
    void finish(std::uint64_t step, Stream stream);
    // After finish(): what it took, until now, but for the forward.
    StepStatistics measure(std::uint64_t step) const;

    // Without its end: what has been sent.
    void finish_in_flight() noexcept;

    bool sends() const noexcept { return kind_ != Kind::accumulates; }
    bool has_sent() const noexcept { return next_bucket_ > 0; }
    std::chrono::steady_clock::time_point start_time() const noexcept { return start_time_; }

private:
    using Clock = std::chrono::steady_clock;

    bool has_gradients() const noexcept { return kind_ != Kind::shadows; }
    void order(std::size_t bucket, Stream stream);
    void complete(std::size_t parameter, Stream stream);
    void keep(std::size_t parameter, Stream stream);
    void complete_the_rest(Stream stream);
    void hold_complete_buckets();
    void send_complete_buckets();
    void send(std::size_t bucket);
    Work fail_group(const std::exception_ptr& error);
    void note_computed(Stream stream);
    void learn_static_graph();
    void finish_bucket(std::size_t bucket, Stream stream);

    BackwardContext& context_;
    process_group::HeldCallsOfReducer held_;
    Kind kind_;
    backends::Source source_;
    std::size_t next_bucket_ = 0;                // the first one not yet sent
    std::exception_ptr failure_;                 // of a bucket: no later one is sent
    std::size_t sent_before_last_gradient_ = 0;  // buckets
    Clock::time_point start_time_ = Clock::now();
    Clock::time_point end_time_{};  // of the gradients' computation, when finish() was called
};

}  // namespace ddp::reducer
