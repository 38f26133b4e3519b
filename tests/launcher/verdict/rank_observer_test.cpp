// A worker that is stopped, and goes on while its stacks are read.
#include "launcher/verdict/rank_observer.hpp"

#include "contract/operation_recorder.hpp"
#include "launcher/sleeping_worker.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

class StoppedRank : public ::testing::Test {
protected:
    StoppedRank() {
        workers_.push_back(testing::start_sleeping_worker(0));
        pages_.page(0).pid = pid();
        recorder_.started({}, {}, 1, RankObserver::Time());
        look();
        ::kill(pid(), SIGSTOP);
        for (int i = 0; i < 1000 && !is_held(); ++i) std::this_thread::sleep_for(1ms);
        look();
    }
    ~StoppedRank() override { testing::end_worker(workers_.front()); }

    pid_t pid() const { return workers_.front().process.pid(); }
    bool is_held() const { return look_at_process(pid()).is_held(); }
    RankState look() {
        now_ += RankObserver::interval;
        observer_.look_at_processes();
        return observer_.look(now_, {pages_, workers_, 0}).front();
    }
    void go_on() {
        ::kill(pid(), SIGCONT);
        for (int i = 0; i < 1000 && is_held(); ++i) std::this_thread::sleep_for(1ms);
    }

    contract::ControlRegion pages_ = contract::ControlRegion::create(1);
    contract::OperationRecorder recorder_{pages_.page(0), 1, 2};
    std::vector<Worker> workers_;
    RankObserver observer_;
    RankObserver::Time now_ = RankObserver::Time::clock::now();
};

TEST_F(StoppedRank, IsHeldWhateverIsSeenOfItWhileItIsRead) {
    const auto since = look().held_since;
    ASSERT_TRUE(since);
    observer_.note_reading(true);
    go_on();  // as far as can be seen from outside, which is not looked at
    EXPECT_EQ(look().held_since, since);
    observer_.note_reading(false);
    EXPECT_FALSE(look().held_since);
}

TEST_F(StoppedRank, IsHeldNoMoreOnceItCallsAlsoWhileItIsRead) {
    ASSERT_TRUE(look().held_since);
    observer_.note_reading(true);
    go_on();
    recorder_.ended();
    EXPECT_FALSE(look().held_since);
}

// As its reader does.
TEST_F(StoppedRank, HasBeenHeldSinceThenOnlyWhereItHasCalledMeanwhile) {
    const auto since = look().held_since;
    ASSERT_TRUE(since);
    observer_.note_reading(true);
    recorder_.ended();
    EXPECT_GT(look().held_since, since);
}

}  // namespace
}  // namespace ddp::launcher
