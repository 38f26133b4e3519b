// Construction, the public face, and what surrounds a backward: forwards, turns of logical ranks,
// no_sync. The backward itself is in backward.cpp.
#include "reducer/reducer_impl.hpp"

#include "base/log.hpp"
#include "process_group/call_source.hpp"
#include "process_group/process_group_impl.hpp"
#include "reducer/agreement.hpp"
#include "reducer/logical_sum.hpp"
#include "reducer/parameter_check.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <iterator>
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

Reducer::Impl::Impl(std::span<Parameter> parameters, ProcessGroup& group, ReducerOptions options,
                    RankState state)
    : parameters_(parameters),
      group_(group),
      backend_(group.impl().backend),
      held_(group.impl().held),
      source_{.reducer = ++group.impl().reducers},
      where_(reducer::device_of(parameters)),
      streams_(where_),
      ranks_(group, options, std::move(state)),
      options_(with_logical_ranks(std::move(options), group)),
      tuner_(parameters, group, options_),
      marks_(parameters, options_.static_graph),
      sender_(group, options_.comm_hook, options_.logical_ranks, ranks_.count()) {
    reducer::check_parameters(parameters, ranks_.named_buffers(), group, options_);
    broadcast_values(parameters, group);
    memory_.emplace(parameters, group,
                    reducer::GradientMemoryOptions{options_.gradient_as_bucket_view.value_or(false),
                                                   ranks_.count(), tuner_.caps()});
    used_here_.resize(parameters_.size());
    used_before_ = used_here_;
    reset_backward();
    ranks_.announce();
}

// An exception that ends a backward goes through here: nobody must wait for the rest of it.
Reducer::Impl::~Impl() {
    held_.take_back();
    const bool is_abandoned = begun_ && sends_ && std::uncaught_exceptions() > 0;
    const auto backend = backend_.lock();
    if (backend && is_abandoned && where_.type == DeviceType::cpu) backend->fail();
    progress_.clear();  // waits for what is in flight
    used_work_ = Work();
}

void Reducer::Impl::require_all_alive() const {
    if (!memory_->has_parameters()) {
        throw UsageError(
            "reducer: parameters were destroyed (or moved, by a vector that grew) before the "
            "reducer; keep them where they are, and destroy the reducer first");
    }
    if (backend_.expired()) {
        throw UsageError("reducer: its process group was destroyed; destroy the reducer first");
    }
}

void Reducer::Impl::start_forward(Stream stream) {
    require_all_alive();
    forward_start_ = Clock::now();
    const process_group::SourceScope scope(source_);
    ranks_.start_forward();
    if (no_sync_) return;
    if (join_) note_active(gives_buffers() ? Activity::gives_buffers : Activity::trains);
    if (!gives_buffers()) return;
    const Root root = join_ ? first_active() : Root{0};
    if (group_.size() > 1) broadcast_buffers(ranks_.buffers(), root, group_, stream);
    ranks_.share_buffers();
}

bool Reducer::Impl::was_averaged(std::size_t parameter) const {
    return used_.empty() || used_[parameter] != 0;
}

bool Reducer::Impl::gives_buffers() const {
    return ranks_.is_at_start() && options_.broadcast_buffers && !ranks_.named_buffers().empty();
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
    if (on && begun_ && sends_ && (marks_.any() || next_bucket_ > 0)) {
        throw UsageError("reducer: no_sync() in the middle of a backward; call wait() first");
    }
    no_sync_ = on;
}

void Reducer::Impl::end_turn() {
    marks_.start_backward();
    begun_ = false;
    ranks_.end_turn(*memory_);
}

// Nothing of the backward under way has been marked or sent. Waits for what is in flight.
void Reducer::Impl::reset_progress() {
    const auto buckets = memory_->buckets();
    progress_.clear();
    progress_.resize(buckets.size());
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        progress_[b].missing = buckets[b].spec.slices.size();
    }
    held_.take_back();
    next_bucket_ = 0;
    failure_ = nullptr;
    sent_before_last_ = 0;
    complete_.assign(parameters_.size(), false);
    marks_.start_backward();
    kept_.resize(parameters_.size());
    for (reducer::KeptGradient& kept : kept_) {
        kept.bytes = 0;
        if (where_.type == DeviceType::cpu) kept.memory = {};  // a GPU's is too slow to come by
    }
}

void Reducer::Impl::reset_backward() {
    reset_progress();
    std::ranges::fill(used_here_, std::uint8_t{0});
    used_work_ = Work();
    ranks_.start_over();
    begun_ = false;
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
    std::vector<std::int64_t> all(static_cast<std::size_t>(group_.size()));
    group_.all_gather(mine, all).wait();
    const auto least = std::ranges::min_element(all);
    const auto most = std::ranges::max_element(all);
    if (*least == *most) return;
    throw UsageError("reducer: rank " + std::to_string(least - all.begin()) + " has " +
                     std::to_string(*least) + " batches in this epoch, rank " +
                     std::to_string(most - all.begin()) + " has " + std::to_string(*most) +
                     "; give all ranks as many (drop_last), or train in join()");
}

void Reducer::Impl::compare_checksums() {
    if (options_.checksum_steps == 0 || group_.size() == 1 || join_ ||
        statistics_.step % options_.checksum_steps != 0) {
        return;
    }
    reducer::require_equal_models(parameters_, used_, statistics_.step, group_);
}

std::string Reducer::Impl::describe() const {
    require_all_alive();
    std::string text;
    const auto buckets = memory_->buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
        text += "bucket " + std::to_string(b) + ": " + std::to_string(buckets[b].bytes()) +
                " bytes of " + to_string(buckets[b].spec.dtype) + ":";
        for (const reducer::BucketSlice& slice : buckets[b].spec.slices) {
            text += " " + parameters_[slice.parameter].name;
        }
        text += '\n';
    }
    return text;
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
std::vector<NamedTensor> Reducer::state_dict() { return impl_->state_dict(); }
void Reducer::load_state_dict() { impl_->load_state_dict(); }
std::string Reducer::describe() const { return impl_->describe(); }
const StepStatistics& Reducer::statistics() const noexcept { return impl_->statistics(); }

Reducer::NoSync::NoSync(Impl& impl) : impl_(impl) { impl_.set_no_sync(true); }
Reducer::NoSync::~NoSync() { impl_.set_no_sync(false); }

}  // namespace ddp
