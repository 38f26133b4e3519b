// What a ProcessGroup holds. The members are destroyed in reverse order: first the queues are
// stopped, then the memory and the store go that their operations used.
#pragma once

#include "base/deadline.hpp"
#include "contract/control_page.hpp"
#include "process_group/collective_queue.hpp"
#include "process_group/transfer_queue.hpp"

#include <ddp/process_group.hpp>
#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <chrono>
#include <memory>
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

    Work start(const backends::Call& call, process_group::CollectiveOperation::Body&& body = {}) {
        return Work(collectives->start(call, timeout, std::move(body)));
    }
    void run(const backends::Call& call, process_group::CollectiveOperation::Body&& body = {}) {
        collectives->run(call, timeout, std::move(body));
    }

    WorkerEnv me;  // rank and world_size are the group's
    std::shared_ptr<Store> store;
    std::shared_ptr<contract::ControlRegion> control;  // shared with sub-groups
    std::uint32_t number = 0;                          // among the groups of this process
    std::chrono::milliseconds timeout{};
    std::vector<int> job_ranks;  // each rank's number in the job; empty: the same
    int sub_groups = 0;          // made so far; the same on all ranks
    std::shared_ptr<backends::Backend> backend;
    std::unique_ptr<process_group::CollectiveQueue> collectives;
    std::shared_ptr<process_group::TransferQueue> transfers;
};

// Throws UsageError that begins with `operation` for memory that is not the CPU's.
void require_cpu(const TensorView& tensor, const char* operation);

// A number for the next group of this process.
std::uint32_t next_group_number();

}  // namespace ddp
