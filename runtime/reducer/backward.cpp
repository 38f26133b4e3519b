// One backward of a Reducer: from the first mark to the averages.
#include "reducer/reducer_impl.hpp"

#include "base/log.hpp"
#include "process_group/call_source.hpp"
#include "process_group/process_group_impl.hpp"
#include "reducer/agreement.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <utility>

namespace ddp {

using reducer::BucketMemory;
using reducer::BucketSlice;

namespace {
constexpr std::uint64_t watched_steps = 3;  // a program that uses old pointers does so at once

// The group's words say what moved; these, whose gradients.
std::string describe_loss(const PeerError& error, std::span<const Parameter> parameters,
                          const BucketMemory& bucket) {
    std::vector<std::size_t> which;
    for (const BucketSlice& slice : bucket.spec.slices) which.push_back(slice.parameter);
    return std::string(error.what()) + "; its part of the averages is missing, first of " +
           reducer::list_names(parameters, which) + reducer::advice_on_uneven_batches;
}

}  // namespace

void Reducer::Impl::start_backward(std::span<const std::size_t> unused, Stream stream) {
    for (const std::size_t parameter : unused) {
        if (parameter < parameters_.size()) continue;
        throw UsageError("reducer: parameter " + std::to_string(parameter) +
                         " was said to be unused; there are " + std::to_string(parameters_.size()));
    }
    if (!unused.empty() && !options_.find_unused_parameters) {
        throw UsageError(
            "reducer: start_backward() was told of unused parameters; set "
            "find_unused_parameters in the options, on all ranks");
    }
    require_all_alive();
    if (begun_) abandon_backward();
    backward_start_ = Clock::now();
    begun_ = true;
    sends_ = will_send();
    held_.take_turn();
    if (sends_) ++source_.backward;
    ranks_.start_backward(*memory_);
    if (options_.find_unused_parameters) exchange_used(unused);
    if (!sends_) return;
    for (const std::size_t parameter : unused) {
        if (marks_.mark_unused(parameter)) complete(parameter, stream);
    }
    for (std::size_t p = 0; options_.static_graph && p < parameters_.size(); ++p) {
        if (marks_.is_never_used(p)) complete(p, stream);
    }
    hold_complete_buckets();
}

// A backward that an exception has ended, for another in its place. Gradients that were to be sent
// cannot be told from those of the next; those that were to stay here are as if it had ended.
void Reducer::Impl::abandon_backward() {
    const bool is_one_of_many = sends_ || ranks_.count() > 1;
    if (next_bucket_ > 0 || (is_one_of_many && marks_.any())) {
        throw UsageError(
            "reducer: start_backward() in the middle of a backward; call wait() first, also after "
            "an exception: all ranks then hear that it did not come to its end");
    }
    used_here_ = used_before_;
    for (std::size_t p = 0; p < used_here_.size(); ++p) {
        if (marks_.marks(p) > 0) used_here_[p] = 1;
    }
    used_work_ = Work();
    reset_progress();
    begun_ = false;
}

// A parameter used in any backward since the last averages has a gradient to send.
void Reducer::Impl::exchange_used(std::span<const std::size_t> unused) {
    used_before_ = used_here_;
    std::vector<bool> is_unused(parameters_.size(), false);
    for (const std::size_t parameter : unused) is_unused[parameter] = true;
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        if (!is_unused[p] && !shadow_) used_here_[p] = 1;
    }
    if (!sends_) return;
    used_ = used_here_;
    const process_group::SourceScope scope(source_);
    if (group_.size() > 1) used_work_ = group_.all_reduce(used_, ReduceOp::max);
}

// no_sync that has begun or ended meanwhile belongs to the next backward: the one under way was
// abandoned.
void Reducer::Impl::require_start(const char* call, Stream stream) {
    if (begun_ && sends_ == will_send()) return;
    if (ranks_.count() > 1) {
        throw UsageError(std::string("reducer: ") + call +
                         " without start_backward(); with logical_ranks it is needed before each "
                         "backward");
    }
    start_backward({}, stream);
}

void Reducer::Impl::mark_ready(std::size_t parameter, Stream stream) {
    if (parameter >= parameters_.size()) {
        throw UsageError("reducer: parameter " + std::to_string(parameter) +
                         " was marked ready; there are " + std::to_string(parameters_.size()));
    }
    require_all_alive();
    require_start("mark_ready()", stream);
    const bool is_complete = marks_.mark_ready(parameter);
    if (!sends_) return;
    if (held_.take_back()) send_complete_buckets();
    sent_before_last_ = next_bucket_;
    if (!is_complete) return order(memory_->bucket_of(parameter), stream);
    complete(parameter, stream);
    send_complete_buckets();
}

