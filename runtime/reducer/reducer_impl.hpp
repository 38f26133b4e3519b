// What a Reducer holds, of the backward under way and from step to step. All ranks start the same
// collectives in the same order whatever happens in a backward: a mistake waits until all are sent.
#pragma once

#include "backends/call_header.hpp"
#include "process_group/held_calls.hpp"
#include "reducer/backward_marks.hpp"
#include "reducer/bucket_sender.hpp"
#include "reducer/bucket_tuner.hpp"
#include "reducer/gradient_memory.hpp"
#include "reducer/logical_ranks.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/reducer.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp {

class Reducer::Impl {
public:
    Impl(std::span<Parameter> parameters, ProcessGroup& group, ReducerOptions options,
         RankState state);
    ~Impl();
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void start_forward(Stream stream);
    void start_backward(std::span<const std::size_t> unused, Stream stream);
    void mark_ready(std::size_t parameter, Stream stream);
    bool wait(Stream stream);
    void set_no_sync(bool on);
    void join(const std::function<void()>& train, const JoinOptions& options);
    void check_batches(std::size_t batches);

    Shard logical_rank() const;
    std::size_t num_buckets() const { return memory_->buckets().size(); }
    double bucket_cap_mb() const { return tuner_.bucket_cap_mb(); }
    bool is_tuned() const { return tuner_.is_tuned(); }
    std::vector<NamedTensor> state_dict();
    void load_state_dict();
    std::string describe() const;
    const StepStatistics& statistics() const { return statistics_; }
    bool was_averaged(std::size_t parameter) const;

private:
    using Clock = std::chrono::steady_clock;
    struct Progress {                  // of a bucket in this backward
        std::size_t missing = 0;       // gradients
        std::optional<Stream> stream;  // a GPU's: has all work on the gradients that came
        reducer::SentBucket sent;
        std::exception_ptr error;  // of making or sending it, for wait()
    };
    enum class Activity : std::uint8_t { none, trains, gives_buffers };  // trains, both of them
    struct Join {
        JoinOptions options;
        std::vector<Activity> active;  // by rank, in the last step in which any trained
    };

    void require_all_alive() const;
    bool will_send() const { return !no_sync_ && ranks_.is_last_turn(); }

    void abandon_backward();
    void require_start(const char* call, Stream stream);
    void exchange_used(std::span<const std::size_t> unused);
    void order(std::size_t bucket, Stream stream);
    void complete(std::size_t parameter, Stream stream);
    void keep(std::size_t parameter, Stream stream);
    void complete_the_rest(Stream stream);
    void hold_complete_buckets();
    void send_complete_buckets();
    void send(std::size_t bucket);
    Work fail_group(const std::exception_ptr& error);

    void end_turn();
    void synchronise(Stream stream);
    void learn_static_graph();
    void finish_bucket(std::size_t bucket, Stream stream);
    void compare_checksums();
    void reset_progress();
    void reset_backward();
    void measure(Clock::time_point backward_end, Clock::time_point done);

    bool gives_buffers() const;
    bool note_active(Activity activity);  // whether any rank trains
    Root first_active() const;
    void shadow_step();
    void take_model_from(int rank);

    std::span<Parameter> parameters_;
    ProcessGroup& group_;
    std::weak_ptr<backends::Backend> backend_;  // the group's
    process_group::HeldCallsOfReducer held_;
    backends::Source source_;  // of what this starts: reducer, and backward under way
    Device where_;             // parameters, gradients and buffers
    device::StreamOrder streams_;
    reducer::LogicalRanks ranks_;
    ReducerOptions options_;
    reducer::BucketTuner tuner_;
    std::optional<reducer::GradientMemory> memory_;
    reducer::BackwardMarks marks_;
    reducer::BucketSender sender_;

    bool no_sync_ = false;
    bool begun_ = false;  // start_backward has been called
    bool sends_ = false;  // this backward
    std::optional<Join> join_;
    bool shadow_ = false;  // this step is only the others'

    std::vector<Progress> progress_;         // by bucket
    std::size_t next_bucket_ = 0;            // the first one not yet sent
    std::exception_ptr failure_;             // of a bucket: no later one is sent
    std::vector<bool> complete_;             // by parameter
    std::vector<std::uint8_t> used_here_;    // by parameter, 0 or 1, since the last averages
    std::vector<std::uint8_t> used_before_;  // used_here_, when the backward under way began
    std::vector<std::uint8_t> used_;         // likewise, of all ranks; empty: all are
    Work used_work_;
    std::vector<reducer::KeptGradient> kept_;  // by parameter

    Clock::time_point forward_start_{};
    Clock::time_point backward_start_{};
    std::size_t sent_before_last_ = 0;  // buckets, when the last gradient came
    StepStatistics statistics_;
};

}  // namespace ddp
