// The queue of transfers on a backend that only counts: what becomes of a batch of which some
// cannot be started, and when it rests.
#include "process_group/transfer_queue.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using ddp::process_group::TransferQueue;

// Done after some steps; before the first it waits for some looks.
class Steps : public backends::PendingTransfer {
public:
    Steps(int looks, int steps, int& rests) : looks_(looks), left_(steps), rests_(rests) {}

    bool advance() override { return --looks_ < 0 && --left_ >= 0; }
    bool is_done() const override { return left_ <= 0; }
    const backends::Transfer& transfer() const override {
        static const backends::Transfer one{.peer = 1, .bytes = 16};
        return one;
    }
    void rest(std::uint64_t) override { ++rests_; }
    void wait_a_little(const ddp::base::Deadline&) override { ++rests_; }
    [[noreturn]] void give_up(const ddp::base::Deadline&) override { throw TimeoutError("late"); }

private:
    int looks_;
    int left_;
    int& rests_;
};

struct CountedBackend : backends::Backend {
    ddp::Backend kind() const override { return ddp::Backend::shm; }
    void run(const backends::Call&, std::uint64_t, const ddp::base::Deadline&) override {}
    std::shared_ptr<void> provide_memory(const ddp::backends::Call&, std::uint64_t,
                                         const ddp::base::Deadline&) override {
        return {};
    }
    std::unique_ptr<backends::PendingTransfer> start_transfer(const backends::Transfer&) override {
        if (++started == refused) throw UsageError("no such transfer");
        return std::make_unique<Steps>(looks, steps, rests);
    }
    void fail() noexcept override { ++told; }

    int looks = 0;  // of each transfer
    int steps = 1;
    int rests = 0;
    int started = 0;
    int refused = 0;  // this one; 0: none
    int told = 0;     // how often the other ranks were
};

class TransferQueueTest : public ::testing::Test {
protected:
    std::unique_ptr<process_group::TransferOperation> start(std::size_t count) {
        std::vector<P2POp> ops;
        for (std::size_t i = 0; i < count; ++i) {
            ops.push_back({P2POp::send, std::span<float>(memory), Peer{1}});
        }
        return queue->start(ops, 1h, CallSite{});
    }
    void TearDown() override { queue->stop(); }

    static constexpr std::uint32_t group = 3;
    std::unique_ptr<contract::ControlPage> page = std::make_unique<contract::ControlPage>();
    contract::OperationRecorder member{*page, group, 2};
    std::vector<float> memory = std::vector<float>(4);
    std::shared_ptr<CountedBackend> counts = std::make_shared<CountedBackend>();
    std::shared_ptr<TransferQueue> queue =
        std::make_shared<TransferQueue>(counts, *page, group, std::vector{5, 6});
};

TEST_F(TransferQueueTest, RunsABatchWithoutTellingAnybody) {
    EXPECT_NO_THROW(start(3)->wait());
    EXPECT_EQ(counts->told, 0);
}

TEST_F(TransferQueueTest, RestsOnlyWhereNothingMoves) {
    counts->steps = 1000;
    EXPECT_NO_THROW(start(2)->wait());
    EXPECT_EQ(counts->rests, 0);
    counts->looks = 7;
    EXPECT_NO_THROW(start(1)->wait());
    EXPECT_EQ(counts->rests, 7);
}

TEST_F(TransferQueueTest, GoesOnWhereNobodyWaits) {
    counts->steps = 3;
    const auto transfer = start(1);
    const auto deadline = base::Deadline::after(30s);
    while (!transfer->is_completed() && !deadline.passed()) std::this_thread::yield();
    EXPECT_TRUE(transfer->is_completed());
}

// The peer of the first one waits for the second.
TEST_F(TransferQueueTest, TellsTheOtherRanksOfABatchThatCannotBeStarted) {
    counts->refused = 2;
    EXPECT_THROW(start(2), UsageError);
    EXPECT_EQ(counts->told, 1);
    EXPECT_THROW(start(1), UsageError) << "the error stays";
    EXPECT_EQ(counts->started, 2);
}

}  // namespace
