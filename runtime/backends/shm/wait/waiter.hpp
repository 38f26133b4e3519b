// How a rank waits for what a peer publishes in the region, and all that can end the wait: the
// value has come, a peer died, a rank aborted the group, the deadline passed. A wait first polls
// with pauses, then calls sched_yield for up to 1 ms (tuning.hpp; 50 us in a group's first waits),
// then sleeps
// in futex slices of 20 ms, after each of which it checks the peers' pidfds and the abort words.
// Invariant: a wait that ends by an error has aborted the group, so all ranks' waits end. Any
// number of threads of a rank may wait.
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
    // For messages, and for finding out whether the death of a peer matters to the wait.
    struct WaitDescription {
        std::function<std::string()> operation;           // "all_reduce of ..., operation 7"
        std::function<std::vector<int>()> missing_ranks;  // those that have not arrived
    };

    // Reads each rank's pid from the region, once, and opens a pidfd for it. All ranks must have
    // written their pids. Throws UsageError where one is another user's process, or cannot be a
    // rank.
    // `agent_abort`: the control region's abort word (1 + the job's rank to blame), or null.
    // `job_ranks`: each rank's number in the job, for messages; empty: the same.
    Waiter(SharedRegion& region, int rank, const std::atomic<std::uint32_t>* agent_abort,
           std::span<const int> job_ranks, const HostKernel& kernel = HostKernel::real());

    // Blocks until `ready()`, which reads what peers publish.
    // `doorbell()` is where to sleep, `describe()` makes a WaitDescription for a long wait. Throws
    // PeerError, TimeoutError; then every other rank throws too.
    template <class Ready, class GetDoorbell, class Describe>
    void wait(const Ready& ready, const GetDoorbell& doorbell, const base::Deadline& deadline,
              const Describe& describe) {
        if (poll_eagerly(ready) || poll(ready)) return;
        wait_long(std::cref(ready), std::cref(doorbell), deadline, std::cref(describe));
    }
    // Sleeps until a notification at the doorbell, 20 ms at most. Throws as wait.
    void wait_slice(const std::function<Doorbell&()>& doorbell, const std::function<bool()>& ready,
                    const WaitDescription& awaited);

    // For callers that poll by themselves, after `round` polls in vain: a pause, and sched_yield
    // where a wait would begin to call it.
    void back_off(std::uint64_t round);

    // The deadline has passed: aborts and throws TimeoutError.
    [[noreturn]] void throw_timeout(const base::Deadline& deadline, const WaitDescription& awaited);

    // A few polls without pauses.
    template <class Ready>
    static bool poll_eagerly(const Ready& ready) {
        for (int i = 0; i < 16; ++i) {
            if (ready()) return true;
        }
        return false;
    }
    // After a store that ranks may wait for at this doorbell. There is no memory barrier between
    // the two, which would last until all stores of this rank have left its core: the waiter's
    // heavy fence stands in for it (base/eventcount.hpp).
    static void notify(Doorbell& doorbell) { doorbell.notify_all(); }

    // Ends every wait on every rank. The first call wins.
    void abort(AbortReason reason, int failed_rank) { abort(region_, reason, failed_rank); }
    static void abort(SharedRegion& region, AbortReason reason, int failed_rank);
    bool is_aborted() const { return abort_word_.load(std::memory_order_seq_cst) != 0; }
    [[noreturn]] void throw_abort(const std::string& what) const;  // after is_aborted()

    // What throw_abort would throw; also for a peer that has exited, or that the agent blames,
    // without an abort so far. Null: nothing.
    std::exception_ptr find_trouble(const std::string& during) const noexcept;
    void pass_on_trouble();  // aborts the group because of find_trouble

    bool is_dead(int rank) const;
    // As read and checked by the constructor, never what the region says now. 0: has ended.
    pid_t pid(int rank) const {
        const auto index = static_cast<std::size_t>(rank);
        return exited_[index] ? 0 : pids_[index];
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
    void wait_long(const std::function<bool()>& ready, const std::function<Doorbell&()>& doorbell,
                   const base::Deadline& deadline,
                   const std::function<WaitDescription()>& describe);
    void watch(int peer);
    void check_for_failure(const std::function<bool()>& ready, const WaitDescription& awaited);
    std::vector<int> dead_peers() const;
    int find_failed_rank() const;      // exited, or blamed by the agent; -1: none
    int rank_blamed_by_agent() const;  // of this group; -1: none

    SharedRegion& region_;
    const HostKernel& kernel_;
    std::atomic<std::uint32_t>& abort_word_;
    std::uint64_t spins_;
    std::chrono::microseconds yield_time_;
    int rank_;
    CoreSharing cores_;
    const std::atomic<std::uint32_t>* agent_abort_;
    std::vector<int> job_ranks_;
    std::atomic<int> long_waits_ = 0;     // counted up to first_waits
    std::vector<pid_t> pids_;             // by rank
    std::vector<base::UniqueFd> pidfds_;  // by rank; none for this one
    std::vector<bool> exited_;            // had exited before the constructor could open a pidfd
};

}  // namespace ddp::shm
