// A Reducer's steps, and its public face.
#include "reducer/reducer_impl.hpp"

#include "base/log.hpp"
#include "process_group/call_source.hpp"
#include "process_group/group_access.hpp"
#include "reducer/logical_sum.hpp"
#include "reducer/parameter_check.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <iterator>
#include <numeric>
#include <utility>

namespace ddp {
namespace {

ReducerOptions with_logical_ranks(ReducerOptions options, const ProcessGroup& group) {
    if (options.logical_ranks == 0) {
        options.logical_ranks = static_cast<std::size_t>(group.size());
    }
    return options;
}

// A GPU's after all its work.
void broadcast_values(std::span<const Parameter> parameters, ProcessGroup& group) {
    device::finish_all(reducer::device_of(parameters));
    std::vector<Work> works;
    works.reserve(parameters.size());
    for (const Parameter& parameter : parameters) {
        works.push_back(group.broadcast(parameter.value, Root{0}, {}, CallSite{}));
    }
    for (Work& work : works) work.wait();
}

// Where a net has buffers, a forward is what meets the loss of a rank first.
void broadcast_buffers(const std::vector<TensorView>& buffers, Root root, ProcessGroup& group,
                       Stream stream) {
    try {
        group.broadcast_coalesced(buffers, root, stream, CallSite{}).wait(stream);
    } catch (const PeerError& error) {
        throw PeerError(error.rank(), std::string(error.what()) + "; this forward lacks rank " +
                                          std::to_string(root.rank) + "'s buffers" +
                                          reducer::advice_on_uneven_batches);
    }
}

}  // namespace

Reducer::Impl::Impl(std::span<Parameter> parameters, ProcessGroup& group,
                    const ReducerOptions& options, RankState state)
    : ranks_(group, options, std::move(state)),
      context_(parameters, group, with_logical_ranks(options, group)),
      observer_(group),
      source_{.reducer = process_group::GroupAccess(group).next_reducer_number()},
      tuner_(parameters, group, options) {
    reducer::check_parameters(parameters, ranks_.named_buffers(), group, context_.options);
    broadcast_values(parameters, group);
    context_.memory.emplace(
        parameters, group,
        reducer::GradientMemoryOptions{options.gradient_as_bucket_view.value_or(false),
                                       options.reduce_in_float32, ranks_.count(), tuner_.caps()});
    ranks_.register_in_group();
}

// An exception that ends a backward goes through here: nobody must wait for the rest of it.
Reducer::Impl::~Impl() {
    const bool is_abandoned = backward_ && backward_->sends() && std::uncaught_exceptions() > 0;
    if (is_abandoned && context_.model_device.type == DeviceType::cpu) observer_.fail();
}

void Reducer::Impl::require_all_alive() const {
    if (!context_.memory->has_parameters()) {
        throw UsageError(
            "reducer: parameters were destroyed (or moved, by a vector that grew) before the "
            "reducer; keep them where they are, and destroy the reducer first");
    }
    if (!observer_.is_alive()) {
        throw UsageError("reducer: its process group was destroyed; destroy the reducer first");
    }
}

void Reducer::Impl::start_forward(Stream stream) {
    require_all_alive();
    forward_start_ = std::chrono::steady_clock::now();
    const process_group::SourceScope scope(source_);
    ranks_.start_forward();
    if (no_sync_) return;
    if (join_) note_join_step(gives_buffers() ? Activity::gives_buffers : Activity::trains);
    if (!gives_buffers()) return;
    const Root root = join_ ? join_->first_that_trains() : Root{0};
    if (context_.group.size() > 1)
        broadcast_buffers(ranks_.buffers(), root, context_.group, stream);
    ranks_.share_buffers();
}

bool Reducer::Impl::gives_buffers() const {
    return ranks_.is_at_start() && context_.options.broadcast_buffers &&
           !ranks_.named_buffers().empty();
}

Shard Reducer::Impl::logical_rank() const {
    require_all_alive();
    return ranks_.current();
}

void Reducer::Impl::set_no_sync(bool on) {
    if (on) require_all_alive();
    if (on && no_sync_) {
        throw UsageError("reducer: no_sync() while another no_sync() guard lives; one is enough");
    }
    if (on && backward_ && backward_->sends() && (context_.marks.any() || backward_->has_sent())) {
        throw UsageError("reducer: no_sync() in the middle of a backward; call wait() first");
    }
    no_sync_ = on;
}

void Reducer::Impl::start_backward(std::span<const std::size_t> unused, Stream stream) {
    const std::size_t parameters = context_.parameters.size();
    for (const std::size_t parameter : unused) {
        if (parameter < parameters) continue;
        throw UsageError("reducer: parameter " + std::to_string(parameter) +
                         " was said to be unused; there are " + std::to_string(parameters));
    }
    if (!unused.empty() && !context_.options.find_unused_parameters) {
        throw UsageError(
            "reducer: start_backward() was told of unused parameters; set "
            "find_unused_parameters in the options, on all ranks");
    }
    require_all_alive();
    begin_backward(will_send() ? Backward::Kind::sends : Backward::Kind::accumulates, unused,
                   stream);
}

void Reducer::Impl::begin_backward(Backward::Kind kind, std::span<const std::size_t> unused,
                                   Stream stream) {
    if (backward_) abandon_backward();
    require_no_host(stream);
    if (kind != Backward::Kind::accumulates) ++source_.backward;
    backward_.emplace(context_, kind, source_);
    ranks_.start_backward(*context_.memory);
    backward_->start(unused, stream);
}

// What a graph's launches, which do what streams do in a backward and nothing that the host does,
// would lack; null: nothing.
const char* Reducer::Impl::why_host_takes_part() const {
    if (tuner_.awaits_arrivals()) return "before one that is not: the first orders the buckets";
    if (!tuner_.is_tuned()) return "while autotune chooses among sizes of buckets";
    if (context_.options.comm_hook && statistics_.step < 2) {
        return "with a comm_hook before two that are not: its memory is made in the second";
    }
    if (context_.options.find_unused_parameters) {
        return "with find_unused_parameters: the host is told what other ranks use";
    }
    if (context_.options.checksum_steps > 0) return "with checksum_steps: the host compares them";
    if (join_) return "in join(): the host is told which ranks still train";
    return nullptr;
}

void Reducer::Impl::require_no_host(Stream stream) const {
    const char* const why = why_host_takes_part();
    if (why == nullptr || !device::is_captured(context_.model_device, stream)) return;
    throw UsageError(std::string("reducer: a backward on a stream that is captured, ") + why);
}

// For another in its place; see backward.hpp. Gradients that were to be sent cannot be told from
// those of the next backward.
void Reducer::Impl::abandon_backward() {
    const bool is_one_of_many = backward_->sends() || ranks_.count() > 1;
    if (backward_->has_sent() || (is_one_of_many && context_.marks.any())) {
        throw UsageError(
            "reducer: start_backward() in the middle of a backward; call wait() first, also after "
            "an exception: all ranks then hear that it did not come to its end");
    }
    context_.used.abandon_backward(context_.marks);
    backward_.reset();
}

// no_sync that has begun or ended meanwhile belongs to the next backward: the one under way is
// abandoned.
void Reducer::Impl::require_backward(const char* call, Stream stream) {
    if (backward_ && backward_->sends() == will_send()) return;
    if (ranks_.count() > 1) {
        throw UsageError(std::string("reducer: ") + call +
                         " without start_backward(); with logical_ranks it is needed before each "
                         "backward");
    }
    start_backward({}, stream);
}

void Reducer::Impl::mark_ready(std::size_t parameter, Stream stream) {
    if (parameter >= context_.parameters.size()) {
        throw UsageError("reducer: parameter " + std::to_string(parameter) +
                         " was marked ready; there are " +
                         std::to_string(context_.parameters.size()));
    }
    require_all_alive();
    require_no_host(stream);
    require_backward("mark_ready()", stream);
    backward_->mark_ready(parameter, stream);
}

bool Reducer::Impl::wait(Stream stream) {
    require_all_alive();
    require_no_host(stream);
    if (!backward_ || !context_.marks.any()) require_backward("wait()", stream);
    const process_group::SourceScope scope(source_);
    if (!backward_->sends()) {
        backward_.reset();
        ranks_.end_logical_rank(*context_.memory);
        return false;
    }
    try {
        finish_step(stream);
    } catch (...) {
        start_over();
        throw;
    }
    start_over();
    if (base::log_enabled(base::LogLevel::debug)) {
        base::log_debug("reducer", to_json(statistics()) + "\n" + describe());
    }
    compare_checksums();
    return true;
}

void Reducer::Impl::finish_step(Stream stream) {
    const std::uint64_t step = statistics_.step + 1;
    {
        const contract::TimelineScope waits(process_group::GroupAccess(context_.group).timeline(),
                                            contract::Activity::gradients, step);
        backward_->finish(step, stream);
    }
    if (!tuner_.is_tuned()) device::finish(context_.model_device, stream);
    statistics_ = backward_->measure(step);
    process_group::GroupAccess(context_.group)
        .control_page()
        .exposed_ns.fetch_add(statistics_.exposed.count(), std::memory_order_relaxed);
    const auto forward_start = std::exchange(forward_start_, {});
    if (forward_start != decltype(forward_start){}) {
        statistics_.forward = backward_->start_time() - forward_start;
    }
    if (context_.model_device.type == DeviceType::cpu) {
        reducer::throw_if_any(context_.marks.mistake(), context_.group);
    } else {
        late_mistakes_.tell_and_hear(context_.marks.mistake(), context_.group);
    }
    tuner_.order_by_arrival(context_.marks, *context_.memory, stream);
    tuner_.add_step(statistics_.backward + statistics_.exposed, *context_.memory, stream);
}

const StepStatistics& Reducer::Impl::statistics() noexcept {
    try {
        if (context_.times) context_.times->take_into(statistics_);
    } catch (const Error&) {  // of a GPU that does nothing more: the group says so
    }
    return statistics_;
}

void Reducer::Impl::finish_in_flight() {
    if (backward_) backward_->finish_in_flight();
    device::finish_all(context_.model_device);
}

// The gradients are averages, or given up. Waits for what is in flight.
void Reducer::Impl::start_over() {
    backward_.reset();
    context_.used.start_over();
    ranks_.start_over();
}

void Reducer::Impl::join(const std::function<void()>& train, const JoinOptions& options) {
    require_all_alive();
    if (ranks_.count() > 1) {
        throw UsageError(
            "reducer: join() with logical_ranks; their numbers of batches must be the same "
            "(drop_last), so that the result does not depend on the number of ranks");
    }
    if (join_) throw UsageError("reducer: join() within join()");
    join_.emplace(context_.group, context_.sender, context_.options.logical_ranks, options);
    try {
        train();
        // The last step, on whatever stream, before the others' go on.
        device::finish_all(context_.model_device);
        while (note_join_step(Activity::none)) shadow_step();
        take_model_from_last_rank();
    } catch (...) {
        join_.reset();
        throw;
    }
    join_.reset();
}

bool Reducer::Impl::note_join_step(Activity activity) {
    const process_group::SourceScope scope(source_);
    return join_->note_step(activity);
}

// What the others do in a step, with nothing to give.
void Reducer::Impl::shadow_step() {
    const process_group::SourceScope scope(source_);
    if (join_->are_buffers_given()) {
        const Root first = join_->first_that_trains();
        context_.group.broadcast_coalesced(ranks_.buffers(), first).wait(Stream{});
    }
    for (const reducer::BucketMemory& bucket : context_.memory->buckets()) {
        device::set_zero(context_.model_device, bucket.tensor.data(), bucket.bytes(), {});
    }
    start_over();  // what the loop may have begun under no_sync
    std::vector<std::size_t> unused;
    if (context_.options.find_unused_parameters) {
        unused.resize(context_.parameters.size());
        std::iota(unused.begin(), unused.end(), std::size_t{0});
    }
    begin_backward(will_send() ? Backward::Kind::shadows : Backward::Kind::accumulates, unused, {});
    wait({});
}

void Reducer::Impl::take_model_from_last_rank() {
    device::finish_all(context_.model_device);
    const process_group::SourceScope scope(source_);
    std::vector<TensorView> model = ranks_.buffers();
    for (const Parameter& parameter : context_.parameters) model.push_back(parameter.value);
    join_->copy_from_last_that_trained(model);
}

std::vector<NamedTensor> Reducer::Impl::state_dict() {
    require_all_alive();
    std::vector<NamedTensor> state;
    if (const auto choice = tuner_.choice()) state.push_back(*choice);
    const process_group::SourceScope scope(source_);
    std::ranges::move(ranks_.gather_random_state(), std::back_inserter(state));
    return state;
}

void Reducer::Impl::load_state_dict() {
    require_all_alive();
    ranks_.load_random_state();
}

void Reducer::Impl::check_batches(std::size_t batches) {
    require_all_alive();
    const process_group::SourceScope scope(source_);
    std::array<std::int64_t, 1> mine{static_cast<std::int64_t>(batches)};
    std::vector<std::int64_t> all(static_cast<std::size_t>(context_.group.size()));
    context_.group.all_gather(mine, all).wait();
    const auto least = std::ranges::min_element(all);
    const auto most = std::ranges::max_element(all);
    if (*least == *most) return;
    throw UsageError("reducer: rank " + std::to_string(least - all.begin()) + " has " +
                     std::to_string(*least) + " batches in this epoch, rank " +
                     std::to_string(most - all.begin()) + " has " + std::to_string(*most) +
                     "; give all ranks as many (drop_last), or train in join()");
}

void Reducer::Impl::compare_checksums() {
    if (context_.options.checksum_steps == 0 || context_.group.size() == 1 || join_ ||
        statistics_.step % context_.options.checksum_steps != 0) {
        return;
    }
    reducer::require_equal_models(context_.parameters, context_.used.used_globally(),
                                  statistics_.step, context_.group);
}

std::string Reducer::Impl::describe() const {
    require_all_alive();
    std::string text;
    const auto buckets = context_.memory->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        text += "bucket " + std::to_string(b) + ": " + std::to_string(buckets[b].bytes()) +
                " bytes of " + to_string(buckets[b].tensor.dtype()) + ":";
        for (const reducer::BucketSlice& slice : buckets[b].spec.slices) {
            text += " " + context_.parameters[slice.parameter].name;
        }
        text += '\n';
    }
    return text;
}

