#include "backends/shm/shm_backend.hpp"

#include "backends/shm/call/collective_context.hpp"
#include "backends/shm/call/op_descriptor.hpp"
#include "backends/shm/collectives/all_reduce.hpp"
#include "backends/shm/collectives/all_to_all.hpp"
#include "backends/shm/collectives/broadcast.hpp"
#include "backends/shm/collectives/gather.hpp"
#include "backends/shm/collectives/one_rank.hpp"
#include "backends/shm/collectives/provide_memory.hpp"
#include "backends/shm/collectives/reduce.hpp"
#include "backends/shm/collectives/scatter.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <utility>

namespace ddp::shm {
namespace {

using backends::Call;
using backends::Collective;

// Whether all data of the call is in the descriptors.
bool is_inline(const Call& call, const Tuning& tuning) {
    if (call.kind == Collective::barrier) return true;
    return call.kind == Collective::all_reduce &&
           call.bytes() <= std::min<std::uint64_t>(inline_bytes, tuning.staged.one_phase_bytes);
}

void barrier(CollectiveContext& context) {
    fill_descriptor(context, {});
    begin(context);
}

void dispatch(CollectiveContext& context) {
    switch (context.call.kind) {
        case Collective::all_reduce:
            return all_reduce(context);
        case Collective::broadcast:
            return broadcast(context);
        case Collective::all_gather:
            return all_gather(context);
        case Collective::reduce_scatter:
            return reduce_scatter(context);
        case Collective::barrier:
            return barrier(context);
        case Collective::reduce:
            return reduce(context);
        case Collective::gather:
            return gather(context);
        case Collective::scatter:
            return scatter(context);
        case Collective::all_to_all:
            return all_to_all(context);
        case Collective::allocate:
        case Collective::adopt:
            break;
    }
    throw Error("shm: cannot run " + context());
}

// Peers have read the lines of the slot that this rank writes next. Fetched now, while nobody waits
// for them, they cost a small call less.
void prefetch_next_slot(const CollectiveContext& context) {
    GroupState& group = context.group;
    const std::size_t bytes = context.call.bytes();
    const bool used_slot = context.writes_slots && !is_inline(context.call, group.tuning);
    if (!used_slot || bytes > max_prefetch_bytes || context.slots.offset > 0) return;
    backends::prefetch_for_write(group.region->slot(static_cast<int>(group.rank), group.next_chunk),
                                 bytes);
}

}  // namespace

ShmBackend::ShmBackend(std::shared_ptr<SharedRegion> region, int rank,
                       const std::atomic<std::uint32_t>* agent_abort,
                       std::span<const int> job_ranks, const HostKernel& kernel)
    : group_(std::move(region), rank, agent_abort, job_ranks, kernel),
      transfers_(*group_.region, rank, group_.waiter, group_.peers) {}

void ShmBackend::run(const Call& call, std::uint64_t sequence, const base::Deadline& deadline) {
    if (group_.ranks == 1) return run_on_one_rank(call);
    if (!group_.has_slots && !is_inline(call, group_.tuning)) group_.reserve_slots();
    complete_deferred(group_, deadline);
    CollectiveContext context{group_, call, sequence, deadline, size_of(call.dtype)};
    try {
        dispatch(context);
    } catch (...) {
        group_.peers.revoke_access();
        backends::rethrow_at(call.site_in_program());
    }
    context.take_adopted_ends();
    prefetch_next_slot(context);
}

std::shared_ptr<void> ShmBackend::provide_memory(const Call& call, std::uint64_t sequence,
                                                 const base::Deadline& deadline) {
    if (group_.ranks == 1) {
        return call.kind == Collective::adopt ? nullptr : backends::allocate_private(call.bytes());
    }
    complete_deferred(group_, deadline);
    CollectiveContext context{group_, call, sequence, deadline, size_of(call.dtype)};
    try {
        return shm::provide_memory(context);
    } catch (...) {
        backends::rethrow_at(call.site);
    }
}

void ShmBackend::fail() noexcept {
    group_.waiter.abort(AbortReason::peer_failed, static_cast<int>(group_.rank));
}

std::exception_ptr ShmBackend::find_trouble(const std::string& during) noexcept {
    return group_.waiter.find_trouble(during);
}

std::unique_ptr<backends::PendingTransfer> ShmBackend::start_transfer(
    const backends::Transfer& transfer) {
    if (transfer.direction == backends::Direction::send && !has_channels_) {
        group_.region->reserve_channels(static_cast<int>(group_.rank));
        has_channels_ = true;
    }
    return transfers_.start(transfer);
}

}  // namespace ddp::shm
