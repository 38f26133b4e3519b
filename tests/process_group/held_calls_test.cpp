// Which held calls start when, and on whose thread.
#include "process_group/held_calls.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <thread>

namespace {

using ddp::process_group::HeldCalls;
using ddp::process_group::HeldCallsOfReducer;

class HeldCallsTest : public ::testing::Test {
protected:
    void hold(std::size_t reducer, bool has_no_gradients) {
        reducers[reducer].start_backward();
        reducers[reducer].hold(has_no_gradients, [this, reducer] {
            all->release();  // as a started call does
            started += static_cast<char>('a' + reducer);
        });
    }
    std::shared_ptr<HeldCalls> all = std::make_shared<HeldCalls>();
    std::array<HeldCallsOfReducer, 3> reducers{HeldCallsOfReducer(all), HeldCallsOfReducer(all),
                                               HeldCallsOfReducer(all)};
    std::string started;
};

TEST_F(HeldCallsTest, StartInTheirOrderBeforeTheProgramsCall) {
    hold(0, false);
    hold(2, true);
    hold(1, false);
    all->release();
    EXPECT_EQ(started, "acb");
    all->release();
    EXPECT_EQ(started, "acb");
}

TEST_F(HeldCallsTest, OfSilentReducersStartBeforeABucketOfALaterOne) {
    hold(0, false);
    hold(1, true);
    hold(2, true);
    reducers[1].release_earlier();
    EXPECT_EQ(started, "");
    reducers[2].release_earlier();
    EXPECT_EQ(started, "b");
    reducers[1].release_without_gradients();
    EXPECT_EQ(started, "bc");
}

TEST_F(HeldCallsTest, AreTheirReducersAgain) {
    hold(0, true);
    hold(1, true);
    EXPECT_TRUE(reducers[0].take_back());
    EXPECT_FALSE(reducers[0].take_back());
    all->release();
    EXPECT_EQ(started, "b");
}

TEST_F(HeldCallsTest, EndWithTheirReducer) {
    {
        HeldCallsOfReducer one(all);
        one.hold(true, [this] { started += "x"; });
    }
    all->release();
    EXPECT_EQ(started, "");
}

TEST_F(HeldCallsTest, AreNotStartedByAnotherThread) {
    hold(0, true);
    std::thread([this] { all->release(); }).join();
    EXPECT_EQ(started, "");
    all->release();
    EXPECT_EQ(started, "a");
}

}  // namespace
