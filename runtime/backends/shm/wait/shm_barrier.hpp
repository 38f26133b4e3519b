// The phases of a group (protocol.md): a barrier in two halves, so that a rank can work between its
// own arrival and the others'. What a rank wrote before it arrives, others may read after they
// waited.
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

    // This rank's announcement of its next phase: to be filled before arrive().
    Announcement& next_announcement() { return announcement(rank_, phase_ + 1); }
    bool has_met() const { return phase_ > 0; }
    // What `rank` announced with its phase of that number; after waiting for it.
    Announcement& announcement(int rank, std::uint32_t phase) const {
        return region_.block(rank).announcements[phase % 2];
    }
    // At the next phase, whose number it returns.
    std::uint32_t arrive() {
        ++phase_;
        announcement(rank_, phase_).line.arrived.store(phase_, phase_orders.arrive);
        Waiter::ring(region_.block(rank_).arrivals);
        return phase_;
    }
    // Until all ranks have arrived at this phase. `what()` describes the operation, only in need.
    // Throws as Waiter::wait.
    template <class What>
    void wait(std::uint32_t phase, const base::Deadline& deadline, const What& what) {
        const AllThere all_there{*this, phase};
        // Who finds that the calls differ aborts; the others are to find it themselves.
        if (waiter_.is_aborted() && !all_there()) waiter_.throw_abort(what());
        // At the bell of one that is missing: its arrival wakes no more than those who need it.
        const auto bell = [&]() -> Bell& { return region_.block(all_there.missing()).arrivals; };
        waiter_.wait(all_there, bell, deadline, [&] {
            return Waiter::Awaited{std::cref(what), [&] { return missing(phase); }};
        });
    }
    // Both. Returns the phase.
    template <class What>
    std::uint32_t arrive_and_wait(const base::Deadline& deadline, const What& what) {
        arrive();
        if (!waiter_.poll_eagerly(AllThere{*this, phase_})) wait(phase_, deadline, what);
        return phase_;
    }

private:
    // Whether all have arrived at a phase; remembers who has.
    struct AllThere {
        const ShmBarrier& barrier;
        std::uint32_t phase;
        mutable int peer = 0;
        bool operator()() const {
            while (peer < barrier.region_.ranks() && barrier.has_arrived(peer, phase)) ++peer;
            return peer == barrier.region_.ranks();
        }
        int missing() const { return std::min(peer, barrier.region_.ranks() - 1); }
    };
    bool has_arrived(int rank, std::uint32_t phase) const {
        const std::uint32_t arrived =
            announcement(rank, phase).line.arrived.load(phase_orders.see_arrival);
        return static_cast<std::int32_t>(arrived - phase) >= 0;
    }
    std::vector<int> missing(std::uint32_t phase) const {
        std::vector<int> ranks;
        for (int rank = 0; rank < region_.ranks(); ++rank) {
            if (!has_arrived(rank, phase)) ranks.push_back(rank);
        }
        return ranks;
    }

    SharedRegion& region_;
    Waiter& waiter_;
    int rank_;
    std::uint32_t phase_ = 0;  // the last that this rank arrived at
};

}  // namespace ddp::shm
