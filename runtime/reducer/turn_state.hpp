// Buffers and random state of the logical ranks of this rank: the model has one place for them, in
// which the state of the one whose turn it is lies; the others' are kept here.
#pragma once

#include <ddp/reducer.hpp>

#include <cstddef>
#include <span>
#include <vector>

namespace ddp::reducer {

class TurnState {
public:
    TurnState(RankState state, std::size_t turns);

    std::vector<TensorView> buffers() const;
    std::span<const NamedTensor> named_buffers() const {
        return std::span(tensors_).first(buffers_);
    }
    // All turns get the buffers that the model has now.
    void share_buffers();
    // Keeps the state of one turn and loads that of another.
    void change_turn(std::size_t from, std::size_t to);

    std::span<const NamedTensor> named_random_state() const {
        return std::span(tensors_).subspan(buffers_);
    }
    // Of a tensor of the random state, by its place in named_random_state(): what all turns have,
    // one after the other. While the model has the first turn's.
    std::vector<std::byte> random_state(std::size_t which) const;
    void set_random_state(std::size_t which, std::span<const std::byte> of_all_turns);

private:
    std::vector<NamedTensor> tensors_;  // the buffers first
    std::size_t buffers_;
    std::vector<std::vector<std::vector<std::byte>>> turns_;  // empty for one turn
};

}  // namespace ddp::reducer
