// Who waits for memory, how long, and who is too slow meanwhile; and the pace of strangers.
#include "store/server/memory_queue.hpp"

#include <gtest/gtest.h>

#include <unordered_map>

#include "store/server/listener.hpp"

namespace ddp::store {
namespace {

using namespace std::chrono_literals;
using Ids = std::vector<ClientId>;

class RoomQueueTest : public testing::Test {
protected:
    Ids too_slow(MemoryQueue::Clock::time_point now) {
        return queue.too_slow(now, [this](ClientId client) { return received[client]; });
    }

    MemoryQueue queue;
    MemoryQueue::Clock::time_point start = MemoryQueue::Clock::now();
    std::unordered_map<ClientId, std::uint64_t> received;
};

TEST_F(RoomQueueTest, KeepsTheOrderOfArrivalAndLetsThoseWithMemoryGoFirst) {
    queue.wait(1, start);
    queue.wait(2, start);
    queue.wait_first(3, start);
    EXPECT_EQ(queue.waiting(), (Ids{3, 1, 2}));
    queue.stop_waiting(1);
    EXPECT_EQ(queue.waiting(), (Ids{3, 2}));
    EXPECT_TRUE(queue.is_waiting(2));
    EXPECT_FALSE(queue.is_waiting(1));
    queue.remove(3);
    queue.remove(2);
    EXPECT_TRUE(queue.empty());
}

TEST_F(RoomQueueTest, NobodyWaitsForMoreThan30Seconds) {
    queue.wait(1, start);
    queue.wait(2, start + 1s);
    EXPECT_EQ(queue.waited_too_long(start + 29s), Ids{});
    EXPECT_EQ(queue.waited_too_long(start + 30s), Ids{1});
}

TEST_F(RoomQueueTest, ASenderThatDoesNotKeepThePaceMustGo) {
    queue.note_sender(1, 0, start);
    queue.note_sender(2, 0, start);
    queue.wait(9, start + 100s);  // until now nobody was in a hurry
    EXPECT_EQ(too_slow(start + 104s), Ids{});
    received[1] = MemoryQueue::pace_bytes - 1;
    received[2] = MemoryQueue::pace_bytes;
    EXPECT_EQ(too_slow(start + 105s), Ids{1});
    queue.remove(1);
    EXPECT_EQ(too_slow(start + 109s), Ids{});
    EXPECT_EQ(too_slow(start + 110s), Ids{2});
}

TEST_F(RoomQueueTest, ASenderThatWaitsItselfIsNotSlow) {
    queue.note_sender(1, 0, start);
    queue.wait_first(1, start);
    EXPECT_EQ(too_slow(start + 20s), Ids{});
    queue.stop_waiting(1);
    queue.wait(2, start + 20s);
    EXPECT_EQ(too_slow(start + 24s), Ids{});
    EXPECT_EQ(too_slow(start + 25s), Ids{1});
}

TEST(StrangerRate, RestsUntilTheWindowIsOverOnceThereAreTooMany) {
    StrangerRate rate;
    const auto start = StrangerRate::Clock::now();
    for (std::size_t i = 0; i < StrangerRate::most_at_once; ++i) {
        ASSERT_EQ(rate.note_end(start + 10ms), std::nullopt);
    }
    EXPECT_EQ(rate.note_end(start + 20ms), start + 30ms);  // the window began at 10 ms
    EXPECT_EQ(rate.note_end(start + 29ms), start + 30ms);
    EXPECT_EQ(rate.note_end(start + 30ms), std::nullopt);
}

}  // namespace
}  // namespace ddp::store
