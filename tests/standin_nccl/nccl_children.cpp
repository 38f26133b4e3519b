// NCCL's functions that make communicators of another one: Split and Shrink.
#include "standin_nccl/handle.hpp"
#include "standin_nccl/meeting.hpp"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace stand_in {

namespace {
// How a new communicator is made: each rank on its own, before it meets the others.
struct Plan {
    Config config;
    std::shared_ptr<Shared> shared;
};

// Null, as NCCL says: the parent's config. Nothing: ncclInvalidArgument.
std::optional<Plan> plan_child(const Call& parent, const ncclConfig_t* config, bool shares) {
    const auto read = config == nullptr ? parent->seat().config : read_config(config);
    if (!read) return std::nullopt;
    const bool is_shared = shares && !parent->is_revoked();
    return Plan{*read, is_shared ? parent->shared() : std::make_shared<Shared>()};
}

std::shared_ptr<Communicator> make_child(const Communicator& parent, const Plan& plan,
                                         const std::vector<int>& ranks, const ncclUniqueId& id) {
    const auto rank = std::find(ranks.begin(), ranks.end(), parent.seat().rank);
    const Communicator::Seat seat{static_cast<int>(rank - ranks.begin()),
                                  static_cast<int>(ranks.size()), parent.seat().device,
                                  plan.config};
    return std::make_shared<Communicator>(seat, id, plan.shared);
}

SplitEntry& split_entry(const Communicator& communicator, int rank) {
    return communicator.region()->rank[static_cast<std::size_t>(rank)].split;
}

// The ranks of a color, in their new order, once all have said theirs; none if stopped.
std::vector<int> ranks_of_color(const Communicator& parent, int color, std::uint64_t turn) {
    const Place place{.stopped = &parent.child_stopped()};
    std::vector<int> ranks;
    for (int rank = 0; rank < parent.seat().ranks; ++rank) {
        const SplitEntry& entry = split_entry(parent, rank);
        if (!place.wait_until([&] { return entry.asked >= turn; })) return {};
        if (entry.color == color) ranks.push_back(rank);
    }
    std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
        return split_entry(parent, a).key < split_entry(parent, b).key;
    });
    return ranks;
}

// The new communicator; null without a color or when stopped.
std::shared_ptr<Communicator> split(const Communicator& parent, int color, int key,
                                    const Plan& plan) {
    const Place place{.stopped = &parent.child_stopped()};
    SplitEntry& own = split_entry(parent, parent.seat().rank);
    const std::uint64_t turn = own.asked + 1;
    for (int rank = 0; rank < parent.seat().ranks; ++rank) {  // they may still read the last one
        const SplitEntry& entry = split_entry(parent, rank);
        if (!place.wait_until([&] { return entry.finished >= turn - 1; })) return nullptr;
    }
    own.color = color;
    own.key = key;
    own.asked = turn;
    const std::vector<int> ranks = ranks_of_color(parent, color, turn);
    if (ranks.empty()) {
        if (color == NCCL_SPLIT_NOCOLOR) {
            (void)misuse("ncclCommSplit without a color does not succeed, and NCCL crashes");
        }
        return nullptr;
    }
    // NCCL waits for its stream on the device when it sets up the new one.
    const bool shares = plan.shared == parent.shared();
    if (shares && !place.wait_until([&] { return !parent.has_shared_work(); })) return nullptr;
    SplitEntry& first = split_entry(parent, ranks.front());
    if (&first == &own && color != NCCL_SPLIT_NOCOLOR) {
        own.id = make_region();
        own.published = turn;
    }
    std::shared_ptr<Communicator> child;
    if (color != NCCL_SPLIT_NOCOLOR) {
        if (!place.wait_until([&] { return first.published >= turn; })) return nullptr;
        child = make_child(parent, plan, ranks, first.id);
    }
    own.finished = turn;
    return child;
}

// The new communicator of those that remain; null when stopped.
std::shared_ptr<Communicator> shrink(const Communicator& parent, const std::vector<int>& ranks,
                                     const Plan& plan) {
    Place place = parent.place();
    place.stopped = &parent.child_stopped();
    Note own;
    for (const int rank : ranks) own.ranks |= 1U << static_cast<unsigned>(rank);
    if (ranks.front() == place.rank) own.id = make_region();
    ncclUniqueId id = own.id;
    const auto look = [&](int rank, const Note& note) {
        if (note.ranks != own.ranks) return place.hang();  // as NCCL's would
        if (rank == ranks.front()) id = note.id;
        return true;
    };
    if (!meet(place, Meeting::shrink, ranks, own, look)) return nullptr;
    return make_child(parent, plan, ranks, id);
}

