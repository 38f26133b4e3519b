// BatchQueue alone, without a loader: what a claim, a delivery and a take do, one after the other.
// Where a test needs a second thread, it passes whichever of the two comes first.
#include "data/batch_queue.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace {

using ddp::data::BatchQueue;

BatchQueue::Item item(int value) { return {std::make_shared<int>(value), nullptr}; }
int value_of(const std::shared_ptr<void>& batch) { return *std::static_pointer_cast<int>(batch); }

}  // namespace

TEST(BatchQueue, HandsOverInOrderWhateverIsDoneFirst) {
    BatchQueue queue{3, 3};
    for (std::size_t number = 0; number < 3; ++number) EXPECT_EQ(queue.claim(), number);
    queue.deliver(2, item(12));
    queue.deliver(0, item(10));
    queue.deliver(1, item(11));
    for (const int expected : {10, 11, 12}) EXPECT_EQ(value_of(queue.take()), expected);
    EXPECT_EQ(queue.take(), nullptr);
    EXPECT_EQ(queue.claim(), std::nullopt);
}

TEST(BatchQueue, LetsNoMoreBeClaimedThanTheWindowHolds) {
    BatchQueue queue{10, 2};
    ASSERT_TRUE(queue.claim() && queue.claim());
    std::atomic<bool> claimed = false;
    std::thread preparer{[&] { claimed = queue.claim() == 2U; }};  // blocks until the take below
    queue.deliver(1, item(1));
    queue.deliver(0, item(0));
    EXPECT_FALSE(claimed);
    EXPECT_EQ(value_of(queue.take()), 0);
    preparer.join();
    EXPECT_TRUE(claimed);
}

TEST(BatchQueue, EndsABlockedClaimWhenClosed) {
    BatchQueue queue{10, 1};
    ASSERT_TRUE(queue.claim());
    std::optional<std::size_t> second = 99;
    std::thread preparer{[&] { second = queue.claim(); }};
    queue.close();
    preparer.join();
    EXPECT_EQ(second, std::nullopt);
}

TEST(BatchQueue, ThrowsAnErrorInItsPlaceAndThenEnds) {
    BatchQueue queue{5, 3};
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(queue.claim());
    queue.deliver(1, {nullptr, std::make_exception_ptr(std::runtime_error("row 7"))});
    EXPECT_EQ(queue.claim(), std::nullopt);
    queue.deliver(0, item(0));
    queue.deliver(2, item(2));
    EXPECT_EQ(value_of(queue.take()), 0);
    EXPECT_THROW(queue.take(), std::runtime_error);
    EXPECT_EQ(queue.take(), nullptr);
}

TEST(BatchQueue, FreesAUsedBatchWhereItsSuccessorIsPrepared) {
    BatchQueue queue{3, 1};
    std::weak_ptr<void> used;
    {
        ASSERT_TRUE(queue.claim());
        queue.deliver(0, item(0));
        auto batch = queue.take();
        used = batch;
        ASSERT_TRUE(queue.claim());
        queue.deliver(1, item(1));
        EXPECT_EQ(value_of(queue.take(std::move(batch))), 1);
    }
    EXPECT_FALSE(used.expired());
    ASSERT_TRUE(queue.claim());
    EXPECT_TRUE(used.expired());
}

// Each batch once and in order, whoever gets ahead: both sides run into the window's ends.
TEST(BatchQueue, LosesNothingBetweenManyThreads) {
    constexpr std::size_t batches = 20'000;
    for (const std::size_t window : {1U, 2U, 7U}) {
        std::atomic<std::size_t> alive = 0;
        std::atomic<std::size_t> most = 0;
        BatchQueue queue{batches, window};  // ends first: it still has used batches
        const auto prepare = [&] {
            while (const auto number = queue.claim()) {
                const auto now = ++alive;
                for (auto seen = most.load(); seen < now;) most.compare_exchange_weak(seen, now);
                queue.deliver(*number,
                              {std::shared_ptr<void>(new std::size_t{*number},
                                                     [&](void* batch) {
                                                         --alive;
                                                         delete static_cast<std::size_t*>(batch);
                                                     }),
                               nullptr});
            }
        };
        std::vector<std::thread> preparers;
        for (int i = 0; i < 3; ++i) preparers.emplace_back(prepare);
        std::shared_ptr<void> batch;
        std::size_t in_place = 0;
        for (std::size_t number = 0; (batch = queue.take(std::move(batch))); ++number) {
            if (*std::static_pointer_cast<std::size_t>(batch) == number) ++in_place;
        }
        for (std::thread& thread : preparers) thread.join();
        EXPECT_EQ(in_place, batches);
        EXPECT_LE(most, window + 1);
    }
}

TEST(BatchQueue, EndsABlockedTakeWhenClosed) {
    BatchQueue queue{1, 1};
    std::shared_ptr<void> batch = std::make_shared<int>(1);
    std::thread loop{[&] { batch = queue.take(); }};
    queue.close();
    loop.join();
    EXPECT_EQ(batch, nullptr);
}
