// How a rank waits for what another publishes in the region, and everything that can end a wait: it
// came, a peer died, somebody aborted, the deadline passed. First pauses, then sched_yield for up
// to 1 ms (less in a group's first waits), then futex in slices of 20 ms, after each of which the
// peers' pidfds and the abort words are looked at. Any number of threads of a rank may wait.
#pragma once

#include "backends/shm/region/host_kernel.hpp"
#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/wait/core_sharing.hpp"
#include "base/deadline.hpp"
#include "base/pause_cpu.hpp"
#include "base/unique_fd.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp::shm {

enum class AbortReason : std::uint32_t { none, peer_died, peer_timed_out, mismatch, peer_failed };

class Waiter {
public:
    // What is awaited, for when it does not come.
    struct Awaited {
        std::function<std::string()> what;          // "all_reduce of ..., operation 7"
        std::function<std::vector<int>()> missing;  // the ranks that have not come
    };

    // Reads, for good, each rank's pid from the region, where all ranks must have written theirs,
    // and opens a pidfd for it. Throws UsageError where that is another user's process, or one that
    // cannot be a rank.
    // `agent_abort`: the control region's abort word (1 + the job's rank to blame), or null.
    // `job_ranks`: each rank's number in the job, for messages; empty: the same.
    Waiter(SharedRegion& region, int rank, const std::atomic<std::uint32_t>* agent_abort,
           std::span<const int> job_ranks, const HostKernel& kernel = HostKernel::real());

    // Blocks until `ready()`, which reads what peers publish.
    // `bell()` is where to sleep meanwhile, `awaited()` makes the Awaited, only in need. Throws
    // PeerError, TimeoutError; then every other rank throws too.
    template <class Ready, class GetBell, class MakeAwaited>
    void wait(const Ready& ready, const GetBell& bell, const base::Deadline& deadline,
              const MakeAwaited& awaited) {
        if (poll_eagerly(ready) || poll(ready)) return;
        wait_long(std::cref(ready), std::cref(bell), deadline, std::cref(awaited));
    }
    // Sleeps until the bell rings, or 20 ms. Throws as wait.
    void nap(const std::function<Bell&()>& bell, const std::function<bool()>& ready,
             const Awaited& awaited);

    // For waits that poll by themselves, after their `round`th fruitless look: a pause, as long as
    // waits pause, then gives the core away.
    void rest(std::uint64_t round);

    // The deadline has passed: aborts and throws TimeoutError.
    [[noreturn]] void give_up(const base::Deadline& deadline, const Awaited& awaited);

    // A few looks, back to back.
    template <class Ready>
    static bool poll_eagerly(const Ready& ready) {
        for (int i = 0; i < 16; ++i) {
            if (ready()) return true;
        }
        return false;
    }
    // After a store of what others may wait for at this bell. Without a memory barrier between the
    // two, which would last until all that this rank wrote has left its core: the sleeper makes it
    // (base/eventcount.hpp).
    static void ring(Bell& bell) { bell.notify_all(); }

    // Ends every wait on every rank. The first call wins.
    void abort(AbortReason reason, int culprit) { abort(region_, reason, culprit); }
    static void abort(SharedRegion& region, AbortReason reason, int culprit);
    bool is_aborted() const { return abort_word_.load(std::memory_order_seq_cst) != 0; }
    [[noreturn]] void throw_abort(const std::string& what) const;  // after is_aborted()

    // What throw_abort would throw; also when a peer is only gone, or blamed by the agent. Null:
    // there is nothing.
    std::exception_ptr find_trouble(const std::string& during) const noexcept;
    void pass_on_trouble();  // aborts because of it

    bool is_dead(int rank) const;
    // As it was when this was made, and checked: never what the region says now. 0: has ended.
    pid_t pid(int rank) const {
        const auto index = static_cast<std::size_t>(rank);
        return gone_[index] ? 0 : pids_[index];
    }
    const std::vector<pid_t>& pids() const { return pids_; }
    const HostKernel& kernel() const { return kernel_; }
    int job_rank(int rank) const;
    std::string name(int rank) const;  // "rank 1 (pid 77)"

private:
    template <class Ready>
    bool poll(const Ready& ready) const {
        for (std::uint64_t i = 0; i < spins_; ++i) {
            base::pause_cpu();
            if (ready()) return true;
        }
        return false;
    }
    void wait_long(const std::function<bool()>& ready, const std::function<Bell&()>& bell,
                   const base::Deadline& deadline, const std::function<Awaited()>& awaited);
    void watch(int peer);
    void look_for_trouble(const std::function<bool()>& ready, const Awaited& awaited);
    std::vector<int> dead_peers() const;
    int find_culprit() const;     // gone, or blamed by the agent; -1: nobody
    int blamed_by_agent() const;  // a rank of this group, -1: nobody

    SharedRegion& region_;
    const HostKernel& kernel_;
    std::atomic<std::uint32_t>& abort_word_;
    std::uint64_t spins_;
    int rank_;
    CoreSharing cores_;
    const std::atomic<std::uint32_t>* agent_abort_;
    std::vector<int> job_ranks_;
    std::atomic<int> long_waits_ = 0;     // counted no further than needed
    std::vector<pid_t> pids_;             // by rank
    std::vector<base::UniqueFd> pidfds_;  // by rank; none for this one
    std::vector<bool> gone_;              // had already died when we looked
};

}  // namespace ddp::shm
