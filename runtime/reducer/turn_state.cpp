#include "reducer/turn_state.hpp"

#include "tensor/device/device_memory.hpp"

#include <algorithm>
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

}  // namespace ddp::reducer
