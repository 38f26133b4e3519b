// Collectives of the ranks of one host through a SharedRegion; protocol.md tells how. The backend
// dispatches: each collective is a function of a CollectiveContext (collectives/). Invariant: one
// collective at a time, beside any number of point-to-point transfers.
#pragma once

#include "backends/backend.hpp"
#include "backends/shm/call/group_state.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/shm_transfer.hpp"

#include <atomic>
#include <memory>
#include <span>

namespace ddp::shm {

class ShmBackend : public backends::Backend {
public:
    // All ranks have written their pids into the region. `job_ranks`: each rank's number in the
    // job, for messages; empty: the same. Throws as Waiter.
    ShmBackend(std::shared_ptr<SharedRegion> region, int rank,
               const std::atomic<std::uint32_t>* agent_abort = nullptr,
               std::span<const int> job_ranks = {}, const HostKernel& kernel = HostKernel::real());

    ddp::Backend kind() const override { return ddp::Backend::shm; }
    void run(const backends::Call& call, std::uint64_t sequence,
             const base::Deadline& deadline) override;
    std::shared_ptr<void> provide_memory(const backends::Call& call, std::uint64_t sequence,
                                         const base::Deadline& deadline) override;
    void fail() noexcept override;
    std::exception_ptr find_trouble(const std::string& during) noexcept override;
    void pass_on_trouble() noexcept override { group_.waiter.pass_on_trouble(); }
    std::unique_ptr<backends::PendingTransfer> start_transfer(
        const backends::Transfer& transfer) override;

private:
    GroupState group_;
    TransferState transfers_;
    bool has_channels_ = false;  // reserved; in start_transfer alone
};

}  // namespace ddp::shm
