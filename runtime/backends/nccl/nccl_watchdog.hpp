// Looks after what a group has in flight, on a thread of its own, by questions that never block:
//
//   asleep   nothing in flight
//   looking  every 20 ms: which flights have landed; is there trouble?
//   judging  another rank seems gone: a short while to see whether all that flies lands anyway, as
//            it does when a rank has done its part and left
//   barking  once: the group is ended with the verdict; then back to sleep
//
// Trouble is: an error that NCCL found in the background, a deadline that has passed, and what the
// group's CPU half knows of the other ranks' lives (it has their pidfds or connections, and the
// launcher's abort word).
#pragma once

#include "backends/nccl/nccl_operation.hpp"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace ddp::nccl {

// From the first sign that another rank is gone to the verdict.
inline constexpr auto peer_grace = std::chrono::milliseconds{100};

class Watchdog {
public:
    struct Eyes {
        // What the CPU half knows; `during` is for its message. Null: nothing.
        std::function<std::exception_ptr(const std::string& during)> find_trouble;
        // The BackendError of an error in the background. Null: none.
        std::function<std::exception_ptr(const std::string& during)> find_async_error;
        std::string name;  // "rank 1": for messages
    };
    // Whether the others have yet to be told, or the CPU half knows of it.
    enum class Finder { this_rank, other_rank };
    using Bark = std::function<void(std::exception_ptr error, Finder finder)>;

    // Throws SystemError.
    Watchdog(Eyes eyes, Bark bark);
    ~Watchdog();  // stop()
    Watchdog(const Watchdog&) = delete;
    Watchdog& operator=(const Watchdog&) = delete;

    void watch(std::shared_ptr<Flight> flight);
    // Makes all flights lost that have not landed, and says what they were: for a dump.
    std::vector<std::string> lose_all() noexcept;
    // Returns when nothing is in flight any more; flights have deadlines.
    void wait_until_landed() noexcept;
    void stop() noexcept;

private:
    struct Verdict {
        std::exception_ptr error;
        Finder finder;
    };
    void run() noexcept;
    void be_patient_again();
    void land();  // lets go of flights that have ended; under the mutex
    // `late`: one whose deadline has passed, or null.
    std::optional<Verdict> judge(const Flight& oldest, const Flight* late);

    Eyes eyes_;
    Bark bark_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Flight>> flights_;  // in the order of the stream
    bool asleep_ = false;
    bool stopping_ = false;
    std::optional<base::Deadline> patience_;  // while judging
    std::exception_ptr first_trouble_;        // who goes next goes because of this one
    std::string during_;                      // the operation of first_trouble_
    std::thread thread_;
};

}  // namespace ddp::nccl
