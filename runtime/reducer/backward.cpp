#include "reducer/backward.hpp"

#include "process_group/call_source.hpp"
#include "process_group/group_access.hpp"
#include "tensor/device/trace_range.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>

namespace ddp::reducer {
namespace {

// "ddp bucket 2, 25.0 MiB", in the timeline of a profiler.
class BucketRange {
public:
    BucketRange(std::size_t index, const BucketMemory& bucket) {
        if (!bucket.is_on_gpu()) return;
        std::array<char, 64> name{};
        std::snprintf(name.data(), name.size(), "ddp bucket %zu, %.1f MiB", index,
                      static_cast<double>(bucket.bytes()) / (1 << 20));
        range_.emplace(name.data());
    }

private:
    std::optional<device::TraceRange> range_;
};

constexpr std::uint64_t watched_steps = 3;  // a program that uses old pointers does so at once

// The group's words say what moved; these, whose gradients.
std::string describe_loss(const PeerError& error, std::span<const Parameter> parameters,
                          const BucketMemory& bucket) {
    std::vector<std::size_t> which;
    for (const BucketSlice& slice : bucket.spec.slices) which.push_back(slice.parameter);
    return std::string(error.what()) + "; its part of the averages is missing, first of " +
           list_names(parameters, which) + advice_on_uneven_batches;
}

}  // namespace

BackwardContext::BackwardContext(std::span<Parameter> of, ProcessGroup& its_group,
                                 ReducerOptions its_options)
    : parameters(of),
      group(its_group),
      options(std::move(its_options)),
      model_device(device_of(of)),
      streams(model_device),
      sender(group, options.comm_hook, options.logical_ranks,
             options.logical_ranks / static_cast<std::size_t>(group.size())),
      marks(of, options.static_graph),
      used(of.size()) {
    if (options.time_on_gpu && model_device.type == DeviceType::cuda) times.emplace(model_device);
}

Backward::Backward(BackwardContext& context, Kind kind, backends::Source source)
    : context_(context),
      held_(process_group::GroupAccess(context.group).held_calls()),
      kind_(kind),
      source_(source) {
    held_.start_backward();
    context_.marks.start_backward();
    if (!sends()) return;
    const auto buckets = context_.memory->buckets();
    context_.buckets.resize(buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        context_.buckets[b].missing = buckets[b].spec.slices.size();
    }
    if (context_.times) context_.times->start(buckets.size());
    context_.complete.assign(context_.parameters.size(), false);
    context_.kept.resize(context_.parameters.size());
}

Backward::~Backward() {
    held_.take_back();
    if (!sends()) return;
    if (context_.times) context_.times->finish_in_flight();
    context_.buckets.clear();  // waits for what is in flight
    for (KeptGradient& kept : context_.kept) {
        kept.bytes = 0;
        // A GPU's memory takes long to get.
        if (context_.model_device.type == DeviceType::cpu) kept.memory = {};
    }
}

// A stream that waits for the times has let go of the host.
void Backward::finish_in_flight() noexcept {
    if (context_.times) context_.times->finish_in_flight();
    for (BucketProgress& progress : context_.buckets) progress.sent = SentBucket();
}

void Backward::start(std::span<const std::size_t> unused, Stream stream) {
    if (context_.options.find_unused_parameters) {
        context_.used.start_backward(unused);
        const process_group::SourceScope scope(source_);
        if (sends()) context_.used.exchange(context_.group);
    }
    if (!sends()) return;
    for (const std::size_t parameter : unused) {
        if (context_.marks.mark_unused(parameter)) complete(parameter, stream);
    }
    for (std::size_t p = 0; context_.options.static_graph && p < context_.parameters.size(); ++p) {
        if (context_.marks.is_never_used(p)) complete(p, stream);
    }
    hold_complete_buckets();
    if (!has_gradients()) context_.marks.mark_all();
}

void Backward::mark_ready(std::size_t parameter, Stream stream) {
    const bool is_complete = context_.marks.mark_ready(parameter);
    if (!sends()) return;
    if (held_.take_back()) send_complete_buckets();
    sent_before_last_gradient_ = next_bucket_;
    if (!is_complete) return order(context_.memory->bucket_of(parameter), stream);
    complete(parameter, stream);
    send_complete_buckets();
}

// Gradients of one bucket may come on several streams: the last one waits for the others.
void Backward::order(std::size_t bucket, Stream stream) {
    if (context_.model_device.type == DeviceType::cpu) return;
    BucketProgress& progress = context_.buckets[bucket];
    if (progress.stream) context_.streams.put_after(*progress.stream, stream);
    progress.stream = stream;
}

void Backward::complete(std::size_t parameter, Stream stream) {
    order(context_.memory->bucket_of(parameter), stream);
    context_.complete[parameter] = true;
    const bool in_place = context_.memory->is_in_place(parameter);
    if (!in_place && has_gradients()) {
        context_.marks.add_mistake(
            "the gradient of " + context_.parameters[parameter].name +
            " is no longer where the reducer has put it, or of another size: " +
            to_string(context_.parameters[parameter].grad.shape) +
            "; use Parameter::grad as it is, or set gradient_as_bucket_view to "
            "false for memory that cannot move");
    }
    if (has_gradients() && in_place) context_.memory->copy_in(parameter);
    const bool used = context_.options.find_unused_parameters
                          ? context_.used.is_used_locally(parameter)
                          : !context_.marks.is_never_used(parameter);
    BucketProgress& progress = context_.buckets[context_.memory->bucket_of(parameter)];
    try {
        if (!used && in_place) keep(parameter, stream);
    } catch (...) {  // no memory on the GPU
        progress.error = std::current_exception();
    }
    --progress.missing;
}

void Backward::keep(std::size_t parameter, Stream stream) {
    const TensorView& grad = context_.parameters[parameter].grad;
    KeptGradient& kept = context_.kept[parameter];
    kept.bytes = grad.bytes();
    device::copy(context_.model_device, kept.memory.reserve(context_.model_device, kept.bytes),
                 grad.data, kept.bytes, stream);
}

void Backward::complete_the_rest(Stream stream) {
    held_.take_back();
    for (std::size_t p = 0; p < context_.parameters.size(); ++p) {
        if (!context_.complete[p]) complete(p, stream);
    }
    send_complete_buckets();
}

// Where other ranks use the first buckets, they go after what the program does until then.
void Backward::hold_complete_buckets() {
    if (context_.buckets.empty() || context_.buckets.front().missing > 0) return;
    const bool has_none = std::ranges::find(context_.complete, false) == context_.complete.end();
    held_.hold(has_none, [this] { send_complete_buckets(); });
}

// In bucket order, so that all ranks start the same all-reduces in the same order; also a bucket
// that has no gradient here, or anywhere.
void Backward::send_complete_buckets() {
    for (; next_bucket_ < context_.buckets.size() && context_.buckets[next_bucket_].missing == 0;
         ++next_bucket_) {
        send(next_bucket_);
    }
}

// An exception (of a hook, or of a group that has failed) is for wait(). It ends the group: the
// others cannot go on.
void Backward::send(std::size_t bucket) {
    held_.release_earlier();
    const auto buckets = context_.memory->buckets();
    const BucketRange range(bucket, buckets[bucket]);
    BucketProgress& progress = context_.buckets[bucket];
    const Stream stream = progress.stream.value_or(Stream{});
    BucketSender::SendOptions options{bucket, bucket + 1 == buckets.size()};
    const process_group::SourceScope scope(
        {source_.reducer, source_.backward, static_cast<std::uint32_t>(bucket + 1)});
    try {
        if (failure_) std::rethrow_exception(failure_);
        if (progress.error) std::rethrow_exception(progress.error);
        if (context_.times) context_.times->note_ready(bucket, stream);
        if (context_.memory->packs(buckets[bucket])) {
            const double factor = context_.sender.folded_factor(buckets[bucket]);
            if (has_gradients()) context_.memory->pack(buckets[bucket], factor, stream);
            options.folded = factor != 1;
        }
        progress.sent = context_.sender.send(buckets[bucket], options, stream);
        if (context_.times) context_.times->note_sent(bucket, progress.sent.started.work);
    } catch (...) {
        progress.error = std::current_exception();
        if (!failure_) progress.sent.started.work = fail_group(progress.error);
        failure_ = progress.error;
    }
}

// As an operation that fails with this error. A GPU's next collective would not wait for it.
Work Backward::fail_group(const std::exception_ptr& error) {
    try {
        Work failing = process_group::GroupAccess(context_.group).start_failing(error);
        if (context_.model_device.type == DeviceType::cpu) return failing;
    } catch (const std::exception&) {  // it has failed already
    }
    return {};
}

void Backward::finish(std::uint64_t step, Stream stream) {
    end_time_ = Clock::now();
    const bool learns = context_.options.static_graph && !context_.used.knows_globally_used();
    context_.marks.end_backward();
    if (learns) learn_static_graph();
    if (step <= watched_steps) {
        context_.marks.add_mistake(context_.memory->find_written_at_old_address());
    }
    complete_the_rest(stream);
    held_.release_without_gradients();
    if (context_.times) note_computed(stream);
    for (std::size_t b = 0; b < context_.buckets.size(); ++b) finish_bucket(b, stream);
    if (context_.times) context_.times->note_averaged(stream);
    context_.used.wait();
}

void Backward::note_computed(Stream stream) {
    for (const BucketProgress& progress : context_.buckets) {
        if (progress.stream) context_.streams.put_after(*progress.stream, stream);
    }
    context_.times->note_computed(stream);
}

// Which parameters the graph reaches on any rank; and how often, for a rank that has not seen it.
void Backward::learn_static_graph() {
    std::vector<std::int32_t> marks(context_.parameters.size(), 0);
    for (std::size_t p = 0; p < context_.parameters.size() && has_gradients(); ++p) {
        marks[p] = static_cast<std::int32_t>(context_.marks.marks(p));
    }
    if (context_.group.size() > 1) context_.group.all_reduce(marks, ReduceOp::max).wait();
    if (!has_gradients()) context_.marks.learn(marks);
    std::vector<std::uint8_t> used_globally;
    used_globally.reserve(marks.size());
    for (const std::int32_t count : marks) used_globally.push_back(count > 0 ? 1 : 0);
    context_.used.learn(std::move(used_globally));
}

void Backward::finish_bucket(std::size_t bucket, Stream stream) {
    BucketProgress& progress = context_.buckets[bucket];
    if (progress.stream) context_.streams.put_after(*progress.stream, stream);
    BucketWork& started = progress.sent.started;
    if (progress.error) std::rethrow_exception(progress.error);
    try {
        started.work.wait(stream);
    } catch (const PeerError& error) {
        throw PeerError(error.rank(), describe_loss(error, context_.parameters,
                                                    context_.memory->buckets()[bucket]));
    }
    try {
        if (started.then) started.then(stream);
    } catch (...) {
        started.work = fail_group(std::current_exception());
        throw;
    }
    context_.used.wait();
    const BucketMemory& memory = context_.memory->buckets()[bucket];
    if (context_.memory->packs(memory)) context_.memory->unpack(memory, stream);
    for (const BucketSlice& slice : memory.spec.slices) {
        const std::size_t p = slice.parameter;
        if (!context_.memory->is_in_place(p)) continue;
        context_.memory->copy_out(p);
        if (context_.kept[p].bytes > 0 && !context_.used.is_used_globally(p)) {
            device::copy(context_.model_device, context_.parameters[p].grad.data,
                         context_.kept[p].memory.data(), context_.kept[p].bytes, stream);
        }
    }
}

StepStatistics Backward::measure(std::uint64_t step) const {
    StepStatistics now{.step = step};
    now.backward = end_time_ - start_time_;
    now.exposed = Clock::now() - end_time_;
    const auto buckets = context_.memory->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        ++now.buckets;
        if (b < sent_before_last_gradient_) ++now.buckets_before_last_gradient;
        now.bytes += buckets[b].bytes();
        const SentBucket& sent = context_.buckets[b].sent;
        if (sent.took) now.communication += *sent.took;
    }
    if (now.communication.count() > 0) {
        const auto share = static_cast<double>(now.exposed.count()) /
                           static_cast<double>(now.communication.count());
        now.overlap = std::clamp(1 - share, 0.0, 1.0);
    }
    return now;
}

}  // namespace ddp::reducer
