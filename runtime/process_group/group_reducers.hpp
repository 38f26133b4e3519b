// What a group keeps for the Reducers on it: their numbers, the buckets that they hold back, and
// whether any of them works for several logical ranks. Invariant: all ranks make their reducers in
// the same order, so a reducer has the same number on every rank.
#pragma once

#include "process_group/held_calls.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace ddp::process_group {

class GroupReducers {
public:
    // `with_logical_ranks`: the parent's, for a sub-group. Numbers and held calls are each group's
    // own.
    explicit GroupReducers(std::shared_ptr<std::atomic<int>> with_logical_ranks =
                               std::make_shared<std::atomic<int>>(0))
        : with_logical_ranks_(std::move(with_logical_ranks)) {}
    GroupReducers(const GroupReducers&) = delete;
    GroupReducers& operator=(const GroupReducers&) = delete;

    // From 1; 0 is the program itself. The calling thread makes this group's reducers alone.
    std::uint32_t next_number() noexcept { return ++last_number_; }
    const std::shared_ptr<HeldCalls>& held() const noexcept { return held_; }
    // How many reducers there are whose ranks work for several logical ranks each, of this group
    // and of all that come from the same one. A reducer may outlive the group, and counts itself.
    const std::shared_ptr<std::atomic<int>>& with_logical_ranks() const noexcept {
        return with_logical_ranks_;
    }

private:
    std::uint32_t last_number_ = 0;
    std::shared_ptr<std::atomic<int>> with_logical_ranks_;
    std::shared_ptr<HeldCalls> held_ = std::make_shared<HeldCalls>();
};

}  // namespace ddp::process_group
