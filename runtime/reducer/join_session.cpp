#include "reducer/join_session.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace ddp::reducer {

bool JoinSession::note_step(Activity mine) {
    std::array<std::uint8_t, 1> sent{static_cast<std::uint8_t>(mine)};
    std::vector<std::uint8_t> all(static_cast<std::size_t>(group_.size()));
    group_.all_gather(sent, all).wait();
    const auto idle = std::ranges::count(all, static_cast<std::uint8_t>(Activity::none));
    const std::size_t count = all.size() - static_cast<std::size_t>(idle);
    if (count == 0) return false;
    if (count < all.size() && options_.throw_on_early_termination) {
        const auto first =
            std::ranges::find(all, static_cast<std::uint8_t>(Activity::none)) - all.begin();
        throw UsageError("reducer: rank " + std::to_string(first) +
                         " has no more input, but others have (join() with "
                         "throw_on_early_termination)");
    }
    if (!options_.divide_by_initial_world_size) sender_.set_divisor(count);
    activities_.clear();
    for (const std::uint8_t rank : all) activities_.push_back(static_cast<Activity>(rank));
    return true;
}

Root JoinSession::first_that_trains() const {
    int rank = 0;
    while (activities_[static_cast<std::size_t>(rank)] == Activity::none) ++rank;
    return {rank};
}

bool JoinSession::are_buffers_given() const {
    const auto first = static_cast<std::size_t>(first_that_trains().rank);
    return activities_[first] == Activity::gives_buffers;
}

void JoinSession::copy_from_last_that_trained(std::span<const TensorView> model) const {
    const auto last = std::find_if(activities_.rbegin(), activities_.rend(),
                                   [](Activity rank) { return rank != Activity::none; });
    if (last == activities_.rend()) return;
    const Root root{static_cast<int>(activities_.rend() - last) - 1};
    for (const TensorView& tensor : model) group_.broadcast(tensor, root).wait();
}

}  // namespace ddp::reducer
