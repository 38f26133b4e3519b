// What a Reducer holds from step to step, and how a step goes: forward, backward, averages. What
// belongs to one backward is in Backward, and to one join() in JoinSession.
#pragma once

#include "backends/call_header.hpp"
#include "process_group/group_access.hpp"
#include "reducer/agreement.hpp"
#include "reducer/backward.hpp"
#include "reducer/bucket_tuner.hpp"
#include "reducer/join_session.hpp"
#include "reducer/logical_ranks.hpp"

#include <ddp/reducer.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp {

// Invariant: all ranks start the same collectives in the same order whatever happens in a backward;
// a mistake waits until all buckets are sent.
class __attribute__((visibility("hidden"))) Reducer::Impl {
public:
    Impl(std::span<Parameter> parameters, ProcessGroup& group, const ReducerOptions& options,
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
    std::size_t num_buckets() const { return context_.memory->buckets().size(); }
    double bucket_cap_mb() const { return tuner_.bucket_cap_mb(); }
    bool is_tuned() const { return tuner_.is_tuned(); }
    std::vector<NamedTensor> state_dict();
    void load_state_dict();
    std::string describe() const;
    const StepStatistics& statistics() noexcept;
    void finish_in_flight();
    bool was_averaged(std::size_t parameter) const {
        return context_.used.is_used_globally(parameter);
    }
    TensorView float32_average(std::size_t parameter) const;

private:
    using Activity = reducer::JoinSession::Activity;
    using Backward = reducer::Backward;

    void require_all_alive() const;
    bool will_send() const { return !no_sync_ && ranks_.is_last(); }
    bool gives_buffers() const;

    void require_backward(const char* call, Stream stream);
    void begin_backward(Backward::Kind kind, std::span<const std::size_t> unused, Stream stream);
    const char* why_host_takes_part() const;
    void require_no_host(Stream stream) const;
    void abandon_backward();
    void finish_step(Stream stream);
    void start_over();
    void compare_checksums();

    bool note_join_step(Activity activity);  // whether any rank trains
    void shadow_step();
    void take_model_from_last_rank();

    reducer::LogicalRanks ranks_;
    reducer::BackwardContext context_;
    process_group::GroupObserver observer_;
    backends::Source source_;  // of collectives that this starts: reducer, and its last backward
    reducer::BucketTuner tuner_;
    bool no_sync_ = false;
    std::optional<reducer::JoinSession> join_;
    std::optional<Backward> backward_;  // the one under way
    reducer::LateMistakes late_mistakes_;
    std::chrono::steady_clock::time_point forward_start_{};
    StepStatistics statistics_;
};

}  // namespace ddp
