// A model of how a thread that waits for another's collective sleeps: run_alone, run_front, finish
// and sleep of runtime/process_group/collective_queue.cpp, over the eventcount itself.
#include "base/eventcount.hpp"
#include "explorer/explorer.hpp"
#include "explorer/model_policy.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace explorer {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;

enum class Running { no, running, ending };

// As the code has them, and what is weakened.
struct Weakening {
    std::memory_order lock = acquire;
    std::memory_order unlock = release;
    std::memory_order complete = release;
    std::memory_order end = release;
    std::memory_order see = acquire;
    bool has_light_fence = true;
    bool has_heavy_fence = true;
    bool stores_ending = true;
    bool ending_before_look = true;
    bool looks_at_running_first = true;
};
const Weakening* weakening = nullptr;  // of the run under way

struct Policy : ModelPolicy<ddp::base::ProcessEventcountPolicy> {
    static void light_fence() {
        if (weakening->has_light_fence) explorer::light_fence();
    }
    static void heavy_fence() {
        if (weakening->has_heavy_fence) explorer::heavy_fence();
    }
};

// One operation, which the runner has taken from the queue.
struct Queue {
    Atomic<bool> taken{false};
    Atomic<Running> running{Running::running};
    Atomic<bool> completed{false};
    ddp::base::BasicEventcount<Policy> changed;
    Variable<int> result{0};
    Variable<int> guarded{0};  // what the lock guards

    void lock() {
        while (taken.exchange(true, weakening->lock)) {
            spin_until([this] { return !taken.load(relaxed); });
        }
        guarded = guarded + 1;
    }
    void unlock() { taken.store(false, weakening->unlock); }

    // CollectiveQueue::run_alone, from where the backend is done.
    void end_alone() {
        result = 42;
        const auto store_ending = [&] {
            if (weakening->stores_ending) running.store(Running::ending, relaxed);
        };
        if (weakening->ending_before_look) store_ending();
        const bool has_waiters = changed.has_waiters();
        if (!weakening->ending_before_look) store_ending();
        if (has_waiters) {
            lock();
            running.store(Running::no, relaxed);
            completed.store(true, weakening->complete);
            changed.notify_all();
            unlock();
        } else {
            completed.store(true, weakening->complete);
            running.store(Running::no, weakening->end);
        }
    }
    // CollectiveQueue::sleep. The rest after `ends` is: until that is over.
    template <class Ready>
    void sleep(const Ready& ready) {
        while (!ready()) {
            const auto key = changed.prepare_wait();
            bool ends = running.load(weakening->see) == Running::ending;
            const bool is_ready = ready();
            if (!weakening->looks_at_running_first) {
                ends = running.load(weakening->see) == Running::ending;
            }
            if (is_ready) return changed.cancel_wait();
            unlock();
            if (ends) {
                changed.cancel_wait();
                spin_until([this] { return running.load(relaxed) != Running::ending; });
            } else {
                changed.wait(key);
            }
            lock();
        }
    }
};

// Waiters of CollectiveQueue::complete, for the operation, and of its destructor, for its runner.
Result run(const Weakening& weakened, int completers, int destructors) {
    weakening = &weakened;
    return explore([=](Program& program) {
        auto queue = std::make_shared<Queue>();
        const auto see = weakening->see;
        program.thread([=] { queue->end_alone(); });
        const auto is_running = [=] { return queue->running.load(see) != Running::no; };
        for (int i = 0; i < completers; ++i) {
            program.thread([=] {
                queue->lock();
                // No other operation is queued.
                queue->sleep(
                    [&] { return queue->completed.load(see) || (!is_running() && false); });
                queue->unlock();
                require(queue->result == 42, "the result");
            });
        }
        for (int i = 0; i < destructors; ++i) {
            program.thread([=] {
                queue->lock();
                queue->sleep([&] { return !is_running(); });
                queue->unlock();
                require(queue->result == 42, "the result");
            });
        }
    });
}

TEST(QueueModel, NobodySleepsPastTheEndOfAnOperation) {
    for (const auto& [completers, destructors] : {std::pair{1, 0}, {0, 1}, {1, 1}}) {
        const Result result = run({}, completers, destructors);
        EXPECT_EQ(result.verdict, Verdict::passed) << result;
    }
}

// As it was: the runner looked for sleepers before its stores, and one that came between slept
// until its slice of 5 ms was over.
TEST(QueueModel, ALookForSleepersBeforeTheStoresNeedsAWarningBeforeIt) {
    EXPECT_EQ(run({.stores_ending = false}, 1, 0).verdict, Verdict::deadlock);
    EXPECT_EQ(run({.stores_ending = false}, 0, 1).verdict, Verdict::deadlock);
    EXPECT_EQ(run({.ending_before_look = false}, 1, 0).verdict, Verdict::deadlock);
    EXPECT_EQ(run({.looks_at_running_first = false}, 1, 0).verdict, Verdict::deadlock);
}

TEST(QueueModel, NeedsEachOfItsOrders) {
    EXPECT_EQ(run({.lock = relaxed}, 1, 1).verdict, Verdict::data_race);
    EXPECT_EQ(run({.unlock = relaxed}, 1, 1).verdict, Verdict::data_race);
    EXPECT_EQ(run({.complete = relaxed}, 1, 0).verdict, Verdict::data_race);
    EXPECT_EQ(run({.end = relaxed}, 0, 1).verdict, Verdict::data_race);
    EXPECT_EQ(run({.see = relaxed}, 1, 0).verdict, Verdict::data_race);
    EXPECT_EQ(run({.has_light_fence = false}, 1, 0).verdict, Verdict::deadlock);
    EXPECT_EQ(run({.has_heavy_fence = false}, 1, 0).verdict, Verdict::deadlock);
}

}  // namespace
}  // namespace explorer
