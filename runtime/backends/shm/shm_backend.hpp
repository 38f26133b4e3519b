// Collectives of the ranks of one host through a SharedRegion; protocol.md tells how.
#pragma once

#include "backends/backend.hpp"
#include "backends/reduction/reduce.hpp"
#include "backends/shm/region/shared_allocations.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/transfer/peer_memory.hpp"
#include "backends/shm/transfer/shm_transfer.hpp"
#include "backends/shm/transfer/slot_stores.hpp"
#include "backends/shm/wait/shm_barrier.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

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
    std::shared_ptr<void> allocate(std::size_t bytes, std::uint64_t sequence,
                                   const base::Deadline& deadline, const CallSite& site) override;
    void fail() noexcept override;
    std::exception_ptr find_trouble(const std::string& during) noexcept override;
    void pass_on_trouble() noexcept override { waiter_.pass_on_trouble(); }
    std::unique_ptr<backends::PendingTransfer> start_transfer(
        const backends::Transfer& transfer) override;

private:
    struct Running;  // the call under way
    struct Window;   // what one chunk moves
    struct Range;    // of elements

    bool fits_in_lines(const backends::Call& call) const;
    void reserve_slots();
    void run_alone(const backends::Call& call);
    void run_together(Running& running);
    void claim_next_slot(const Running& running);
    void announce(Running& running, Offer offer);
    enum class Role { gives, takes, both };
    // Of the memory of a call on this rank. `part`: what one rank wants of another, or 0 where
    // peers' memory is not to be reached by its address.
    struct Extents {
        std::size_t input, output, part;
    };
    Offer offer_memory(Running& running, Role role, const Extents& bytes);
    MemoryKind locate(std::span<const std::byte> memory, bool may_be_reached, Location& place);
    void begin(Running& running);
    void compare_calls(const Running& running);
    std::shared_ptr<void> allocate_together(Running& running);
    void leave_unsettled(Running& running);
    void settle(const base::Deadline& deadline);
    void compare_parts(const Running& running);
    bool may_be_reached(std::size_t part_bytes);
    // What the announcements make of a call; all ranks find the same.
    enum class Path {
        staged,
        staged_after_all,  // some had hoped not to: they stage now
        direct             // mapped, or reached by address
    };
    Path path_of(const Running& running) const;
    void read_factors(const Running& running);
    backends::Reduction reduction(const Running& running) const;

    // shm_all_reduce.cpp
    void all_reduce(Running& running);
    void all_reduce_in_one_phase(Running& running);
    void all_reduce_direct(Running& running);
    std::size_t scratch() const;
    void reduce_block(const Running& running, Range block);
    void all_reduce_staged(Running& running);
    void stage_shares(const Running& running, std::size_t chunk);
    void reduce_share(const Running& running, std::size_t chunk);
    void copy_shares(const Running& running, std::size_t chunk);
    Range share(std::size_t elements, std::size_t element_bytes, std::size_t rank) const;

    // shm_direct.cpp
    const Announcement& announced(const Running& running, std::size_t peer) const;
    void find_inputs(const Running& running, const SharedAllocations::Extent& part);
    // Bytes at `from` of a rank's input for the place `to` of a rank's output.
    struct Move {
        std::size_t giver, taker, bytes, from, to;
    };
    // This rank's half of it: the giver copies so many of its bytes, the taker the others.
    void move(const Running& running, const Move& move, std::size_t given);
    void require_all_stayed(const Running& running) const;
    void write_to(const Running& running, std::size_t peer, std::size_t at, const std::byte* from,
                  std::size_t bytes);

    // shm_exchange.hpp, shm_exchange.cpp
    template <class Chunks, class Stage, class Take, class Direct>
    struct Exchange;
    template <class C, class S, class T, class D>  // which clang before 17 does not see by itself
    Exchange(Role, Extents, const C&, const S&, const T&, const D&)->Exchange<C, S, T, D>;
    template <class Chunks, class Stage, class Take, class Direct>
    void exchange(Running& running, const Exchange<Chunks, Stage, Take, Direct>& how);
    void await(Running& running, std::size_t rank, std::size_t offset, std::size_t bytes) const;
    void stage_parts(const Running& running, const Window& window, std::size_t piece);
    void broadcast(Running& running);
    void gather(Running& running, bool everywhere);
    void scatter(Running& running);
    void all_to_all(Running& running);

    // shm_reduce.cpp
    void reduce_scatter(Running& running);
    void reduce(Running& running);

    std::shared_ptr<SharedRegion> region_;
    std::size_t rank_, ranks_;
    Tuning tuning_;
    Waiter waiter_;
    ShmBarrier barrier_;
    PeerMemory peers_;
    SharedAllocations allocations_;
    TransferState transfers_;
    SlotStores stores_;
    // A call that this rank left after giving its part, before the others had come: what it calls
    // has still to be compared, and its phase to be waited for.
    struct Unsettled {
        backends::Call call;
        std::uint64_t sequence;
        std::uint32_t phase;
    };
    std::optional<Unsettled> unsettled_;
    bool has_slots_ = false;     // reserved; so are the channels in which this rank sends
    bool has_channels_ = false;  // in start_transfer alone
    std::uint64_t chunk_ = 0;    // number of the next chunk; the same on all ranks
    // Scratch of the reductions: one entry a rank.
    std::vector<const std::byte*> inputs_;
    std::vector<std::byte*> outputs_;
    std::vector<double> factors_;
    // Of an uneven all_to_all, in elements: the largest part, and where this rank's begins in each
    // rank's input and output (compare_parts).
    std::size_t largest_part_ = 0;
    std::vector<std::size_t> in_inputs_, in_outputs_;
};

}  // namespace ddp::shm
