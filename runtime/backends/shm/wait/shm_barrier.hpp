// The phases of a group (protocol.md): a split barrier, so that a rank can work between its own
// arrival and the others'. Invariant: a rank that has waited for a phase may read what each peer
// wrote before it arrived there.
#pragma once

#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/wait/waiter.hpp"
#include "base/deadline.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp::shm {

class ShmBarrier {
public:
    ShmBarrier(SharedRegion& region, int rank, Waiter& waiter)
        : region_(region), waiter_(waiter), rank_(rank) {}

    // This rank's descriptor for its next phase. To be filled in before arrive().
    OpDescriptor& next_descriptor() { return descriptor(rank_, phase_ + 1); }
    bool has_completed_phase() const { return phase_ > 0; }
    // What `rank` published with that phase. After waiting for the phase.
    OpDescriptor& descriptor(int rank, std::uint32_t phase) const {
        return region_.block(rank).descriptors[phase % 2];
    }
    // At the next phase. Returns its number.
    std::uint32_t arrive() {
        ++phase_;
        descriptor(rank_, phase_).line.arrived.store(phase_, phase_orders.arrive);
        Waiter::notify(region_.block(rank_).arrivals);
        return phase_;
    }
    // Until all ranks have arrived at this phase. `what()` describes the operation, for messages.
    // Throws as Waiter::wait.
    template <class What>
    void wait(std::uint32_t phase, const base::Deadline& deadline, const What& what) {
        const AllArrived all_arrived{*this, phase};
        // A rank that finds different calls aborts the group, but each rank is to find that itself.
        if (waiter_.is_aborted() && !all_arrived()) waiter_.throw_abort(what());
        // At the doorbell of a missing rank, whose arrival wakes only ranks that wait for it.
        const auto doorbell = [&]() -> Doorbell& {
            return region_.block(all_arrived.first_missing()).arrivals;
        };
        waiter_.wait(all_arrived, doorbell, deadline, [&] {
            return Waiter::WaitDescription{std::cref(what), [&] { return missing_ranks(phase); }};
        });
    }
    // Returns the phase.
    template <class What>
    std::uint32_t arrive_and_wait(const base::Deadline& deadline, const What& what) {
        arrive();
        if (!waiter_.poll_eagerly(AllArrived{*this, phase_})) wait(phase_, deadline, what);
        return phase_;
    }

private:
    // Whether all ranks have arrived at a phase. Remembers up to which rank they have.
    struct AllArrived {
        const ShmBarrier& barrier;
        std::uint32_t phase;
        mutable int peer = 0;
        bool operator()() const {
            while (peer < barrier.region_.ranks() && barrier.has_arrived(peer, phase)) ++peer;
            return peer == barrier.region_.ranks();
        }
        int first_missing() const { return std::min(peer, barrier.region_.ranks() - 1); }
    };
    bool has_arrived(int rank, std::uint32_t phase) const {
        const std::uint32_t arrived =
            descriptor(rank, phase).line.arrived.load(phase_orders.see_arrival);
        return static_cast<std::int32_t>(arrived - phase) >= 0;
    }
    std::vector<int> missing_ranks(std::uint32_t phase) const {
        std::vector<int> ranks;
        for (int rank = 0; rank < region_.ranks(); ++rank) {
            if (!has_arrived(rank, phase)) ranks.push_back(rank);
        }
        return ranks;
    }

    SharedRegion& region_;
    Waiter& waiter_;
    int rank_;
    std::uint32_t phase_ = 0;  // the last one at which this rank arrived
};

}  // namespace ddp::shm
