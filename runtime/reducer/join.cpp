// Training with different numbers of batches: a rank that is through takes part in the others'
// steps. Source: torch.distributed.algorithms.join.
#include "process_group/call_source.hpp"
#include "reducer/reducer_impl.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <numeric>

namespace ddp {

void Reducer::Impl::join(const std::function<void()>& train, const JoinOptions& options) {
    require_all_alive();
    if (ranks_.count() > 1) {
        throw UsageError(
            "reducer: join() with logical_ranks; their numbers of batches must be the same "
            "(drop_last), so that the result does not depend on the number of ranks");
    }
    if (join_) throw UsageError("reducer: join() within join()");
    join_.emplace(Join{options, {}});
    const std::size_t initial = options_.logical_ranks;
    try {
        train();
        device::finish_all(where_);  // the last step, on whatever stream, before the others' go on
        while (note_active(Activity::none)) shadow_step();
        // The last that trained, the largest rank if several: its optimiser went on to the end.
        const auto& active = join_->active;
        const auto last = std::find_if(active.rbegin(), active.rend(),
                                       [](Activity rank) { return rank != Activity::none; });
        if (last != active.rend()) take_model_from(static_cast<int>(active.rend() - last) - 1);
    } catch (...) {
        join_.reset();
        shadow_ = false;
        sender_.set_divisor(initial);
        throw;
    }
    join_.reset();
    sender_.set_divisor(initial);
}

bool Reducer::Impl::note_active(Activity activity) {
    const process_group::SourceScope scope(source_);
    std::array<std::uint8_t, 1> mine{static_cast<std::uint8_t>(activity)};
    std::vector<std::uint8_t> all(static_cast<std::size_t>(group_.size()));
    group_.all_gather(mine, all).wait();
    const auto idle = std::ranges::count(all, static_cast<std::uint8_t>(Activity::none));
    const std::size_t count = all.size() - static_cast<std::size_t>(idle);
    if (count == 0) return false;
    if (count < all.size() && join_->options.throw_on_early_termination) {
        const auto first =
            std::ranges::find(all, static_cast<std::uint8_t>(Activity::none)) - all.begin();
        throw UsageError("reducer: rank " + std::to_string(first) +
                         " has no more input, but others have (join() with "
                         "throw_on_early_termination)");
    }
    if (!join_->options.divide_by_initial_world_size) sender_.set_divisor(count);
    join_->active.clear();
    for (const std::uint8_t rank : all) join_->active.push_back(static_cast<Activity>(rank));
    return true;
}

Root Reducer::Impl::first_active() const {
    int rank = 0;
    while (join_->active[static_cast<std::size_t>(rank)] == Activity::none) ++rank;
    return {rank};
}

// What the others do in a step, with nothing to give.
void Reducer::Impl::shadow_step() {
    shadow_ = true;
    const process_group::SourceScope scope(source_);
    const Root first = first_active();
    if (join_->active[static_cast<std::size_t>(first.rank)] == Activity::gives_buffers) {
        group_.broadcast_coalesced(ranks_.buffers(), first).wait(Stream{});
    }
    for (const reducer::BucketMemory& bucket : memory_->buckets()) {
        device::set_zero(where_, bucket.tensor.data(), bucket.bytes(), {});
    }
    ranks_.start_over();
    begun_ = false;
    marks_.start_backward();
    std::ranges::fill(used_here_, std::uint8_t{0});
    std::vector<std::size_t> unused;
    if (options_.find_unused_parameters) {
        unused.resize(parameters_.size());
        std::iota(unused.begin(), unused.end(), std::size_t{0});
    }
    start_backward(unused, {});
    marks_.mark_all();
    wait({});
    shadow_ = false;
}

void Reducer::Impl::take_model_from(int rank) {
    device::finish_all(where_);
    const process_group::SourceScope scope(source_);
    std::vector<TensorView> model = ranks_.buffers();
    for (const Parameter& parameter : parameters_) model.push_back(parameter.value);
    for (const TensorView& tensor : model) group_.broadcast(tensor, Root{rank}).wait();
}

}  // namespace ddp
