// What the collectives of one group share on one rank from call to call: the region, how to wait
// in it, and scratch memory. Invariant: between two calls `next_chunk` is the same on all ranks.
#pragma once

#include "backends/shm/call/deferred_completion.hpp"
#include "backends/shm/call/part_table.hpp"
#include "backends/shm/region/shared_allocations.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/peer_memory.hpp"
#include "backends/shm/transfer/slot_writer.hpp"
#include "backends/shm/tuning.hpp"
#include "backends/shm/wait/shm_barrier.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace ddp::shm {

// Arguments of backends::reduce, one entry a rank, so that no call allocates them.
struct ReductionScratch {
    explicit ReductionScratch(std::size_t ranks) : inputs(ranks), outputs(ranks), factors(ranks) {}
    std::vector<const std::byte*> inputs;
    std::vector<std::byte*> outputs;
    std::vector<double> factors;  // of premul_sum
};

struct GroupState {
    // All ranks have written their pids into the region. Throws as Waiter.
    GroupState(std::shared_ptr<SharedRegion> shared, int this_rank,
               const std::atomic<std::uint32_t>* agent_abort, std::span<const int> job_ranks,
               const HostKernel& kernel)
        : region(std::move(shared)),
          rank(static_cast<std::size_t>(this_rank)),
          ranks(static_cast<std::size_t>(region->ranks())),
          tuning(region->tuning()),
          waiter(*region, this_rank, agent_abort, job_ranks, kernel),
          barrier(*region, this_rank, waiter),
          peers(*region, this_rank, waiter),
          allocations(this_rank, region->ranks()),
          slot_writer(tuning),
          scratch(ranks) {}
    GroupState(const GroupState&) = delete;
    GroupState& operator=(const GroupState&) = delete;

    // Before this rank writes into a slot or a result. Throws SystemError.
    void reserve_slots() {
        if (has_slots) return;
        region->reserve_slots(static_cast<int>(rank));
        has_slots = true;
    }

    std::shared_ptr<SharedRegion> region;
    std::size_t rank, ranks;
    Tuning tuning;
    Waiter waiter;
    ShmBarrier barrier;
    PeerMemory peers;
    SharedAllocations allocations;
    SlotWriter slot_writer;
    DeferredCompletion deferred;
    bool has_slots = false;
    std::uint64_t next_chunk = 0;
    ReductionScratch scratch;
    PeerOffsets peer_offsets;  // of the uneven all_to_all under way
};

}  // namespace ddp::shm
