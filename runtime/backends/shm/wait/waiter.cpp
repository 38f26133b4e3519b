#include "backends/shm/wait/waiter.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;

// The first waits of a group are for ranks that are still starting and need the cores.
constexpr int first_waits = 2;
constexpr std::chrono::microseconds first_yield_time = 50us;
constexpr auto futex_slice = 20ms;
// A hundred times as long as a store takes to become visible to another core.
constexpr auto store_time = 20us;

constexpr std::uint32_t encode(AbortReason reason, int failed_rank) {
    return static_cast<std::uint32_t>(reason) << 24 | static_cast<std::uint32_t>(failed_rank);
}
constexpr AbortReason reason_of(std::uint32_t word) { return static_cast<AbortReason>(word >> 24); }
constexpr int failed_rank_of(std::uint32_t word) { return static_cast<int>(word & 0xffffff); }

}  // namespace

// Where the kernel refuses this process a heavy fence, the waiter waits instead until any store
// that a notifier made before its light fence has become visible.
void SharedEventcountPolicy::heavy_fence() noexcept {
    if (base::heavy_fence_across_processes()) return;
    const auto arrived_by = base::Deadline::Clock::now() + store_time;
    while (base::Deadline::Clock::now() < arrived_by) ::sched_yield();
}

Waiter::Waiter(SharedRegion& region, int rank, const std::atomic<std::uint32_t>* agent_abort,
               std::span<const int> job_ranks, const HostKernel& kernel)
    : region_(region),
      kernel_(kernel),
      abort_word_(region.abort_word()),
      spins_(region.tuning().waiting.spins),
      yield_time_(region.tuning().waiting.yield_us),
      rank_(rank),
      cores_(region, rank),
      agent_abort_(agent_abort),
      job_ranks_(job_ranks.begin(), job_ranks.end()),
      pids_(static_cast<std::size_t>(region.ranks()), ::getpid()),
      pidfds_(static_cast<std::size_t>(region.ranks())),
      exited_(static_cast<std::size_t>(region.ranks()), false) {
    for (int peer = 0; peer < region.ranks(); ++peer) {
        if (peer != rank) watch(peer);
    }
}

void Waiter::watch(int peer) {
    const auto index = static_cast<std::size_t>(peer);
    const pid_t pid = region_.block(peer).pid.load(std::memory_order_acquire);
    pids_[index] = pid;
    if (pid <= 0 || (pid == ::getpid() && !region_.is_in_this_process(peer))) {
        throw UsageError("shm: " + name(peer) + " cannot be that process");
    }
    base::UniqueFd& pidfd = pidfds_[index];
    pidfd = kernel_.watch(pid);
    if (!pidfd) {
        if (errno != ESRCH) throw SystemError("shm: pidfd_open of " + std::to_string(pid), errno);
        exited_[index] = true;
        return;
    }
    const std::optional<uid_t> user = kernel_.user_of(pid);
    if (is_dead(peer)) return;  // the user may be another process's of the same pid
    const std::string foreign =
        user ? why_not_ours(kernel_, *user) : "may be any user's: /proc does not show it";
    if (!foreign.empty()) throw UsageError("shm: the process of " + name(peer) + " " + foreign);
}

int Waiter::job_rank(int rank) const {
    return job_ranks_.empty() ? rank : job_ranks_[static_cast<std::size_t>(rank)];
}

std::string Waiter::name(int rank) const {
    return "rank " + std::to_string(job_rank(rank)) + " (pid " +
           std::to_string(pids_[static_cast<std::size_t>(rank)]) + ")";
}

void Waiter::wait_long(const std::function<bool()>& ready,
                       const std::function<Doorbell&()>& doorbell, const base::Deadline& deadline,
                       const std::function<WaitDescription()>& describe) {
    cores_.begin_wait();
    const bool is_first = long_waits_.load(std::memory_order_relaxed) < first_waits &&
                          long_waits_.fetch_add(1, std::memory_order_relaxed) < first_waits;
    const auto yield_end = base::Deadline::Clock::now() +
                           (is_first ? std::min(first_yield_time, yield_time_) : yield_time_);
    do {
        ::sched_yield();
        if (ready()) return;
    } while (base::Deadline::Clock::now() < yield_end);

    const WaitDescription awaited = describe();
    while (!ready()) {
        wait_slice(doorbell, ready, awaited);
        if (deadline.passed() && !ready()) throw_timeout(deadline, awaited);
    }
}

void Waiter::wait_slice(const std::function<Doorbell&()>& doorbell,
                        const std::function<bool()>& ready, const WaitDescription& awaited) {
    Doorbell& here = doorbell();
    const Doorbell::Key key = here.prepare_wait();
    // ready() may have found that another rank's doorbell is the one to wait at by now.
    if (!ready() && &doorbell() == &here && !is_aborted()) {
        here.wait(key, futex_slice);
    } else {
        here.cancel_wait();
    }
    if (!ready()) check_for_failure(ready, awaited);
}

void Waiter::back_off(std::uint64_t round) {
    if (round < spins_) return base::pause_cpu();
    if (round == spins_) cores_.begin_wait();
    ::sched_yield();
}

