// Transfers beside each other: whoever sleeps because nothing moves must notice a transfer that is
// started meanwhile, not wait for the end of its sleep.
#include "backends/shm/shm_backend.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using ddp::backends::Direction;
using ddp::base::Deadline;
using Clock = std::chrono::steady_clock;

// Two ranks of this process.
class ShmTransfers : public ::testing::Test {
protected:
    static std::shared_ptr<ddp::shm::SharedRegion> make_region() {
        auto region = ddp::shm::SharedRegion::create(2, ddp::shm::make_tuning(2, 2, ""));
        for (const int rank : {0, 1}) region->introduce(rank);
        return region;
    }
    std::shared_ptr<ddp::shm::SharedRegion> region = make_region();
    ddp::shm::ShmBackend first{region, 0}, second{region, 1};
    char byte = 0;
};

// Two ranks whose messages go through their slots in parts, on any processor.
class ShmColoring : public ::testing::Test {
protected:
    static std::shared_ptr<ddp::shm::SharedRegion> make_region() {
        const auto tuning = ddp::shm::make_tuning(2, 2, "rotating_bytes=4K,rotating_room=2M");
        auto region = ddp::shm::SharedRegion::create(2, tuning);
        for (const int rank : {0, 1}) region->introduce(rank);
        return region;
    }
    std::vector<std::byte> sent_and_received(std::vector<std::byte> sent) {
        std::vector<std::byte> received(sent.size());
        const auto send = first.start_transfer({Direction::send, 1, sent.data(), sent.size()});
        const auto receive =
            second.start_transfer({Direction::receive, 0, received.data(), received.size()});
        while (!send->is_done() || !receive->is_done()) {
            if (!send->is_done()) send->advance();
            if (!receive->is_done()) receive->advance();
        }
        return received;
    }
    std::shared_ptr<ddp::shm::SharedRegion> region = make_region();
    ddp::shm::ShmBackend first{region, 0}, second{region, 1};
};

TEST_F(ShmColoring, WritesAnotherPartOfASlotEachTime) {
    for (std::size_t message = 0; message <= ddp::shm::channel_slots; ++message) {
        const std::vector<std::byte> sent(region->channel_slot_bytes(), std::byte(1 + message));
        EXPECT_EQ(sent_and_received(sent), sent);
    }
    EXPECT_EQ(*region->channel_slot(0, 1, 0), std::byte{1}) << "the last one lies beside it";
}

TEST_F(ShmColoring, KeepsMessagesOfAllSizesApart) {
    std::mt19937 random(7);
    for (int message = 0; message < 300; ++message) {
        std::vector<std::byte> sent(random() % (random() % 2 == 0 ? 6'000 : 250'000));
        for (std::byte& one : sent) one = static_cast<std::byte>(random());
        ASSERT_EQ(sent_and_received(sent), sent) << "message " << message;
    }
}

// Messages of two ranks to each other, some under way at once, each in turn or in bursts of one
// direction: their chunks lie in each other's places, and none where another one is read.
class ShmSwapping : public ::testing::TestWithParam<const char*> {
protected:
    struct Message {
        std::vector<std::byte> bytes;
        std::unique_ptr<ddp::backends::PendingTransfer> transfer;
    };
    // How long the n-th message of that rank is, and what is in it.
    static std::vector<std::byte> make_message(int rank, int number) {
        std::mt19937 random(static_cast<unsigned>(2 * number + rank));
        const std::size_t kinds[] = {0, 8, 500, 3'000, 20'000, 70'000, 300'000};
        std::vector<std::byte> bytes(random() % (kinds[random() % 7] + 1));
        for (std::size_t i = 0; i < bytes.size(); i += 61)
            bytes[i] = static_cast<std::byte>(random());
        return bytes;
    }
    static void exchange(const std::shared_ptr<ddp::shm::SharedRegion>& region, int rank,
                         int messages) {
        ddp::shm::ShmBackend backend(region, rank);
        std::mt19937 random(static_cast<unsigned>(rank));
        std::deque<Message> sends, receives;
        int sent = 0, received = 0;
        const Deadline deadline = Deadline::after(60s);
        while (sent < messages || received < messages || !sends.empty() || !receives.empty()) {
            ASSERT_FALSE(deadline.passed());
            const unsigned wish = random() % 4;
            if (wish == 0 && sent < messages && sends.size() < 4) {
                Message& one = sends.emplace_back(Message{make_message(rank, sent++), nullptr});
                one.transfer = backend.start_transfer(
                    {Direction::send, 1 - rank, one.bytes.data(), one.bytes.size()});
            }
            if (wish == 1 && received < messages && receives.size() < 4) {
                const std::size_t bytes = make_message(1 - rank, received).size();
                Message& one =
                    receives.emplace_back(Message{std::vector<std::byte>(bytes), nullptr});
                one.transfer =
                    backend.start_transfer({Direction::receive, 1 - rank, one.bytes.data(), bytes});
                ++received;
            }
            for (Message& one : sends) one.transfer->advance();
            for (Message& one : receives) one.transfer->advance();
            if (!sends.empty() && sends.front().transfer->is_done()) sends.pop_front();
            if (receives.empty() || !receives.front().transfer->is_done()) {
                std::this_thread::yield();
                continue;
            }
            const int number = received - static_cast<int>(receives.size());
            ASSERT_EQ(receives.front().bytes, make_message(1 - rank, number)) << number;
            receives.pop_front();
        }
    }
};

