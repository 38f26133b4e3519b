#include "backends/shm/wait/core_sharing.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace ddp::shm {
namespace {

// So many waits in a row, each with others that came to wait on this core too, before a rank
// moves: two that meet for a moment part by themselves.
constexpr int looks_before_moving = 24;

// A RankBlock's waiting_place: the core, and how often this rank has begun to wait there.
constexpr int most_cores = 4096;
constexpr std::uint32_t encode(int core, std::uint32_t waits) {
    return waits * most_cores + static_cast<std::uint32_t>(core);
}
constexpr int core_of(std::uint32_t place) { return static_cast<int>(place % most_cores); }

std::vector<int> allowed_cores() {
    cpu_set_t set;
    std::vector<int> cores;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
    return cores;
}

void go_to(int core) {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
    // Back by asking for every core, of which the kernel gives those that the thread may have: so
    // it goes on following them when they change. Unless somebody had asked for fewer.
    cpu_set_t every;
    std::memset(&every, 0xff, sizeof every);
    const bool given = ::sched_setaffinity(0, sizeof every, &every) == 0 &&
                       ::sched_getaffinity(0, sizeof every, &every) == 0;
    if (!given || !CPU_EQUAL(&every, &all)) ::sched_setaffinity(0, sizeof all, &all);
}

}  // namespace

std::optional<int> less_crowded_core(int core, std::span<const int> cores,
                                     std::span<const int> allowed) {
    std::optional<int> best;
    std::ptrdiff_t fewest = std::count(cores.begin(), cores.end(), core) - 1;
    for (const int other : allowed) {
        const std::ptrdiff_t there = std::count(cores.begin(), cores.end(), other);
        if (there >= fewest) continue;
        fewest = there;
        best = other;
    }
    return best;
}

CoreSharing::CoreSharing(SharedRegion& region, int rank)
    : region_(region), rank_(rank), seen_(static_cast<std::size_t>(region.ranks())) {
    const int cores = std::max(static_cast<int>(allowed_cores().size()), 1);
    fair_share_ = (region.ranks() + cores - 1) / cores;
}

void CoreSharing::wait_begins() {
    const int core = ::sched_getcpu();
    if (core < 0 || core >= most_cores) return;
    if (busy_.exchange(true, std::memory_order_acquire)) return;
    const std::uint32_t place = encode(core, ++waits_);
    region_.block(rank_).waiting_place.store(place, std::memory_order_relaxed);
    look(core);
    busy_.store(false, std::memory_order_release);
}

// Of the ranks that wait here by turns the last one moves, so that not all do.
void CoreSharing::look(int core) {
    int here = 1;
    int last = rank_;
    for (int rank = 0; rank < region_.ranks(); ++rank) {
        if (rank == rank_) continue;
        const std::uint32_t place =
            region_.block(rank).waiting_place.load(std::memory_order_relaxed);
        std::uint32_t& seen = seen_[static_cast<std::size_t>(rank)];
        const bool waited = place != seen;
        seen = place;
        if (!waited || core_of(place) != core) continue;
        ++here;
        last = rank;
    }
    crowded_looks_ = here > fair_share_ && last <= rank_ ? crowded_looks_ + 1 : 0;
    if (crowded_looks_ < looks_before_moving) return;
    crowded_looks_ = 0;
    move_from(core);
}

void CoreSharing::move_from(int core) const {
    std::vector<int> cores;
    for (const std::uint32_t place : seen_) {
        cores.push_back(place == 0 ? -1 : core_of(place));
    }
    cores[static_cast<std::size_t>(rank_)] = core;
    if (const auto other = less_crowded_core(core, cores, allowed_cores())) go_to(*other);
}

}  // namespace ddp::shm
