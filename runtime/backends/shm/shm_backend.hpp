// Collectives of the ranks of one host through a SharedRegion. Data moves in chunks through each
// rank's two slots, used in turn: what is read after one barrier is not overwritten before the next
// but one, so most collectives need a single barrier a chunk.
#pragma once

#include "backends/backend.hpp"
#include "backends/shm/shared_region.hpp"
#include "backends/shm/shm_barrier.hpp"

#include <atomic>
#include <memory>
#include <vector>

namespace ddp::shm {

inline constexpr std::size_t default_slot_bytes = 256 * 1024;

class ShmBackend : public backends::Backend {
public:
    // All ranks have written their pids into the region. Throws SystemError.
    ShmBackend(std::shared_ptr<SharedRegion> region, int rank,
               const std::atomic<std::uint32_t>* agent_abort = nullptr);

    ddp::Backend kind() const override { return ddp::Backend::shm; }
    void run(const backends::Call& call, std::uint64_t sequence,
             const base::Deadline& deadline) override;

private:
    struct Step;  // what a running call needs in each chunk
    void meet(Step& step);
    void compare_calls(const Step& step);
    void all_reduce(Step& step);
    void all_reduce_small(Step& step);
    void broadcast(Step& step);
    void all_gather(Step& step);
    void reduce_scatter(Step& step);

    std::shared_ptr<SharedRegion> region_;
    int rank_;
    std::size_t ranks_;
    ShmBarrier barrier_;
    std::uint32_t parity_ = 0;  // which slot of the two the next chunk uses; the same on all ranks
    std::vector<const std::byte*> inputs_;  // scratch of the reductions: one pointer a rank
};

}  // namespace ddp::shm