TensorView Reducer::Impl::float32_average(std::size_t parameter) const {
    require_all_alive();
    if (parameter >= context_.parameters.size()) {
        throw UsageError("reducer: float32_average of parameter " + std::to_string(parameter) +
                         " of " + std::to_string(context_.parameters.size()));
    }
    const TensorView& grad = context_.parameters[parameter].grad;
    if (!context_.memory->is_widened(parameter)) {
        throw UsageError("reducer: the gradient of " + context_.parameters[parameter].name + " (" +
                         to_string(grad.dtype) +
                         ") is not reduced in float32; "
                         "reduce_in_float32 is for float16 and bfloat16");
    }
    if (statistics_.step == 0 || !was_averaged(parameter)) {
        throw UsageError("reducer: the gradient of " + context_.parameters[parameter].name +
                         " has not been averaged, as was_averaged() says after a step");
    }
    return {context_.memory->bucket_part(parameter), grad.shape, DType::float32, grad.device};
}

std::string to_json(const StepStatistics& statistics) {
    std::array<char, 512> text{};
    std::snprintf(text.data(), text.size(),
                  "{\"step\": %llu, \"forward_ns\": %lld, \"backward_ns\": %lld, "
                  "\"communication_ns\": %lld, \"exposed_ns\": %lld, \"overlap\": %.4f, "
                  "\"buckets\": %zu, \"buckets_before_last_gradient\": %zu, \"bytes\": %zu}",
                  static_cast<unsigned long long>(statistics.step),
                  static_cast<long long>(statistics.forward.count()),
                  static_cast<long long>(statistics.backward.count()),
                  static_cast<long long>(statistics.communication.count()),
                  static_cast<long long>(statistics.exposed.count()), statistics.overlap,
                  statistics.buckets, statistics.buckets_before_last_gradient, statistics.bytes);
    return text.data();
}