TEST_P(ShmSwapping, KeepsMessagesOfBothDirectionsApart) {
    const auto tuning = ddp::shm::make_tuning(2, 2, GetParam());
    const auto region = ddp::shm::SharedRegion::create(2, tuning);
    for (const int rank : {0, 1}) region->introduce(rank);
    const auto run = [&](int rank) {
        try {
            exchange(region, rank, 1'500);
        } catch (const std::exception& error) {
            ADD_FAILURE() << "rank " << rank << ": " << error.what();
        }
    };
    std::jthread other(run, 1);
    run(0);
}
INSTANTIATE_TEST_SUITE_P(Tunings, ShmSwapping,
                         ::testing::Values("swapped_slots=1,rotating_bytes=4K,rotating_room=2M",
                                           "swapped_slots=1,rotating_bytes=1,rotating_room=64K",
                                           "swapped_slots=1,rotating_bytes=0",
                                           "swapped_slots=1,streaming_output_bytes=1",
                                           "swapped_slots=1,direct_bytes_min=1,direct_bytes_max=1M",
                                           "swapped_slots=0"));

// One thread waits for all transfers, asleep beside the first of them.
TEST(ShmTransfersOfThree, NoticeTheDeathOfAnyPeer) {
    const auto region = ddp::shm::SharedRegion::create(3, ddp::shm::make_tuning(3, 2, ""));
    for (const int rank : {0, 1, 2}) region->introduce(rank);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    region->block(2).pid.store(child);
    ddp::shm::ShmBackend backend(region, 0);
    char from_living = 0, from_dead = 0;
    const auto living = backend.start_transfer({Direction::receive, 1, &from_living, 1});
    const auto dead = backend.start_transfer({Direction::receive, 2, &from_dead, 1});
    EXPECT_FALSE(living->advance());
    EXPECT_FALSE(dead->advance());
    try {
        living->wait_a_little(Deadline::after(1h));
        ADD_FAILURE() << "rank 2 is dead";
    } catch (const ddp::PeerError& error) {
        EXPECT_EQ(error.rank(), 2);
    }
}

// Whatever can move keeps one awake that has nothing to move itself.
TEST_F(ShmTransfers, DoNotSleepBesideOneThatCanMove) {
    const auto open = first.start_transfer({Direction::receive, 1, &byte, 1});
    EXPECT_FALSE(open->advance());
    const auto begin = Clock::now();
    for (int i = 0; i < 100; ++i) {
        const auto send = first.start_transfer({Direction::send, 1, &byte, 1});
        open->wait_a_little(Deadline::after(1h));
        EXPECT_TRUE(send->advance());
        const auto receive = second.start_transfer({Direction::receive, 0, &byte, 1});
        EXPECT_TRUE(receive->advance());
    }
    EXPECT_LT(Clock::now() - begin, 1s) << "100 sleeps of 20 ms";
}

TEST_F(ShmTransfers, WakeWhenAnotherIsStarted) {
    const auto open = first.start_transfer({Direction::receive, 1, &byte, 1});
    EXPECT_FALSE(open->advance());
    constexpr int rounds = 60;
    std::atomic<ddp::backends::PendingTransfer*> started{nullptr};
    std::atomic<int> moved{0};
    int long_naps = 0;
    std::jthread sleeper([&] {
        while (moved < rounds) {
            const auto begin = Clock::now();
            open->wait_a_little(Deadline::after(1h));
            if (Clock::now() - begin >= 20ms) ++long_naps;
            auto* const one = started.exchange(nullptr);
            if (one != nullptr && one->advance()) ++moved;
        }
    });
    for (int i = 0; i < rounds; ++i) {
        while (!region->block(0).inbox.has_waiters()) std::this_thread::yield();
        const auto send = first.start_transfer({Direction::send, 1, &byte, 1});
        started = send.get();
        while (moved == i) std::this_thread::yield();
        EXPECT_TRUE(second.start_transfer({Direction::receive, 0, &byte, 1})->advance());
    }
    sleeper.join();
    EXPECT_LT(long_naps, rounds / 2) << "each slept its 20 ms to the end";
}

TEST_F(ShmTransfers, GoOneAfterAnotherInAChannel) {
    int sent[] = {1, 2, 3}, got[] = {0, 0, 0};
    std::vector<std::unique_ptr<ddp::backends::PendingTransfer>> pending;
    for (int i = 0; i < 3; ++i) {
        pending.push_back(second.start_transfer({Direction::send, 0, &sent[i], sizeof(int)}));
    }
    for (int i = 0; i < 3; ++i) {
        pending.push_back(first.start_transfer({Direction::receive, 1, &got[i], sizeof(int)}));
    }
    EXPECT_FALSE(pending[2]->advance()) << "the first comes first";
    for (const auto& one : pending) {
        EXPECT_TRUE(one->advance());
        EXPECT_TRUE(one->is_done());
    }
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i], sent[i]);
}

}  // namespace