// Gradients of one bucket may come on several streams: the last one waits for the others.
void Reducer::Impl::order(std::size_t bucket, Stream stream) {
    if (where_.type == DeviceType::cpu) return;
    Progress& progress = progress_[bucket];
    if (progress.stream) streams_.put_after(*progress.stream, stream);
    progress.stream = stream;
}

void Reducer::Impl::complete(std::size_t parameter, Stream stream) {
    order(memory_->bucket_of(parameter), stream);
    complete_[parameter] = true;
    const bool in_place = memory_->is_in_place(parameter);
    if (!in_place && !shadow_) {
        marks_.add_mistake("the gradient of " + parameters_[parameter].name +
                           " is no longer where the reducer has put it, or of another size: " +
                           to_string(parameters_[parameter].grad.shape) +
                           "; use Parameter::grad as it is, or set gradient_as_bucket_view to "
                           "false for memory that cannot move");
    }
    if (!shadow_ && in_place) memory_->copy_in(parameter);
    const bool used = options_.find_unused_parameters ? used_here_[parameter] != 0
                                                      : !marks_.is_never_used(parameter);
    Progress& progress = progress_[memory_->bucket_of(parameter)];
    try {
        if (!used && in_place) keep(parameter, stream);
    } catch (...) {  // no memory on the GPU
        progress.error = std::current_exception();
    }
    --progress.missing;
}

void Reducer::Impl::keep(std::size_t parameter, Stream stream) {
    const TensorView& grad = parameters_[parameter].grad;
    reducer::KeptGradient& kept = kept_[parameter];
    kept.bytes = grad.bytes();
    device::copy(where_, kept.memory.reserve(where_, kept.bytes), grad.data, kept.bytes, stream);
}

void Reducer::Impl::complete_the_rest(Stream stream) {
    held_.take_back();
    for (std::size_t p = 0; p < parameters_.size(); ++p) {
        if (!complete_[p]) complete(p, stream);
    }
    send_complete_buckets();
}

// Where other ranks use the first buckets, they go after what the program does until then.
void Reducer::Impl::hold_complete_buckets() {
    if (progress_.empty() || progress_.front().missing > 0) return;
    const bool is_silent = std::ranges::find(complete_, false) == complete_.end();
    held_.hold(is_silent, [this] { send_complete_buckets(); });
}

// In bucket order, so that all ranks start the same all-reduces in the same order; also a bucket
// that is unused here, or everywhere, in its turn.
void Reducer::Impl::send_complete_buckets() {
    for (; next_bucket_ < progress_.size() && progress_[next_bucket_].missing == 0;
         ++next_bucket_) {
        send(next_bucket_);
    }
}

// An exception (of a hook, or of a group that has failed) is for wait(). It ends the group: the
// others cannot go on.
void Reducer::Impl::send(std::size_t bucket) {
    held_.release_earlier();
    const auto buckets = memory_->buckets();
    Progress& progress = progress_[bucket];
    const Stream stream = progress.stream.value_or(Stream{});
    reducer::BucketSender::Turn turn{bucket, bucket + 1 == buckets.size()};
    const process_group::SourceScope scope(
        {source_.reducer, source_.backward, static_cast<std::uint32_t>(bucket + 1)});
    try {
        if (failure_) std::rethrow_exception(failure_);
        if (progress.error) std::rethrow_exception(progress.error);
        if (memory_->packs(buckets[bucket])) {
            const double factor = sender_.folded_factor(buckets[bucket]);
            if (!shadow_) memory_->pack(buckets[bucket], factor, stream);
            turn.folded = factor != 1;
        }
        progress.sent = sender_.send(buckets[bucket], turn, stream);
    } catch (...) {
        progress.error = std::current_exception();
        if (!failure_) progress.sent.started.work = fail_group(progress.error);
        failure_ = progress.error;
    }
}

