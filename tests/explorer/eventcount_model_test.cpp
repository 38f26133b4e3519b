// base/eventcount.hpp itself, in the explorer: as it is specified no wake-up is lost, and each
// order that its specification calls needed is needed.
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

// The eventcount's own orders and fences, on modelled atomics.
using AsSpecified = ModelPolicy<ddp::base::EventcountPolicy>;
// Where the kernel refuses heavy fences: both are full ones.
struct WithFullFences : AsSpecified {
    static void light_fence() { fence(std::memory_order_seq_cst); }
    static void heavy_fence() { fence(std::memory_order_seq_cst); }
};
struct NoLightFence : AsSpecified {
    static void light_fence() {}
};
struct NoHeavyFence : AsSpecified {
    static void heavy_fence() {}
};
struct LightForHeavyFence : AsSpecified {
    static void heavy_fence() { explorer::light_fence(); }
};
struct AcqRelForFullFence : WithFullFences {
    static void light_fence() { fence(std::memory_order_acq_rel); }
};
struct RelaxedEpochLoad : AsSpecified {
    static constexpr auto load_epoch = relaxed;
};
struct RelaxedEpochAdvance : AsSpecified {
    static constexpr auto advance_epoch = relaxed;
};

template <class Policy>
struct Shared {
    ddp::base::BasicEventcount<Policy> changed;
    Atomic<int> turn{0};
    Atomic<int> count{0};
    Variable<int> data{0};
};

// One thread publishes, the others wait for it.
template <class Policy>
Result publish_to(int waiters, std::memory_order store = release,
                  std::memory_order load = acquire) {
    return explore([=](Program& program) {
        auto shared = std::make_shared<Shared<Policy>>();
        program.thread([=] {
            shared->data = 42;
            shared->turn.store(1, store);
            shared->changed.notify_all();
        });
        for (int waiter = 0; waiter < waiters; ++waiter) {
            program.thread([=] {
                shared->changed.await([&] { return shared->turn.load(load) == 1; });
                require(shared->data == 42);
            });
        }
    });
}

// Both wait and notify by turns.
template <class Policy>
Result ping_pong() {
    return explore([](Program& program) {
        auto shared = std::make_shared<Shared<Policy>>();
        for (int me = 0; me < 2; ++me) {
            program.thread([=] {
                for (int turn = me; turn < 4; turn += 2) {
                    shared->changed.await([&] { return shared->turn.load(acquire) == turn; });
                    shared->data = turn;
                    shared->turn.store(turn + 1, release);
                    shared->changed.notify_all();
                }
            });
        }
    });
}

// The last of two notifiers makes the condition hold.
template <class Policy>
Result two_notifiers() {
    return explore([](Program& program) {
        auto shared = std::make_shared<Shared<Policy>>();
        for (int notifier = 0; notifier < 2; ++notifier) {
            program.thread([=] {
                shared->count.fetch_add(1, release);
                shared->changed.notify_all();
            });
        }
        program.thread(
            [=] { shared->changed.await([&] { return shared->count.load(acquire) == 2; }); });
    });
}

template <class Policy>
void expect_no_lost_wake_up() {
    for (const Result& result : {publish_to<Policy>(1), publish_to<Policy>(2), ping_pong<Policy>(),
                                 two_notifiers<Policy>()}) {
        EXPECT_EQ(result.verdict, Verdict::passed) << result;
        std::printf("%zu runs, %zu states\n", result.runs, result.states);
    }
}

TEST(EventcountModel, LosesNoWakeUp) { expect_no_lost_wake_up<AsSpecified>(); }

TEST(EventcountModel, LosesNoWakeUpWhereTheKernelRefusesHeavyFences) {
    expect_no_lost_wake_up<WithFullFences>();
}

TEST(EventcountModel, NeedsEachOfItsOrders) {
    EXPECT_EQ(publish_to<NoLightFence>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(publish_to<NoHeavyFence>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(publish_to<LightForHeavyFence>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(publish_to<AcqRelForFullFence>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(publish_to<RelaxedEpochLoad>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(publish_to<RelaxedEpochAdvance>(1).verdict, Verdict::deadlock);
}

TEST(EventcountModel, LeavesTheOrderOfTheDataToTheConditionsOwnAtomics) {
    EXPECT_EQ(publish_to<AsSpecified>(1, relaxed, acquire).verdict, Verdict::data_race);
    EXPECT_EQ(publish_to<AsSpecified>(1, release, relaxed).verdict, Verdict::data_race);
}

// The order of steps, too.
TEST(EventcountModel, NeedsItsStepsInTheirOrder) {
    const auto run = [](auto&& notifier, auto&& waiter) {
        return explore([&](Program& program) {
                   auto shared = std::make_shared<Shared<AsSpecified>>();
                   program.thread([shared, &notifier] { notifier(*shared); });
                   program.thread([shared, &waiter] { waiter(*shared); });
               })
            .verdict;
    };
    const auto notify = [](auto& s) {
        s.turn.store(1, release);
        s.changed.notify_all();
    };
    const auto await = [](auto& s) { s.changed.await([&] { return s.turn.load(acquire) == 1; }); };
    EXPECT_EQ(run(notify, await), Verdict::passed);
    const auto look_before_store = [](auto& s) {
        const bool has_waiters = s.changed.has_waiters();
        s.turn.store(1, release);
        if (has_waiters) s.changed.wake_all();
    };
    EXPECT_EQ(run(look_before_store, await), Verdict::deadlock);
    const auto look_before_prepare = [](auto& s) {
        if (s.turn.load(acquire) != 1) s.changed.wait(s.changed.prepare_wait());
    };
    EXPECT_EQ(run(notify, look_before_prepare), Verdict::deadlock);
}

}  // namespace
}  // namespace explorer
