#include "backends/shm/shm_barrier.hpp"

#include <ddp/error.hpp>

#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;

constexpr int spin_pauses = 50;
constexpr auto yield_time = 1ms;
constexpr auto futex_slice = 20ms;

void pause_cpu() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Not FUTEX_PRIVATE: the word is shared between processes.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected,
                std::chrono::nanoseconds timeout) {
    const timespec time{0, static_cast<long>(timeout.count())};
    ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &time, nullptr, 0);
}

void futex_wake_all(std::atomic<std::uint32_t>& word) {
    ::syscall(SYS_futex, &word, FUTEX_WAKE, INT32_MAX, nullptr, nullptr, 0);
}

constexpr std::uint32_t encode(AbortReason reason, int culprit) {
    return static_cast<std::uint32_t>(reason) << 24 | static_cast<std::uint32_t>(culprit);
}
constexpr AbortReason reason_of(std::uint32_t word) { return static_cast<AbortReason>(word >> 24); }
constexpr int culprit_of(std::uint32_t word) { return static_cast<int>(word & 0xffffff); }

std::string rank_and_pid(const SharedRegion& region, int rank) {
    return "rank " + std::to_string(rank) + " (pid " +
           std::to_string(region.line(rank).pid.load(std::memory_order_relaxed)) + ")";
}

}  // namespace

ShmBarrier::ShmBarrier(SharedRegion& region, int rank,
                       const std::atomic<std::uint32_t>* agent_abort)
    : region_(region),
      rank_(rank),
      agent_abort_(agent_abort),
      pidfds_(static_cast<std::size_t>(region.ranks())),
      gone_(static_cast<std::size_t>(region.ranks()), false) {
    for (int peer = 0; peer < region.ranks(); ++peer) {
        if (peer == rank) continue;
        const pid_t pid = region.line(peer).pid.load(std::memory_order_acquire);
        const auto index = static_cast<std::size_t>(peer);
        pidfds_[index].reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
        if (pidfds_[index]) continue;
        if (errno != ESRCH) throw SystemError("shm: pidfd_open of " + std::to_string(pid), errno);
        gone_[index] = true;
    }
}

void ShmBarrier::arrive_and_wait(const base::Deadline& deadline, const std::string& what) {
    RegionHeader& header = region_.header();
    throw_if_aborted(what);
    // Read before arriving: from then on the last one may open the next generation.
    const std::uint32_t generation = header.generation.load(std::memory_order_acquire);
    region_.line(rank_).arrivals.fetch_add(1, std::memory_order_relaxed);
    const auto ranks = static_cast<std::uint32_t>(region_.ranks());
    if (header.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == ranks) {
        header.arrived.store(0, std::memory_order_relaxed);
        // Sequentially consistent with the sleeper's increment and its check of the word: one of
        // the two sees the other.
        header.generation.store(generation + 1, std::memory_order_seq_cst);
        if (header.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(header.generation);
        return;
    }
    wait_until_open(generation, deadline, what);
}

bool ShmBarrier::opened(std::uint32_t generation) const {
    return region_.header().generation.load(std::memory_order_acquire) != generation;
}

void ShmBarrier::wait_until_open(std::uint32_t generation, const base::Deadline& deadline,
                                 const std::string& what) {
    for (int i = 0; i < spin_pauses; ++i) {
        if (opened(generation)) return;
        pause_cpu();
    }
    const auto yield_end = base::Deadline::Clock::now() + yield_time;
    do {
        if (opened(generation)) return;
        ::sched_yield();
    } while (base::Deadline::Clock::now() < yield_end);

    RegionHeader& header = region_.header();
    while (!opened(generation)) {
        header.sleepers.fetch_add(1, std::memory_order_seq_cst);
        if (header.abort_word.load(std::memory_order_seq_cst) == 0) {
            futex_wait(header.generation, generation, futex_slice);
        }
        header.sleepers.fetch_sub(1, std::memory_order_seq_cst);
        if (opened(generation)) return;
        look_for_trouble(generation, what);
        if (deadline.passed() && !opened(generation)) give_up(deadline, what);
    }
}

void ShmBarrier::look_for_trouble(std::uint32_t generation, const std::string& what) {
    const int dead = dead_peer();
    // It may have arrived last and then ended: its part is done, and so is ours.
    if (opened(generation)) return;
    if (dead >= 0) abort(AbortReason::peer_died, dead);
    if (agent_abort_ != nullptr) {
        // The agent names a rank of the job; in a group of all ranks the numbers are the same.
        const std::uint32_t blamed = agent_abort_->load(std::memory_order_acquire);
        if (blamed != 0) abort(AbortReason::peer_died, static_cast<int>(blamed) - 1);
    }
    throw_if_aborted(what);
}

int ShmBarrier::dead_peer() const {
    for (std::size_t peer = 0; peer < pidfds_.size(); ++peer) {
        if (gone_[peer]) return static_cast<int>(peer);
        if (!pidfds_[peer]) continue;
        pollfd entry{pidfds_[peer].get(), POLLIN, 0};
        if (::poll(&entry, 1, 0) == 1) return static_cast<int>(peer);
    }
    return -1;
}

void ShmBarrier::abort(AbortReason reason, int culprit) {
    RegionHeader& header = region_.header();
    std::uint32_t none = 0;
    header.abort_word.compare_exchange_strong(none, encode(reason, culprit),
                                              std::memory_order_seq_cst);
    futex_wake_all(header.generation);
}

void ShmBarrier::throw_if_aborted(const std::string& what) const {
    const std::uint32_t word = region_.header().abort_word.load(std::memory_order_acquire);
    if (word == 0) return;
    const int culprit = culprit_of(word);
    const std::string who = rank_and_pid(region_, culprit);
    switch (reason_of(word)) {
        case AbortReason::none:
            return;
        case AbortReason::peer_died:
            throw PeerError(culprit, "shm: " + who + " ended during " + what);
        case AbortReason::peer_timed_out:
            throw TimeoutError("shm: " + who + " did not come to " + what +
                               " in time, as another rank found");
        case AbortReason::mismatch:
            throw UsageError("shm: the ranks called different operations; rank " +
                             std::to_string(culprit) + " differs from rank 0 (at " + what + ")");
    }
}

void ShmBarrier::give_up(const base::Deadline& deadline, const std::string& what) {
    const std::uint32_t mine = region_.line(rank_).arrivals.load(std::memory_order_relaxed);
    std::string missing;
    int first = -1;
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        if (region_.line(peer).arrivals.load(std::memory_order_relaxed) == mine) continue;
        if (first < 0) first = peer;
        missing += (missing.empty() ? "" : ", ") + rank_and_pid(region_, peer);
    }
    if (first < 0) first = rank_;
    abort(AbortReason::peer_timed_out, first);
    throw TimeoutError("shm: " + what + " did not end within " +
                       base::to_string(deadline.timeout()) + " on rank " + std::to_string(rank_) +
                       "; waiting for " + (missing.empty() ? "nobody" : missing) +
                       "; is it stopped, or in other code?");
}

}  // namespace ddp::shm