// As an operation that fails with this error. A GPU's next collective would not wait for it.
Work Reducer::Impl::fail_group(const std::exception_ptr& error) {
    try {
        Work failing = group_.impl().start(
            {}, [error](backends::Backend&, std::uint64_t, const base::Deadline&) {
                std::rethrow_exception(error);
            });
        if (where_.type == DeviceType::cpu) return failing;
    } catch (const std::exception&) {  // it has failed already
    }
    return {};
}

bool Reducer::Impl::wait(Stream stream) {
    require_all_alive();
    if (!begun_ || !marks_.any()) require_start("wait()", stream);
    const process_group::SourceScope scope(source_);
    if (!sends_) {
        end_turn();
        return false;
    }
    try {
        synchronise(stream);
        tuner_.order_by_arrival(marks_, *memory_, stream);
        tuner_.add_step(statistics_.backward + statistics_.exposed, *memory_, stream);
    } catch (...) {
        reset_backward();
        throw;
    }
    reset_backward();
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("reducer", to_json(statistics_) + "\n" + describe());
    }
    compare_checksums();
    return true;
}

void Reducer::Impl::synchronise(Stream stream) {
    const auto backward_end = Clock::now();
    const bool learns = options_.static_graph && used_.empty();
    marks_.end_backward();
    if (learns) learn_static_graph();
    if (statistics_.step < watched_steps) {
        marks_.add_mistake(memory_->find_written_at_old_place());
    }
    complete_the_rest(stream);
    held_.release_silent();
    for (std::size_t b = 0; b < progress_.size(); ++b) finish_bucket(b, stream);
    used_work_.wait();
    if (!tuner_.is_tuned()) device::finish(where_, stream);
    measure(backward_end, Clock::now());
    reducer::throw_if_any(marks_.mistake(), group_);
}

// Which parameters the graph reaches on any rank; and how often, for a rank that has not seen it.
void Reducer::Impl::learn_static_graph() {
    std::vector<std::int32_t> marks(parameters_.size(), 0);
    for (std::size_t p = 0; p < parameters_.size() && !shadow_; ++p) {
        marks[p] = static_cast<std::int32_t>(marks_.marks(p));
    }
    if (group_.size() > 1) group_.all_reduce(marks, ReduceOp::max).wait();
    if (shadow_) marks_.learn(marks);
    used_.clear();
    for (const std::int32_t count : marks) used_.push_back(count > 0 ? 1 : 0);
}

void Reducer::Impl::finish_bucket(std::size_t bucket, Stream stream) {
    Progress& progress = progress_[bucket];
    if (progress.stream) streams_.put_after(*progress.stream, stream);
    BucketWork& started = progress.sent.started;
    if (progress.error) std::rethrow_exception(progress.error);
    try {
        started.work.wait(stream);
    } catch (const PeerError& error) {
        throw PeerError(error.rank(),
                        describe_loss(error, parameters_, memory_->buckets()[bucket]));
    }
    try {
        if (started.then) started.then(stream);
    } catch (...) {
        started.work = fail_group(std::current_exception());
        throw;
    }
    used_work_.wait();
    const BucketMemory& memory = memory_->buckets()[bucket];
    for (const BucketSlice& slice : memory.spec.slices) {
        const std::size_t p = slice.parameter;
        if (!memory_->is_in_place(p)) continue;
        if (kept_[p].bytes > 0 && used_[p] == 0) {
            device::copy(where_, memory_->bucket_part(p), kept_[p].memory.data(), kept_[p].bytes,
                         stream);
        }
        memory_->copy_out(p);
    }
    if (memory_->packs(memory)) memory_->unpack(memory, stream);
}

void Reducer::Impl::measure(Clock::time_point backward_end, Clock::time_point done) {
    StepStatistics now{.step = statistics_.step + 1};
    const bool had_forward = forward_start_ != Clock::time_point{};
    if (had_forward) now.forward = backward_start_ - forward_start_;
    forward_start_ = {};
    now.backward = backward_end - backward_start_;
    now.exposed = done - backward_end;
    const auto buckets = memory_->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        ++now.buckets;
        if (b < sent_before_last_) ++now.buckets_before_last_gradient;
        now.bytes += buckets[b].bytes();
        if (progress_[b].sent.took) now.communication += *progress_[b].sent.took;
    }
    if (now.communication.count() > 0) {
        const auto share = static_cast<double>(now.exposed.count()) /
                           static_cast<double>(now.communication.count());
        now.overlap = std::clamp(1 - share, 0.0, 1.0);
    }
    statistics_ = now;
}

}  // namespace ddp
