// Where a group's operations go. A group has two halves: the CPU's backend with its two queues, and
// where all ranks can have it the GPUs' (NCCL); a tensor's device chooses. Invariant: what ends one
// half has ended the group, so no operation starts on either afterwards.
#pragma once

#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "process_group/call_source.hpp"
#include "process_group/collective_queue.hpp"
#include "process_group/group_member.hpp"
#include "process_group/held_calls.hpp"
#include "process_group/transfer_queue.hpp"

#include <ddp/store.hpp>
#include <ddp/work.hpp>

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace ddp::process_group {

struct DispatchOptions {
    Backend wanted = Backend::automatic;
    std::chrono::milliseconds timeout{};
    // Backend::nccl was asked for, of this group or of the one it comes from.
    bool requires_gpus = false;
    bool cpu_only = false;  // `automatic` does not look for GPUs
};

// Any thread. The members are destroyed in reverse order: first the queues are stopped, then the
// memory goes that their operations used.
class DeviceDispatch {
public:
    // Meets the other ranks: makes the backends and the queues, ends with the first barrier. After
    // it no rank needs the store for the group's own coming together. `shared`: of split().
    DeviceDispatch(const GroupMember& member, Store* store, const DispatchOptions& options,
                   std::shared_ptr<HeldCalls> held, const base::Deadline& deadline,
                   std::shared_ptr<backends::SharedResources> shared = nullptr);
    ~DeviceDispatch() {
        if (transfers_) transfers_->stop();
    }
    DeviceDispatch(const DeviceDispatch&) = delete;
    DeviceDispatch& operator=(const DeviceDispatch&) = delete;

    // Throws UsageError that begins with `operation` for memory that no half of the group moves.
    void require_reachable(const TensorView& tensor, const char* operation) const {
        if (tensor.device.type != DeviceType::cpu) require_own_device(tensor, operation);
    }
    // Likewise, when one of them is the CPU's and the other a GPU's; both are reachable.
    static void require_one_device(const TensorView& a, const TensorView& b,
                                   const char* operation) {
        if (a.device != b.device) throw_two_devices(a, b, operation);
    }

    // Of CPU memory. `took`: as CollectiveQueue::start.
    Work start(const backends::Call& call, CollectiveOperation::Body&& body = {},
               std::chrono::nanoseconds* took = nullptr) {
        require_healthy();
        release_held();
        return Work(collectives_->start(call, options_.timeout, std::move(body), took));
    }
    // Of memory on `device`, which has been found reachable.
    Work start(const backends::Call& call, const Device& device, Stream stream) {
        return device.type == DeviceType::cpu ? start(call) : start_on_gpu({&call, 1}, stream);
    }
    Work start_on_gpu(std::span<const backends::Call> calls, Stream stream);
    Work start_on_gpu(std::span<const backends::Transfer> batch, Stream stream);
    Work start(std::span<const P2POp> transfers, const CallSite& site) {
        require_healthy();
        return Work(transfers_->start(transfers, options_.timeout, site));
    }
    // Blocks.
    void run(const backends::Call& call, CollectiveOperation::Body&& body = {}) {
        require_healthy();
        release_held();
        collectives_->run(call, options_.timeout, std::move(body));
    }
    // As Backend::allocate, of GPU memory: in the place of the CPU half's operation `sequence`.
    std::shared_ptr<void> allocate_on_gpu(std::size_t bytes, std::uint64_t sequence,
                                          const base::Deadline& deadline, const CallSite& site);

    // As DeviceBackend::split, where it shares. Either all ranks return, or the group has failed.
    std::shared_ptr<backends::SharedResources> split(const backends::SplitPart& part,
                                                     const CallSite& site);

    const std::shared_ptr<backends::Backend>& cpu() const noexcept { return cpu_; }
    backends::DeviceBackend* gpu() const noexcept { return gpu_.get(); }  // null: there is none
    Device own_device() const noexcept { return own_device_; }  // its GPU, or of the CPU's
    Backend kind() const { return gpu_ ? Backend::nccl : cpu_->kind(); }
    const DispatchOptions& options() const noexcept { return options_; }

private:
    void rendezvous(const base::Deadline& deadline);
    void require_healthy() const {
        if (gpu_) gpu_->require_healthy();
    }
    // Before a call that is no reducer's.
    void release_held() {
        if (!held_->any() || backends::comes_from_reducer(current_source)) return;
        held_->release();
    }
    void require_own_device(const TensorView& tensor, const char* operation) const;
    [[noreturn]] static void throw_two_devices(const TensorView& a, const TensorView& b,
                                               const char* operation);

    const GroupMember& member_;
    DispatchOptions options_;
    std::shared_ptr<HeldCalls> held_;
    std::shared_ptr<backends::Backend> cpu_;
    std::unique_ptr<CollectiveQueue> collectives_;
    std::shared_ptr<TransferQueue> transfers_;
    std::unique_ptr<backends::DeviceBackend> gpu_;
    std::string no_gpu_reason_;  // why there is none; may be empty
    Device own_device_;
};

}  // namespace ddp::process_group
