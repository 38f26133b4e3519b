// What the library's other rooms may do with a group beyond its public face: the way into a
// ProcessGroup for reducers, batch norm and checkpoints. Invariant: an operation that comes in here
// keeps the public ones' rules, those of order and of failure; nothing here bypasses the queue.
#pragma once

#include "backends/call_header.hpp"
#include "backends/device_backend.hpp"
#include "contract/control_page.hpp"
#include "process_group/held_calls.hpp"

#include <ddp/process_group.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace ddp::process_group {

// Of a group, which must outlive it: made where it is used. Any thread, unless said otherwise.
class GroupAccess {
public:
    explicit GroupAccess(ProcessGroup& group) noexcept : impl_(*group.impl_), group_(group) {}

    // The rank's number in the job, which errors and the launcher name.
    int job_rank(int rank) const;
    // Backend::nccl was asked for, so a tensor in CPU memory is most likely a mistake.
    bool requires_gpus() const;
    // What has been launched on this rank's GPU; nothing where the group moves CPU memory only.
    std::optional<backends::LaunchOrder> gpu_launch_order() const;
    // For ddp/nccl.hpp; `use` takes an ncclComm_t. Throws UsageError where the group moves CPU
    // memory only, and the group's error once it has failed.
    void with_native_handle(const std::function<void(void*)>& use) const;
    // Where this rank shows ddp-launch what it does.
    contract::ControlPage& control_page() const;
    contract::Timeline timeline() const;  // likewise, for a report; mostly none

    // As ProcessGroup::all_reduce in place. Where the memory is the CPU's, `took` is set to how
    // long the operation ran, by the thread that runs it and before the Work is done; the caller
    // keeps `took` until then.
    Work all_reduce(const TensorView& tensor, ReduceOp op, std::chrono::nanoseconds& took);
    // An operation in the group's order that fails with this error, and so ends the group; all
    // other ranks hear of it. Throws the group's own error where that has failed before.
    Work start_failing(const std::exception_ptr& error);

    // What ends the group as far as is known without waiting; null: nothing. `during` is what the
    // error says it interrupted. Never blocks.
    std::exception_ptr find_trouble(const std::string& during) noexcept;
    // This rank ends because of what find_trouble has found: the others are told the same.
    void pass_on_trouble() noexcept;

    // A new Reducer's number, the same on all ranks. Not beside other calls for this group.
    std::uint32_t next_reducer_number();
    const std::shared_ptr<HeldCalls>& held_calls() const;
    // See GroupReducers.
    const std::shared_ptr<std::atomic<int>>& reducers_with_logical_ranks() const;

private:
    friend class GroupObserver;

    ProcessGroup::Impl& impl_;
    ProcessGroup& group_;
};

// Outlives the group that it looks at, and keeps none of it.
class GroupObserver {
public:
    explicit GroupObserver(ProcessGroup& group) noexcept;
    // A group that is moved lives on.
    bool is_alive() const noexcept { return !backend_.expired(); }
    // Ends the group, if it lives: the other ranks do not wait for this one any longer.
    void fail() noexcept;

private:
    std::weak_ptr<backends::Backend> backend_;
};

}  // namespace ddp::process_group
