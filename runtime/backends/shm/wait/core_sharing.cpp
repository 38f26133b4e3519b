#include "backends/shm/wait/core_sharing.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

namespace ddp::shm {
namespace {

// A rank migrates after this many waits in a row during which other ranks waited on its core too:
// two that meet for a moment part by themselves.
constexpr int checks_before_migration = 24;

// RankBlock::waiting_core: the core, and how often the rank has begun to wait.
constexpr int most_cores = 4096;
constexpr std::uint32_t encode(int core, std::uint32_t waits) {
    return waits * most_cores + static_cast<std::uint32_t>(core);
}
constexpr int core_of(std::uint32_t word) { return static_cast<int>(word % most_cores); }

std::vector<int> allowed_cores() {
    cpu_set_t set;
    std::vector<int> cores;
    if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
    for (int core = 0; core < CPU_SETSIZE; ++core) {
        if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
    return cores;
}

void migrate_to(int core) {
    cpu_set_t all;
    if (::sched_getaffinity(0, sizeof all, &all) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    if (::sched_setaffinity(0, sizeof one, &one) != 0) return;
    // The mask is restored by asking for every core: the kernel grants those of the cpuset, and the
    // thread follows later changes of it. Unless the mask was narrower than the cpuset.
    cpu_set_t every;
    std::memset(&every, 0xff, sizeof every);
    const bool granted = ::sched_setaffinity(0, sizeof every, &every) == 0 &&
                         ::sched_getaffinity(0, sizeof every, &every) == 0;
    if (!granted || !CPU_EQUAL(&every, &all)) ::sched_setaffinity(0, sizeof all, &all);
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
    : region_(region), rank_(rank), last_seen_(static_cast<std::size_t>(region.ranks())) {
    const int cores = std::max(static_cast<int>(allowed_cores().size()), 1);
    fair_share_ = (region.ranks() + cores - 1) / cores;
}

void CoreSharing::begin_wait() {
    const int core = ::sched_getcpu();
    if (core < 0 || core >= most_cores) return;
    if (busy_.exchange(true, std::memory_order_acquire)) return;
    const std::uint32_t waiting_core = encode(core, ++waits_);
    region_.block(rank_).waiting_core.store(waiting_core, std::memory_order_relaxed);
    check_crowding(core);
    busy_.store(false, std::memory_order_release);
}

// Of the ranks that wait on this core only the highest one migrates.
void CoreSharing::check_crowding(int core) {
    int here = 1;
    int last = rank_;
    for (int rank = 0; rank < region_.ranks(); ++rank) {
        if (rank == rank_) continue;
        const std::uint32_t word = region_.block(rank).waiting_core.load(std::memory_order_relaxed);
        std::uint32_t& seen = last_seen_[static_cast<std::size_t>(rank)];
        const bool waited = word != seen;
        seen = word;
        if (!waited || core_of(word) != core) continue;
        ++here;
        last = rank;
    }
    crowded_checks_ = here > fair_share_ && last <= rank_ ? crowded_checks_ + 1 : 0;
    if (crowded_checks_ < checks_before_migration) return;
    crowded_checks_ = 0;
    migrate_from(core);
}

void CoreSharing::migrate_from(int core) const {
    std::vector<int> cores;
    for (const std::uint32_t word : last_seen_) {
        cores.push_back(word == 0 ? -1 : core_of(word));
    }
    cores[static_cast<std::size_t>(rank_)] = core;
    if (const auto other = less_crowded_core(core, cores, allowed_cores())) migrate_to(*other);
}

}  // namespace ddp::shm
