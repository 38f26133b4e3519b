// Construction, the public face, and what surrounds a backward: forwards, turns of logical ranks,
// no_sync. The backward itself is in backward.cpp.
#include "reducer/reducer_impl.hpp"

#include "base/log.hpp"
#include "process_group/call_source.hpp"
#include "process_group/process_group_impl.hpp"
#include "reducer/logical_sum.hpp"
#include "reducer/parameter_check.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>

namespace ddp {
namespace {

using reducer::BucketCaps;

std::size_t bytes_of(double mebibytes) {
    constexpr auto most = static_cast<double>(std::size_t{1} << 60);  // also of infinity
    return static_cast<std::size_t>(std::min(mebibytes * 1024 * 1024, most));
}

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
      saves_random_state_(options.logical_ranks != 0 && !state.random_state.empty()),
      options_(with_logical_ranks(std::move(options), group)),
      turns_(options_.logical_ranks / static_cast<std::size_t>(group.size())),
      state_(std::move(state), turns_),
      order_(reducer::reverse_order(parameters.size())),
      marks_(parameters, options_.static_graph),
      sender_(group, options_.comm_hook, options_.logical_ranks, turns_) {
    reducer::check_parameters(parameters, state_.named_buffers(), group, options_);
    broadcast_values(parameters, group);
    if (options_.bucket_cap_mb == autotune) start_search();
    const BucketCaps caps{bytes_of(options_.first_bucket_mb), bytes_of(options_.bucket_cap_mb)};
    memory_.emplace(parameters, group,
                    reducer::GradientMemoryOptions{options_.gradient_as_bucket_view.value_or(false),
                                                   turns_, caps});
    used_here_.resize(parameters_.size());
    used_before_ = used_here_;
    reset_backward();
    if (turns_ == 1) return;
    reducers_with_turns_ = group.impl().reducers_with_turns;
    ++*reducers_with_turns_;
}

// An exception that ends a backward goes through here: nobody must wait for the rest of it.
Reducer::Impl::~Impl() {
    held_.take_back();
    const bool is_abandoned = begun_ && sends_ && std::uncaught_exceptions() > 0;
    const auto backend = backend_.lock();
    if (backend && is_abandoned && where_.type == DeviceType::cpu) backend->fail();
    progress_.clear();  // waits for what is in flight
    used_work_ = Work();
    if (reducers_with_turns_) --*reducers_with_turns_;
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
    if (std::exchange(buffers_unseen_, false)) state_.share_buffers();
    if (no_sync_) return;
    if (join_) note_active(gives_buffers() ? Activity::gives_buffers : Activity::trains);
    if (!gives_buffers()) return;
    const Root root = join_ ? first_active() : Root{0};
    if (group_.size() > 1) broadcast_buffers(state_.buffers(), root, group_, stream);
    state_.share_buffers();
}

bool Reducer::Impl::was_averaged(std::size_t parameter) const {
    return used_.empty() || used_[parameter] != 0;
}

bool Reducer::Impl::gives_buffers() const {
    return fresh_ && turn_ == 0 && options_.broadcast_buffers && !state_.named_buffers().empty();
}

Shard Reducer::Impl::logical_rank() const {
    require_all_alive();
    return {static_cast<std::size_t>(group_.rank()) * turns_ + turn_, options_.logical_ranks};
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
    if (turns_ == 1) return;
    const std::size_t next = (turn_ + 1) % turns_;
    memory_->save_turn(turn_);
    memory_->load_turn(next);
    state_.change_turn(turn_, next);
    turn_ = next;
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
    state_.change_turn(turn_, 0);
    turn_ = 0;
    fresh_ = true;
    begun_ = false;
}

void Reducer::Impl::start_search() {
    std::size_t bytes = 0;
    for (const Parameter& parameter : parameters_) bytes += parameter.grad.bytes();
    search_.emplace(bytes);
    options_.bucket_cap_mb = search_->cap_mb();
    tuned_cap_mb_.emplace(1, 0.0);
}

std::vector<NamedTensor> Reducer::Impl::state_dict() {
    require_all_alive();
    std::vector<NamedTensor> state;
    if (tuned_cap_mb_) state.push_back({"bucket_cap_mb", *tuned_cap_mb_});
    if (!saves_random_state_) return state;
    gather_random_state();
    const auto named = state_.named_random_state();
    for (std::size_t i = 0; i < named.size(); ++i) {
        const TensorView& one = named[i].tensor;
        const Shape shape{static_cast<std::int64_t>(options_.logical_ranks),
                          static_cast<std::int64_t>(one.numel())};
        state.push_back(
            {"random_state." + named[i].name, {all_random_state_[i].data(), shape, one.dtype}});
    }
    return state;
}

void Reducer::Impl::gather_random_state() {
    if (turn_ != 0) {
        throw UsageError(
            "reducer: state_dict() before all logical ranks of this rank had their turn; call it "
            "after a wait() (or backward) that returned true");
    }
    const auto view = [](std::vector<std::byte>& bytes) {
        return TensorView(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::uint8);
    };
    const process_group::SourceScope scope(source_);
    all_random_state_.resize(state_.named_random_state().size());
    for (std::size_t i = 0; i < all_random_state_.size(); ++i) {
        std::vector<std::byte> mine = state_.random_state(i);
        all_random_state_[i].resize(mine.size() * static_cast<std::size_t>(group_.size()));
        if (!mine.empty()) group_.all_gather(view(mine), view(all_random_state_[i])).wait();
    }
}

void Reducer::Impl::load_state_dict() {
    require_all_alive();
    for (std::size_t i = 0; i < all_random_state_.size(); ++i) {
        const std::span<const std::byte> all = all_random_state_[i];
        const std::size_t mine = all.size() / static_cast<std::size_t>(group_.size());
        state_.set_random_state(i, all.subspan(static_cast<std::size_t>(group_.rank()) * mine));
    }
}

// The same on all ranks: it depends on scores that they have agreed on, or on a checkpoint that all
// have loaded.
void Reducer::Impl::search_cap(Stream stream) {
    if (!tuned_cap_mb_) return;
    double cap_mb = tuned_cap_mb_->front();
    if (cap_mb == 0) {
        search_->add_step(statistics_.backward + statistics_.exposed);
        if (!search_->is_done()) {
            cap_mb = search_->cap_mb();
        } else {
            if (group_.size() > 1) group_.all_reduce(search_->scores(), ReduceOp::max).wait();
            cap_mb = tuned_cap_mb_->front() = search_->best_mb();
        }
    }
    if (search_ && tuned_cap_mb_->front() != 0) {
        search_.reset();
        base::log_info("reducer", "autotune has chosen bucket_cap_mb " + std::to_string(cap_mb));
    }
    if (cap_mb == options_.bucket_cap_mb) return;
    rebuild(order_, cap_mb, stream);
    if (!search_) tuned_cap_mb_->front() = options_.bucket_cap_mb;
}

// Without memory for other buckets (on any rank: all hear of it) the old ones stay.
void Reducer::Impl::rebuild(const std::vector<std::size_t>& order, double cap_mb, Stream stream) {
    try {
        memory_->rebuild(order, {bytes_of(options_.first_bucket_mb), bytes_of(cap_mb)}, stream);
        order_ = order;
        options_.bucket_cap_mb = cap_mb;
    } catch (const SystemError& error) {
        base::log_warn("reducer", std::string("the buckets stay as they are: ") + error.what());
    }
}

// Rank 0's order is everyone's: gradients may come in another order on other ranks.
void Reducer::Impl::rebuild_in_order_of_arrival(Stream stream) {
    if (rebuilt_ || options_.find_unused_parameters) return;
    rebuilt_ = true;
    std::vector<std::int64_t> agreed;
    for (const std::size_t parameter : marks_.order()) {
        agreed.push_back(static_cast<std::int64_t>(parameter));
    }
    if (group_.size() > 1) group_.broadcast(agreed, Root{0}).wait();
    const std::vector<std::size_t> order(agreed.begin(), agreed.end());
    if (order != order_) rebuild(order, options_.bucket_cap_mb, stream);
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