void Waiter::check_for_failure(const std::function<bool()>& ready, const WaitDescription& awaited) {
    const std::vector<int> dead = dead_peers();
    // After dead_peers(): a rank that has died has published its part by now, or never will.
    if (ready()) return;
    if (!dead.empty()) {
        // Only those: other ranks may have done their part and left.
        for (const int rank : awaited.missing_ranks()) {
            const bool is_dead = std::find(dead.begin(), dead.end(), rank) != dead.end();
            if (is_dead) abort(AbortReason::peer_died, rank);
        }
    }
    if (const int blamed = rank_blamed_by_agent(); blamed >= 0)
        abort(AbortReason::peer_died, blamed);
    // The rank that aborted may have published before what this rank waits for.
    if (is_aborted() && !ready()) throw_abort(awaited.operation());
}

std::vector<int> Waiter::dead_peers() const {
    std::vector<int> dead;
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        if (is_dead(peer)) dead.push_back(peer);
    }
    return dead;
}

bool Waiter::is_dead(int rank) const {
    const auto peer = static_cast<std::size_t>(rank);
    pollfd entry{pidfds_[peer].get(), POLLIN, 0};
    return exited_[peer] || (pidfds_[peer] && ::poll(&entry, 1, 0) == 1);
}

int Waiter::rank_blamed_by_agent() const {
    if (agent_abort_ == nullptr) return -1;
    const std::uint32_t word = agent_abort_->load(std::memory_order_acquire);
    if (word == 0 || word > INT32_MAX) return -1;  // any worker may have written there
    const int blamed = static_cast<int>(word) - 1;
    if (job_ranks_.empty()) return blamed < region_.ranks() ? blamed : -1;
    const auto found = std::find(job_ranks_.begin(), job_ranks_.end(), blamed);
    // A rank of the job outside this group: other groups report its end.
    return found == job_ranks_.end() ? -1 : static_cast<int>(found - job_ranks_.begin());
}

void Waiter::abort(SharedRegion& region, AbortReason reason, int failed_rank) {
    std::uint32_t none = 0;
    region.abort_word().compare_exchange_strong(none, encode(reason, failed_rank),
                                                std::memory_order_seq_cst);
    for (int rank = 0; rank < region.ranks(); ++rank) {
        region.block(rank).arrivals.wake_all();
        region.block(rank).inbox.wake_all();
    }
}

void Waiter::throw_abort(const std::string& what) const {
    const std::uint32_t word = abort_word_.load(std::memory_order_acquire);
    const int failed_rank = failed_rank_of(word);
    if (failed_rank >= region_.ranks()) {
        throw Error("shm: aborted because of a rank that does not exist, during " + what);
    }
    switch (reason_of(word)) {
        case AbortReason::none:
            break;
        case AbortReason::peer_died:
            throw PeerError(job_rank(failed_rank),
                            "shm: " + name(failed_rank) + " ended while this rank was in " + what);
        case AbortReason::peer_timed_out:
            throw TimeoutError("shm: " + name(failed_rank) + " did not come to " + what +
                                   " in time, as another rank found",
                               job_rank(failed_rank));
        case AbortReason::mismatch:
            throw UsageError("shm: what " + name(failed_rank) +
                             " called does not fit what another rank called, as that one found "
                             "(at " +
                             what + ")");
        case AbortReason::peer_failed:
            throw PeerError(job_rank(failed_rank),
                            "shm: " + name(failed_rank) + " failed during " + what);
    }
    throw Error("shm: aborted for no known reason during " + what);
}

int Waiter::find_failed_rank() const {
    const std::vector<int> dead = dead_peers();
    return dead.empty() ? rank_blamed_by_agent() : dead.front();
}

void Waiter::pass_on_trouble() {
    if (const int failed_rank = find_failed_rank(); failed_rank >= 0)
        abort(AbortReason::peer_died, failed_rank);
}

std::exception_ptr Waiter::find_trouble(const std::string& during) const noexcept {
    try {
        if (is_aborted()) throw_abort(during);
        const int failed_rank = find_failed_rank();
        if (failed_rank < 0) return nullptr;
        throw PeerError(job_rank(failed_rank),
                        "shm: " + name(failed_rank) + " ended while this rank was in " + during);
    } catch (...) {
        return std::current_exception();
    }
}

void Waiter::throw_timeout(const base::Deadline& deadline, const WaitDescription& awaited) {
    std::string missing;
    const std::vector<int> ranks = awaited.missing_ranks();
    for (const int rank : ranks) missing += (missing.empty() ? "" : ", ") + name(rank);
    abort(AbortReason::peer_timed_out, ranks.empty() ? rank_ : ranks.front());
    throw TimeoutError("shm: " + awaited.operation() + " did not end within " +
                           base::to_string(deadline.timeout()) + "; " + name(rank_) +
                           " is waiting for " + (missing.empty() ? "nobody" : missing) +
                           "; is it stopped, or in other code?",
                       ranks.empty() ? std::nullopt : std::optional(job_rank(ranks.front())));
}

}  // namespace ddp::shm
