// UcxProgress: who moves UCX's messages. Whoever waits does, without another thread's help: it
// polls for a short while, then sleeps until something comes. A thread of its own does the same
// only while messages are under way that nobody waits for. Invariant: UCX is entered with the lock
// held.
#pragma once

#include "backends/gloo/transport/ucx_worker.hpp"
#include "base/deadline.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace ddp::gloo {

class UcxProgress {
public:
    using Lock = std::unique_lock<std::mutex>;
    using Clock = base::Deadline::Clock;

    explicit UcxProgress(std::unique_ptr<UcxWorker> worker) : worker_(std::move(worker)) {}
    // Nobody waits.
    ~UcxProgress();
    UcxProgress(const UcxProgress&) = delete;
    UcxProgress& operator=(const UcxProgress&) = delete;

    Lock lock();
    const UcxLibrary& ucx() const { return worker_->library(); }
    ucp_worker_h worker() const { return worker_->handle(); }

    // These are called with the lock, and may release it for a moment.
    bool advance(Lock& held);  // whether anything has moved
    void rest(Lock& held);     // until something comes, at most a tick; or only for a turn
    // Whether the condition, which is looked at after each step, holds before the deadline.
    template <class Condition>
    bool advance_until(Lock& held, const base::Deadline& deadline, const Condition& condition) {
        const Waiter waiter(*this);
        while (!condition()) {
            if (deadline.passed()) return false;
            if (!advance(held)) rest(held);
        }
        return true;
    }

    // While one is there, its thread advances.
    class Waiter {
    public:
        explicit Waiter(UcxProgress& progress) : progress_(progress) { ++progress_.waiters_; }
        ~Waiter();
        Waiter(const Waiter&) = delete;
        Waiter& operator=(const Waiter&) = delete;

    private:
        UcxProgress& progress_;
    };

    // What is counted moves also while nobody waits, once this has been asked for. Throws
    // SystemError when there can be no more threads.
    void advance_in_background();
    void count_request() { ++requests_; }
    void uncount_request() { --requests_; }
    bool has_requests() const { return requests_ > 0; }

    // UCS_INPROGRESS; else how it has ended, and it is freed and null. Null: UCS_OK.
    ucs_status_t finish(void*& request) const;
    // Done when all that this rank has sent so far is with the kernel. Null: it is.
    void* start_flush() const;
    // Cancels what is not done, and frees all.
    void abandon(std::vector<void*>& requests) const;
    // From here on nothing moves: memory of requests that are not done is left alone.
    void stop() {
        stopped_ = true;
        changed_.notify_all();
    }

private:
    void run_in_background() noexcept;
    bool background_is_needed() const { return requests_ > 0 && waiters_ == 0 && !stopped_; }
    void sleep(Lock& held);
    void wake_others();

    std::unique_ptr<UcxWorker> worker_;
    std::mutex mutex_;
    std::atomic<int> contenders_ = 0;  // for the mutex
    std::condition_variable changed_;  // something has moved, or nobody sleeps for the others
    std::condition_variable background_needed_;
    std::optional<Clock::time_point> idle_since_;
    int requests_ = 0;
    int waiters_ = 0;
    bool somebody_sleeps_ = false;  // in the kernel, for all that wait
    bool sleeper_is_woken_ = false;
    bool stopped_ = false;
    bool ending_ = false;
    std::thread background_;  // since it was first needed
};

}  // namespace ddp::gloo