// Lets `make` meet the others on a thread of the parent's, and fills in what it makes.
ncclResult_t start(const Call& parent, ncclComm_t comm, ncclComm_t* newcomm,
                   std::function<std::shared_ptr<Communicator>(const Communicator&)> make) {
    if (!parent->blocks()) parent->allow_children();
    return run_job(parent, comm,
                   [self = parent.communicator().get(), newcomm, make = std::move(make)] {
                       const auto child = make(*self);
                       if (child == nullptr) return;
                       child->bring_up(self->child_stopped());
                       if (self->child_stopped()) return;
                       if (child->error() != ncclSuccess)
                           self->set_error(child->error(), child->error_text());
                       *newcomm = make_handle(child);
                   });
}

ncclResult_t check_parent(const Call& call, const std::string& name) {
    if (call->is_finalized()) return misuse(name + " after Finalize");
    if (call->aborted() && call->is_spoiled()) return misuse(name + after_a_sharer);
    return ncclSuccess;
}

ncclResult_t split_checked(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           const ncclConfig_t* config) {
    const Call call("ncclCommSplit", comm, Needs::readiness);
    if (call.refused()) return call.result();
    if (newcomm == nullptr || color < NCCL_SPLIT_NOCOLOR) {
        return failed(ncclInvalidArgument, "ncclCommSplit: color " + std::to_string(color));
    }
    if (const auto bad = check_parent(call, "ncclCommSplit"); bad != ncclSuccess) return bad;
    *newcomm = nullptr;
    const auto fault = knobs().fault(call->seat().rank, Fault::in_init);
    if (fault && fault->kind == FaultKind::fail) {
        return failed(fault->result, "as the test has asked");
    }
    if (color == NCCL_SPLIT_NOCOLOR) config = nullptr;  // it is not looked at
    const auto plan = plan_child(call, config, call->seat().config.split_shares);
    if (!plan) return ncclInvalidArgument;
    const auto result =
        start(call, comm, newcomm, [color, key, plan = *plan](const Communicator& parent) {
            return split(parent, color, key, plan);
        });
    const auto late = knobs().fault(call->seat().rank, Fault::after_split);
    return late ? failed(late->result, "as the test has asked, at its end") : result;
}

// Of the parent's ranks those that are not excluded.
ncclResult_t find_rest(const Communicator::Seat& seat, std::span<const int> excluded,
                       std::vector<int>& rest) {
    const auto is_excluded = [&](int rank) {
        return std::binary_search(excluded.begin(), excluded.end(), rank);
    };
    if (is_excluded(seat.rank)) {
        return failed(ncclInvalidArgument, "ncclCommShrink: an excluded rank calls it");
    }
    if (excluded.front() < 0 || excluded.back() >= seat.ranks ||
        std::adjacent_find(excluded.begin(), excluded.end()) != excluded.end()) {
        return misuse("ncclCommShrink: a rank that there is not, or one twice");
    }
    for (int rank = 0; rank < seat.ranks; ++rank) {
        if (!is_excluded(rank)) rest.push_back(rank);
    }
    return ncclSuccess;
}

ncclResult_t shrink_checked(ncclComm_t comm, int* excluded, int count, ncclComm_t* newcomm,
                            const ncclConfig_t* config, int flags) {
    const Call call("ncclCommShrink", comm, Needs::readiness);
    if (call.refused()) return call.result();
    const bool aborts = (flags & NCCL_SHRINK_ABORT) != 0;
    if (const auto bad = check_parent(call, "ncclCommShrink"); bad != ncclSuccess) return bad;
    if (aborts) call->abort_work();
    if (newcomm == nullptr || excluded == nullptr || count <= 0) {
        return failed(ncclInvalidArgument, "ncclCommShrink: null, or no rank to exclude");
    }
    std::sort(excluded, excluded + count);  // the caller's: NCCL does so
    std::vector<int> rest;
    const std::span list(excluded, static_cast<std::size_t>(count));
    if (const auto bad = find_rest(call->seat(), list, rest); bad != ncclSuccess) return bad;
    *newcomm = nullptr;
    const auto plan = plan_child(call, config, !aborts && call->seat().config.shrink_shares);
    if (!plan) return ncclInvalidArgument;
    return start(call, comm, newcomm, [rest, plan = *plan](const Communicator& parent) {
        return shrink(parent, rest, plan);
    });
}
}  // namespace

}  // namespace stand_in

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
    return stand_in::note_in_group(stand_in::split_checked(comm, color, key, newcomm, config));
}

ncclResult_t ncclCommShrink(ncclComm_t comm, int* excludeRanksList, int excludeRanksCount,
                            ncclComm_t* newcomm, ncclConfig_t* config, int shrinkFlags) {
    return stand_in::note_in_group(stand_in::shrink_checked(
        comm, excludeRanksList, excludeRanksCount, newcomm, config, shrinkFlags));
}
