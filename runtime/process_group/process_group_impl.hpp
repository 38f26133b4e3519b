// What a ProcessGroup holds. The members are destroyed in reverse order: first the queues are
// stopped, then the memory and the store go that their operations used.
#pragma once

#include "backends/device_backend.hpp"
#include "base/deadline.hpp"
#include "contract/control_page.hpp"
#include "process_group/call_source.hpp"
#include "process_group/collective_queue.hpp"
#include "process_group/held_calls.hpp"
#include "process_group/transfer_queue.hpp"

#include <ddp/process_group.hpp>
#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp {

class ProcessGroup::Impl {
public:
    ~Impl() {
        if (transfers) transfers->stop();
    }
    Impl() = default;
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    // Meets the other ranks: makes the backend and the queues, ends with the first barrier. After
    // it no rank needs the store for this group's own coming together.
    void join(Backend wanted, const base::Deadline& deadline);

    // Throws UsageError that begins with `operation` for memory that no half of the group moves.
    void require_reachable(const TensorView& tensor, const char* operation) const {
        if (tensor.device.type != DeviceType::cpu) require_own_device(tensor, operation);
    }
    // Likewise, when one of them is the CPU's and the other a GPU's; both are reachable.
    void require_one_place(const TensorView& a, const TensorView& b, const char* operation) const {
        if (a.device != b.device) throw_two_places(a, b, operation);
    }

    // Of CPU memory.
    Work start(const backends::Call& call, process_group::CollectiveOperation::Body&& body = {}) {
        require_healthy();
        release_held();
        return Work(collectives->start(call, timeout, std::move(body)));
    }
    // Of memory `where`, which has been found reachable.
    Work start(const backends::Call& call, const Device& where, Stream stream) {
        return where.type == DeviceType::cpu ? start(call) : start_on_device({&call, 1}, stream);
    }
    Work start_on_device(std::span<const backends::Call> calls, Stream stream);
    Work start_on_device(std::span<const backends::Transfer> batch, Stream stream);
    void run(const backends::Call& call, process_group::CollectiveOperation::Body&& body = {}) {
        require_healthy();
        release_held();
        collectives->run(call, timeout, std::move(body));
    }
    // As Backend::allocate, of GPU memory: in the place of the CPU half's operation `sequence`.
    std::shared_ptr<void> allocate_on_device(std::size_t bytes, std::uint64_t sequence,
                                             const base::Deadline& deadline, const CallSite& site);
    // What ended one half has ended the group.
    void require_healthy() const {
        if (device) device->require_healthy();
    }

    // Before a call that is no reducer's.
    void release_held() {
        if (!held->any() || backends::comes_from_reducer(process_group::current_source)) return;
        held->release();
    }

private:
    void meet(const base::Deadline& deadline);
    void require_own_device(const TensorView& tensor, const char* operation) const;
    [[noreturn]] static void throw_two_places(const TensorView& a, const TensorView& b,
                                              const char* operation);

public:
    WorkerEnv me;  // rank and world_size are the group's
    std::shared_ptr<Store> store;
    std::shared_ptr<contract::ControlRegion> control;  // shared with sub-groups
    std::uint32_t number = 0;                          // among the groups of this process
    std::chrono::milliseconds timeout{};
    int job_rank(int rank) const {
        return job_ranks.empty() ? rank : job_ranks[static_cast<std::size_t>(rank)];
    }
    std::vector<int> job_ranks;  // each rank's number in the job; empty: the same
    int sub_groups = 0;          // made so far; the same on all ranks
    std::uint32_t reducers = 0;  // likewise
    // How many Reducers there are whose ranks work for several logical ranks in turn, of this group
    // and of all that come from the same one; shared with them.
    std::shared_ptr<std::atomic<int>> reducers_with_turns = std::make_shared<std::atomic<int>>(0);
    std::shared_ptr<process_group::HeldCalls> held = std::make_shared<process_group::HeldCalls>();
    std::shared_ptr<backends::Backend> backend;
    std::unique_ptr<process_group::CollectiveQueue> collectives;
    std::shared_ptr<process_group::TransferQueue> transfers;
    std::unique_ptr<backends::DeviceBackend> device;  // null: CPU memory only
    std::string no_device;                            // why; may be empty
    Device own_device;                                // this rank's: a GPU, or of the CPU's
    bool insists_on_gpus = false;  // Backend::nccl was asked for, of this group or of its parent
};

// A number for the next group of this process.
std::uint32_t next_group_number();

}  // namespace ddp
