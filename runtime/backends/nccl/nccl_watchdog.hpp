// Watchdog: looks after what a group has in flight, on a thread of its own:
//
//   asleep      nothing is in flight
//   polling     every 20 ms: which operations have completed; is there trouble?
//   in grace    another rank seems gone: a short while to see whether what is in flight completes
//               anyway, as it does when a rank has done its part and left
//   ending      once: the group is ended with the failure; then back to sleep
//
// An operation is in flight from before its launch, in which NCCL or CUDA may keep its thread; one
// that goes into a graph until it is launched.
// Trouble is: an error that NCCL found in the background, a deadline that has passed, and what the
// group's CPU half knows of the other ranks' lives (it has their pidfds or connections, and the
// launcher's abort word). A question to CUDA may find the driver's lock held, by a cudaFree that
// waits for a kernel which never ends: so it is asked without the mutex, and when an answer is late
// a second thread looks for trouble, without CUDA. The end of the group lets CUDA go on.
// Invariants: the group is ended at most once; nobody waits for CUDA under the mutex.
#pragma once

#include "backends/nccl/block_pool.hpp"
#include "backends/nccl/nccl_operation.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace ddp::nccl {

// From the first sign that another rank is gone until the group is ended.
inline constexpr auto peer_grace = std::chrono::milliseconds{100};

class Watchdog {
public:
    struct Probes {
        // What the CPU half knows; `during` is for its message. Null: nothing.
        std::function<std::exception_ptr(const std::string& during)> find_trouble;
        // The BackendError of an error in the background. Null: none.
        std::function<std::exception_ptr(const std::string& during)> find_async_error;
        std::string name;  // "rank 1": for messages
        // First on the thread: it has to use the group's GPU, or each question opens another.
        std::function<void()> use_device = {};
    };
    // Whether the others have yet to be told, or the CPU half knows of it.
    enum class Finder { this_rank, other_rank };
    using EndGroup = std::function<void(std::exception_ptr error, Finder finder)>;

    // Throws SystemError.
    Watchdog(Probes probes, EndGroup end_group);
    ~Watchdog();  // stop()
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void watch(std::shared_ptr<InFlightOperation> operation);
    // Makes all operations aborted that are not known to have completed, and says what they were:
    // for a dump. Asks CUDA nothing.
    std::vector<std::string> abort_all() noexcept;
    // Returns when nothing is in flight any more; operations have deadlines.
    void wait_until_completed() noexcept;
    void stop() noexcept;

private:
    struct Failure {
        std::exception_ptr error;
        Finder finder;
    };
    void run() noexcept;
    void look_after_run() noexcept;
    void reset_grace();
    void drop_ended(std::unique_lock<std::mutex>& lock);  // gives it up for a while
    // Of the operations that are there, at least one; gives the mutex up for a while.
    std::optional<Failure> diagnose(std::unique_lock<std::mutex>& lock);
    void note_look(bool begins);

    Probes probes_;
    EndGroup end_group_;
    std::mutex mutex_;
    std::condition_variable changed_;
    using Operation = std::shared_ptr<InFlightOperation>;
    std::deque<Operation, PoolAllocator<Operation>> operations_{
        PoolAllocator<Operation>(std::make_shared<BlockPool>())};  // as on the stream
    bool asleep_ = false;
    bool stopping_ = false;
    std::optional<base::Deadline> grace_;  // while in grace
    std::exception_ptr first_trouble_;     // the ranks that go later go because of it
    std::string during_;                   // the operation of first_trouble_
    // Of the question to CUDA that is under way, in the clock's ticks; 0: none.
    std::atomic<base::Deadline::Clock::rep> looks_since_ = 0;
    std::thread thread_;
    bool ended_ = false;  // thread_ has
    std::thread second_;
};

}  // namespace ddp::nccl
