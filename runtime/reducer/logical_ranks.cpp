#include "reducer/logical_ranks.hpp"

#include "process_group/group_access.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

namespace ddp::reducer {
LogicalRankStates::LogicalRankStates(RankState state, std::size_t logical_ranks)
    : tensors_(std::move(state.buffers)), buffers_(tensors_.size()) {
    std::ranges::move(state.random_state, std::back_inserter(tensors_));
    if (logical_ranks == 1 || tensors_.empty()) return;
    states_.resize(logical_ranks);
    for (auto& state_of_one : states_) {
        for (const NamedTensor& named : tensors_)
            state_of_one.push_back(device::read(named.tensor));
    }
}

std::vector<TensorView> LogicalRankStates::buffers() const {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < buffers_; ++i) views.push_back(tensors_[i].tensor);
    return views;
}

void LogicalRankStates::share_buffers() {
    for (auto& state_of_one : states_) {
        for (std::size_t i = 0; i < buffers_; ++i)
            state_of_one[i] = device::read(tensors_[i].tensor);
    }
}

void LogicalRankStates::switch_states(std::size_t from, std::size_t to) {
    if (states_.empty() || from == to) return;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const TensorView& tensor = tensors_[i].tensor;
        states_[from][i] = device::read(tensor);
        device::copy(tensor.device, tensor.data, states_[to][i].data(), tensor.bytes(), {});
    }
}

std::vector<std::byte> LogicalRankStates::random_state(std::size_t which) const {
    std::vector<std::byte> all = device::read(tensors_[buffers_ + which].tensor);
    for (std::size_t l = 1; l < states_.size(); ++l) {
        const std::vector<std::byte>& kept = states_[l][buffers_ + which];
        all.insert(all.end(), kept.begin(), kept.end());
    }
    return all;
}

void LogicalRankStates::set_random_state(std::size_t which, std::span<const std::byte> of_all) {
    const TensorView& tensor = tensors_[buffers_ + which].tensor;
    const std::size_t bytes = tensor.bytes();
    if (bytes == 0) return;
    device::copy(tensor.device, tensor.data, of_all.data(), bytes, {});
    device::finish(tensor.device, {});
    for (std::size_t l = 1; l < states_.size(); ++l) {
        std::ranges::copy(of_all.subspan(l * bytes, bytes), states_[l][buffers_ + which].begin());
    }
}

LogicalRanks::LogicalRanks(ProcessGroup& group, const ReducerOptions& options, RankState state)
    : group_(group),
      all_(options.logical_ranks == 0 ? static_cast<std::size_t>(group.size())
                                      : options.logical_ranks),
      count_(all_ / static_cast<std::size_t>(group.size())),
      saves_random_state_(options.logical_ranks != 0 && !state.random_state.empty()),
      states_(std::move(state), count_) {}

void LogicalRanks::register_in_group() {
    if (count_ == 1) return;
    reducers_with_logical_ranks_ = process_group::GroupAccess(group_).reducers_with_logical_ranks();
    ++*reducers_with_logical_ranks_;
}

LogicalRanks::~LogicalRanks() {
    if (reducers_with_logical_ranks_) --*reducers_with_logical_ranks_;
}

Shard LogicalRanks::current() const {
    return {static_cast<std::size_t>(group_.rank()) * count_ + current_, all_};
}

void LogicalRanks::start_forward() {
    if (std::exchange(buffers_unseen_, false)) states_.share_buffers();
}

void LogicalRanks::start_backward(const GradientMemory& memory) {
    if (count_ > 1 && is_at_start()) memory.start_logical_ranks();
    is_fresh_ = false;
    buffers_unseen_ = false;
}

void LogicalRanks::end_logical_rank(const GradientMemory& memory) {
    if (count_ == 1) return;
    const std::size_t next = (current_ + 1) % count_;
    memory.save_gradients(current_);
    memory.load_gradients(next);
    states_.switch_states(current_, next);
    current_ = next;
}

void LogicalRanks::start_over() {
    states_.switch_states(current_, 0);
    current_ = 0;
    is_fresh_ = true;
}

std::vector<NamedTensor> LogicalRanks::gather_random_state() {
    if (!saves_random_state_) return {};
    if (current_ != 0) {
        throw UsageError(
            "reducer: state_dict() before all logical ranks of this rank had their turn; call it "
            "after a wait() (or backward) that returned true");
    }
    const auto view = [](std::vector<std::byte>& bytes) {
        return TensorView(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, DType::uint8);
    };
    const std::span<const NamedTensor> named = states_.named_random_state();
    std::vector<NamedTensor> gathered;
    all_random_state_.resize(named.size());
    for (std::size_t i = 0; i < named.size(); ++i) {
        std::vector<std::byte> mine = states_.random_state(i);
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
        states_.set_random_state(i, all.subspan(static_cast<std::size_t>(group_.rank()) * mine));
    }
}

}  // namespace ddp::reducer