Reducer::Reducer(std::span<Parameter> parameters, ProcessGroup& group,
                 const ReducerOptions& options, RankState state)
    : impl_(std::make_unique<Impl>(parameters, group, options, std::move(state))) {}
Reducer::~Reducer() = default;
Reducer::Reducer(Reducer&&) noexcept = default;
Reducer& Reducer::operator=(Reducer&&) noexcept = default;

void Reducer::finish_in_flight() { impl_->finish_in_flight(); }
void Reducer::start_forward(Stream stream) { impl_->start_forward(stream); }
void Reducer::start_backward(std::span<const std::size_t> unused, Stream stream) {
    impl_->start_backward(unused, stream);
}
void Reducer::mark_ready(std::size_t parameter, Stream stream) {
    impl_->mark_ready(parameter, stream);
}
bool Reducer::wait(Stream stream) { return impl_->wait(stream); }
void Reducer::join(const std::function<void()>& train, const JoinOptions& options) {
    impl_->join(train, options);
}
void Reducer::check_batches(std::size_t batches) { impl_->check_batches(batches); }
Shard Reducer::logical_rank() const { return impl_->logical_rank(); }
std::size_t Reducer::num_buckets() const noexcept { return impl_->num_buckets(); }
double Reducer::bucket_cap_mb() const noexcept { return impl_->bucket_cap_mb(); }
bool Reducer::is_tuned() const noexcept { return impl_->is_tuned(); }
bool Reducer::was_averaged(std::size_t parameter) const { return impl_->was_averaged(parameter); }
TensorView Reducer::float32_average(std::size_t parameter) const {
    return impl_->float32_average(parameter);
}
std::vector<NamedTensor> Reducer::state_dict() { return impl_->state_dict(); }
void Reducer::load_state_dict() { impl_->load_state_dict(); }
std::string Reducer::describe() const { return impl_->describe(); }
const StepStatistics& Reducer::statistics() const noexcept { return impl_->statistics(); }

Reducer::NoSync::NoSync(Impl& impl) : impl_(impl) { impl_.set_no_sync(true); }
Reducer::NoSync::~NoSync() { impl_.set_no_sync(false); }

}  // namespace ddp
