// The queue of collectives on a backend that only takes notes: who runs an operation, in what
// order, one at a time, and what an error does to the others.
#include "process_group/collective_queue.hpp"
#include "contract/rank_record.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "process_group/comes_true.hpp"

namespace {

using namespace std::chrono_literals;
using ddp::backends::Call;
using ddp::process_group::CollectiveOperation;
using ddp::process_group::CollectiveQueue;
using ddp::testing::comes_true;
using Operation = std::unique_ptr<ddp::process_group::CollectiveOperation>;

struct Notes : ddp::backends::Backend {
    ddp::Backend kind() const override { return ddp::Backend::shm; }
    void run(const Call&, std::uint64_t sequence, const ddp::base::Deadline&) override {
        EXPECT_EQ(inside.fetch_add(1), 0) << "two at once";
        if (on_run) on_run(sequence);
        {
            const std::lock_guard lock(mutex);
            order.push_back(sequence);
            thread = std::this_thread::get_id();
        }
        inside.fetch_sub(1);
        if (sequence == fails) throw ddp::PeerError(1, "it failed");
    }
    std::shared_ptr<void> provide_memory(const ddp::backends::Call&, std::uint64_t,
                                         const ddp::base::Deadline&) override {
        return {};
    }
    std::unique_ptr<ddp::backends::PendingTransfer> start_transfer(
        const ddp::backends::Transfer&) override {
        return nullptr;
    }
    void fail() noexcept override { ++told; }

    std::function<void(std::uint64_t)> on_run;
    std::uint64_t fails = 0;
    std::atomic<int> told{0};  // how often the other ranks were
    std::atomic<int> inside{0};
    std::mutex mutex;
    std::vector<std::uint64_t> order;
    std::thread::id thread;  // of the last
};

class CollectiveQueueTest : public ::testing::Test {
protected:
    Operation start() { return queue->start(Call{}, 1h); }
    std::vector<std::uint64_t> first(std::size_t count) {
        std::vector<std::uint64_t> numbers(count);
        for (std::size_t i = 0; i < count; ++i) numbers[i] = i + 1;
        return numbers;
    }

