#include "reducer/turn_state.hpp"

#include <cstring>
#include <iterator>
#include <utility>

namespace ddp::reducer {
namespace {

std::vector<std::byte> bytes_of(const TensorView& tensor) {
    const auto* const data = static_cast<const std::byte*>(tensor.data);
    return {data, data + tensor.bytes()};
}

}  // namespace

TurnState::TurnState(RankState state, std::size_t turns)
    : tensors_(std::move(state.buffers)), buffers_(tensors_.size()) {
    std::ranges::move(state.random_state, std::back_inserter(tensors_));
    if (turns == 1 || tensors_.empty()) return;
    turns_.resize(turns);
    for (auto& turn : turns_) {
        for (const NamedTensor& named : tensors_) turn.push_back(bytes_of(named.tensor));
    }
}

std::vector<TensorView> TurnState::buffers() const {
    std::vector<TensorView> views;
    for (std::size_t i = 0; i < buffers_; ++i) views.push_back(tensors_[i].tensor);
    return views;
}

void TurnState::share_buffers() {
    for (auto& turn : turns_) {
        for (std::size_t i = 0; i < buffers_; ++i) turn[i] = bytes_of(tensors_[i].tensor);
    }
}

void TurnState::change_turn(std::size_t from, std::size_t to) {
    if (turns_.empty() || from == to) return;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
        const TensorView& tensor = tensors_[i].tensor;
        turns_[from][i] = bytes_of(tensor);
        if (tensor.bytes() > 0) std::memcpy(tensor.data, turns_[to][i].data(), tensor.bytes());
    }
}

}  // namespace ddp::reducer
