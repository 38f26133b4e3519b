// Ranks that wait for each other on one core: who moves, and where to.
#include "backends/shm/wait/core_sharing.hpp"

#include <gtest/gtest.h>

#include <sched.h>

#include <thread>
#include <vector>

namespace {

using namespace ddp::shm;

const std::vector<int> cores_0_to_3 = {0, 1, 2, 3};

TEST(CoreSharing, GoesWhereFewestRanksAre) {
    EXPECT_EQ(less_crowded_core(0, std::vector{0, 0, 1, 1, 3}, cores_0_to_3), 2);
    EXPECT_EQ(less_crowded_core(0, std::vector{0, 0, 0, 1, 1, 2, 3, 3}, cores_0_to_3), 2);
}

TEST(CoreSharing, StaysWhereItIsNoWorse) {
    EXPECT_EQ(less_crowded_core(1, std::vector{1, 1, 0, 2, 3}, cores_0_to_3), std::nullopt)
        << "two here, or two there";
    EXPECT_EQ(less_crowded_core(0, std::vector{0, 0}, std::vector{0}), std::nullopt);
    EXPECT_EQ(less_crowded_core(0, std::vector{0, -1}, cores_0_to_3), std::nullopt)
        << "one that has not waited yet is nowhere";
}

TEST(CoreSharing, KeepsToTheCoresThatItMayUse) {
    EXPECT_EQ(less_crowded_core(2, std::vector{2, 2, 3}, std::vector{2, 3}), std::nullopt);
    EXPECT_EQ(less_crowded_core(2, std::vector{2, 2, 2, 3}, std::vector{2, 3}), 3);
}

cpu_set_t affinity() {
    cpu_set_t set;
    EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    return set;
}

// Two ranks by turns on this thread, so both on its core.
TEST(CoreSharing, LeavesACoreThatTwoRanksShare) {
    const cpu_set_t before = affinity();
    if (CPU_COUNT(&before) < 2) GTEST_SKIP() << "needs two cores";
    const auto region = SharedRegion::create(2, make_tuning(2, 2, "chunk_bytes=4K"));
    CoreSharing first{*region, 0}, second{*region, 1};
    const int core = ::sched_getcpu();
    bool moved = false;
    for (int i = 0; i < 1'000 && !moved; ++i) {
        first.begin_wait();
        second.begin_wait();
        moved = ::sched_getcpu() != core;
    }
    EXPECT_TRUE(moved);
    const cpu_set_t after = affinity();
    EXPECT_TRUE(CPU_EQUAL(&after, &before)) << "it may go on wherever it might before";
}

}  // namespace