    std::shared_ptr<Notes> notes = std::make_shared<Notes>();
    std::unique_ptr<ddp::contract::ControlPage> page =
        std::make_unique<ddp::contract::ControlPage>();
    std::unique_ptr<CollectiveQueue> queue =
        std::make_unique<CollectiveQueue>(notes, *page, CollectiveQueue::RecordedGroup{7, 2});
};

// Unless the scheduler lets the other thread come first, which it may, but not a thousand times.
TEST_F(CollectiveQueueTest, RunsOnTheThreadThatWaitsAtOnce) {
    bool own = false;
    for (int i = 0; i < 1'000 && !own; ++i) {
        start()->wait();
        own = notes->thread == std::this_thread::get_id();
    }
    EXPECT_TRUE(own);
}

TEST_F(CollectiveQueueTest, RecordsEachOperationOnTheRanksPage) {
    using ddp::contract::Phase;
    using ddp::contract::RankRecord;
    notes->on_run = [&](std::uint64_t sequence) {
        const RankRecord record = ddp::contract::read_page(*page);
        ASSERT_EQ(record.groups.size(), 1U);
        EXPECT_EQ(record.groups[0].id, 7U);
        EXPECT_EQ(record.groups[0].size, 2);
        EXPECT_TRUE(record.groups[0].is_waiting());
        const auto* const operation = record.find_operation(7, sequence);
        ASSERT_NE(operation, nullptr);
        EXPECT_FALSE(operation->ended);
    };
    notes->fails = 2;
    start()->wait();
    EXPECT_NE(page->phase, static_cast<std::uint32_t>(Phase::failed));
    EXPECT_THROW(start()->wait(), ddp::PeerError);
    EXPECT_EQ(page->phase, static_cast<std::uint32_t>(Phase::failed));
    queue.reset();
    const RankRecord record = ddp::contract::read_page(*page);
    EXPECT_TRUE(record.find_operation(7, 1)->ended);
    EXPECT_FALSE(record.find_operation(7, 2)->ended);
    EXPECT_EQ(record.groups[0].end, ddp::contract::GroupEnd::failed);
}

std::size_t threads_of_this_process() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<std::size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST_F(CollectiveQueueTest, NeedsNoThreadToRunWhatIsWaitedFor) {
    std::thread([] {}).join();  // with the first one comes a sanitizer's own
    const std::size_t before = threads_of_this_process();
    queue->run(Call{}, 1h);
    EXPECT_EQ(notes->thread, std::this_thread::get_id());
    EXPECT_EQ(threads_of_this_process(), before);
    start()->wait();
    EXPECT_EQ(threads_of_this_process(), before + 1);
    notes->fails = 3;
    EXPECT_THROW(queue->run(Call{}, 1h), ddp::PeerError);
    EXPECT_THROW(queue->run(Call{}, 1h), ddp::PeerError) << "the group has failed";
    EXPECT_EQ(notes->order, first(3));
}

TEST_F(CollectiveQueueTest, RunsWithoutAnybodyWaiting) {
    for (int i = 0; i < 20; ++i) {
        const Operation operation = start();
        EXPECT_TRUE(comes_true([&] { return operation->is_completed(); })) << i;
        EXPECT_NE(notes->thread, std::this_thread::get_id());
    }
}

TEST_F(CollectiveQueueTest, RunsInOrderWhoeverWaitsForWhat) {
    constexpr std::size_t count = 300;
    std::vector<Operation> operations;
    for (std::size_t i = 0; i < count; ++i) operations.push_back(start());
    {
        std::vector<std::jthread> waiters;
        for (std::size_t k = 0; k < 3; ++k) {
            waiters.emplace_back([&, k] {
                for (std::size_t i = count; i-- > 0;) {
                    if (i % 3 == k) operations[i]->wait();
                }
            });
        }
    }
    EXPECT_EQ(notes->order, first(count));
}

TEST_F(CollectiveQueueTest, LeavesTheRestToItsThreadWhenAWaitIsOver) {
    const Operation one = start();
    const Operation two = start();
    one->wait();
    EXPECT_TRUE(comes_true([&] { return two->is_completed(); }));
}

TEST_F(CollectiveQueueTest, EndsEverythingWithTheFirstError) {
    notes->fails = 2;
    const Operation operations[] = {start(), start(), start()};
    EXPECT_THROW(operations[2]->wait(), ddp::PeerError);
    EXPECT_NO_THROW(operations[0]->wait());
    EXPECT_THROW(operations[1]->wait(), ddp::PeerError);
    EXPECT_THROW(operations[1]->wait(), ddp::PeerError) << "again";
    EXPECT_THROW(start(), ddp::PeerError);
    EXPECT_EQ(notes->order, first(2)) << "the third never ran";
}

// The backend knows nothing of what a body throws: without the queue the others would wait for a
// rank that has failed and stays alive.
TEST_F(CollectiveQueueTest, LetsTheBackendTellTheOtherRanksOfWhatABodyThrows) {
    const auto throws = [](ddp::backends::Backend&, std::uint64_t, const ddp::base::Deadline&) {
        throw std::runtime_error("not the backend's");
    };
    EXPECT_THROW(queue->run(Call{}, 1h, throws), std::runtime_error);
    EXPECT_EQ(notes->told, 1);
    EXPECT_THROW(queue->run(Call{}, 1h), std::runtime_error);
    EXPECT_EQ(notes->told, 1) << "told once";
}

Call call_of(std::size_t bytes) { return {.dtype = ddp::DType::uint8, .elements = bytes}; }

// Waited for at once, small ones leave the thread nothing to do, and it wakes more and more seldom.
void make_the_thread_patient(CollectiveQueue& queue) {
    for (int i = 0; i < 6; ++i) {
        queue.start(call_of(8), 1h)->wait();
        std::this_thread::sleep_for(6ms);  // the longest delay is 16 times 200 us
    }
}

// A timer never ends early: a large one that waited as long as the small one before it, or as a
// patient thread does, is never done so soon. Some attempts, as a busy host may delay each.
TEST_F(CollectiveQueueTest, DoesNotLetALargeCallWaitForAPatientThread) {
    using Clock = std::chrono::steady_clock;
    for (const bool behind_a_small_one : {true, false}) {
        bool soon = false;
        for (int attempt = 0; attempt < 100 && !soon; ++attempt) {
            make_the_thread_patient(*queue);
            const auto started = Clock::now();
            Operation small = behind_a_small_one ? queue->start(call_of(8), 1h) : nullptr;
            const Operation large = queue->start(call_of(1'000'000), 1h);
            EXPECT_TRUE(comes_true([&] { return large->is_completed(); }));
            soon = Clock::now() - started < 16 * (behind_a_small_one ? 200us : 50us);
        }
        EXPECT_TRUE(soon) << (behind_a_small_one ? "behind a small one" : "alone");
    }
}

TEST_F(CollectiveQueueTest, RunsWhatIsQueuedBeforeItStops) {
    std::vector<Operation> operations;
    for (int i = 0; i < 50; ++i) operations.push_back(start());
    queue.reset();
    for (const Operation& operation : operations) EXPECT_TRUE(operation->is_completed());
    EXPECT_EQ(notes->order, first(50));
}

TEST_F(CollectiveQueueTest, WaitsForWhatAnotherThreadRuns) {
    std::atomic<bool> entered{false};
    std::atomic<bool> go_on{false};
    notes->on_run = [&](std::uint64_t sequence) {
        if (sequence != 1) return;
        entered = true;
        while (!go_on) std::this_thread::yield();
    };
    const Operation one = start();
    const Operation two = start();
    EXPECT_TRUE(comes_true([&] { return entered.load(); })) << "the queue's thread runs it";
    std::jthread waiter([&] { two->wait(); });
    EXPECT_FALSE(one->is_completed() || two->is_completed());
    go_on = true;
    one->wait();
    waiter.join();
    EXPECT_TRUE(two->is_completed());
}

// Some end alone, some while others sleep: no end is missed, none runs beside another.
TEST_F(CollectiveQueueTest, RunsBlockingCallsOfSeveralThreads) {
    constexpr std::size_t threads = 4;
    constexpr std::size_t calls = 2'000;
    {
        std::vector<std::jthread> callers;
        for (std::size_t i = 0; i < threads; ++i) {
            callers.emplace_back([&, i] {
                for (std::size_t k = 0; k < calls; ++k) {
                    i % 2 == 0 ? queue->run(Call{}, 1h) : start()->wait();
                }
            });
        }
    }
    EXPECT_EQ(notes->order, first(threads * calls));
}

TEST_F(CollectiveQueueTest, StopsOnlyAfterTheThreadThatRunsAlone) {
    for (int round = 0; round < 200; ++round) {
        std::atomic<bool> entered{false};
        notes->on_run = [&](std::uint64_t) { entered = true; };
        std::jthread caller([&, queue = queue.get()] { queue->run(Call{}, 1h); });
        while (!entered) std::this_thread::yield();
        queue.reset();
        EXPECT_EQ(notes->inside, 0);
        caller.join();
        queue =
            std::make_unique<CollectiveQueue>(notes, *page, CollectiveQueue::RecordedGroup{7, 2});
    }
}

TEST_F(CollectiveQueueTest, RunsABodyInsteadOfTheCallAndLetsGoOfIt) {
    const auto held = std::make_shared<int>(0);
    const Operation operation =
        queue->start(Call{}, 1h,
                     [held](ddp::backends::Backend&, std::uint64_t sequence,
                            const ddp::base::Deadline&) { *held = static_cast<int>(sequence); });
    operation->wait();
    EXPECT_EQ(*held, 1);
    EXPECT_EQ(held.use_count(), 1);
    EXPECT_TRUE(notes->order.empty());
}

}  // namespace
