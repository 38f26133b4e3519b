#include "reducer/logical_ranks.hpp"

#include "process_group/group_access.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace ddp::reducer {
TurnState::TurnState(RankState state, std::size_t turns)
    : tensors_(std::move(state.buffers)), buffers_(tensors_.size()) {
    std::ranges::move(state.random_state, std::back_inserter(tensors_));
    if (turns == 1 || tensors_.empty()) return;
    turns_.resize(turns);
    for (auto& turn : turns_) {
        for (const NamedTensor& named : tensors_) turn.push_back(device::read(named.tensor));
    }
}

std::vector<TensorView> TurnState::buffers() const {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < buffers_; ++i) views.push_back(tensors_[i].tensor);
    return views;
}

void TurnState::share_buffers() {
    for (auto& turn : turns_) {
        for (std::size_t i = 0; i < buffers_; ++i) turn[i] = device::read(tensors_[i].tensor);
    }
}

void TurnState::change_turn(std::size_t from, std::size_t to) {
    if (turns_.empty() || from == to) return;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const TensorView& tensor = tensors_[i].tensor;
        turns_[from][i] = device::read(tensor);
        device::copy(tensor.device, tensor.data, turns_[to][i].data(), tensor.bytes(), {});
    }
}

std::vector<std::byte> TurnState::random_state(std::size_t which) const {
    std::vector<std::byte> all = device::read(tensors_[buffers_ + which].tensor);
    for (std::size_t turn = 1; turn < turns_.size(); ++turn) {
        const std::vector<std::byte>& kept = turns_[turn][buffers_ + which];
        all.insert(all.end(), kept.begin(), kept.end());
    }
    return all;
}

void TurnState::set_random_state(std::size_t which, std::span<const std::byte> of_all_turns) {
    const TensorView& tensor = tensors_[buffers_ + which].tensor;
    const std::size_t bytes = tensor.bytes();
    if (bytes == 0) return;
    device::copy(tensor.device, tensor.data, of_all_turns.data(), bytes, {});
    device::finish(tensor.device, {});
    for (std::size_t turn = 1; turn < turns_.size(); ++turn) {
        std::ranges::copy(of_all_turns.subspan(turn * bytes, bytes),
                          turns_[turn][buffers_ + which].begin());
    }
}

LogicalRanks::LogicalRanks(ProcessGroup& group, const ReducerOptions& options, RankState state)
    : group_(group),
      all_(options.logical_ranks == 0 ? static_cast<std::size_t>(group.size())
                                      : options.logical_ranks),
      count_(all_ / static_cast<std::size_t>(group.size())),
      saves_random_state_(options.logical_ranks != 0 && !state.random_state.empty()),
      state_(std::move(state), count_) {}

void LogicalRanks::announce() {
    if (count_ == 1) return;
    reducers_with_logical_ranks_ = process_group::GroupAccess(group_).reducers_with_logical_ranks();
    ++*reducers_with_logical_ranks_;
}

LogicalRanks::~LogicalRanks() {
    if (reducers_with_logical_ranks_) --*reducers_with_logical_ranks_;
}

Shard LogicalRanks::current() const {
    return {static_cast<std::size_t>(group_.rank()) * count_ + turn_, all_};
}

void LogicalRanks::start_forward() {
    if (std::exchange(buffers_unseen_, false)) state_.share_buffers();
}

void LogicalRanks::start_backward(const GradientMemory& memory) {
    if (count_ > 1 && is_at_start()) memory.start_turns();
    is_fresh_ = false;
    buffers_unseen_ = false;
}

void LogicalRanks::end_turn(const GradientMemory& memory) {
    if (count_ == 1) return;
    const std::size_t next = (turn_ + 1) % count_;
    memory.save_turn(turn_);
    memory.load_turn(next);
    state_.change_turn(turn_, next);
    turn_ = next;
}

void LogicalRanks::start_over() {
    state_.change_turn(turn_, 0);
    turn_ = 0;
    is_fresh_ = true;
}

std::vector<NamedTensor> LogicalRanks::gather_random_state() {
    if (!saves_random_state_) return {};
    if (turn_ != 0) {
        throw UsageError(
            "reducer: state_dict() before all logical ranks of this rank had their turn; call it "
            "after a wait() (or backward) that returned true");
    }
    const auto view = [](std::vector<std::byte>& bytes) {
        return TensorView(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::uint8);
    };
    const std::span<const NamedTensor> named = state_.named_random_state();
    std::vector<NamedTensor> gathered;
    all_random_state_.resize(named.size());
    for (std::size_t i = 0; i < named.size(); ++i) {
        std::vector<std::byte> mine = state_.random_state(i);
        std::vector<std::byte>& all = all_random_state_[i];
        all.resize(mine.size() * static_cast<std::size_t>(group_.size()));
        if (!mine.empty()) group_.all_gather(view(mine), view(all)).wait();
        const TensorView& one = named[i].tensor;
        const Shape shape{static_cast<std::int64_t>(all_), static_cast<std::int64_t>(one.numel())};
        gathered.push_back({"random_state." + named[i].name, {all.data(), shape, one.dtype}});
    }
    return gathered;
}

void LogicalRanks::load_random_state() {
    for (std::size_t i = 0; i < all_random_state_.size(); ++i) {
        const std::span<const std::byte> all = all_random_state_[i];
        const std::size_t mine = all.size() / static_cast<std::size_t>(group_.size());
        state_.set_random_state(i, all.subspan(static_cast<std::size_t>(group_.rank()) * mine));
    }
}

}  // namespace ddp::reducer
