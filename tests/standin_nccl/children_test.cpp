// Communicators that are made of others: what Shrink and shared resources do.
#include "standin_nccl/ranks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace {

using ddp::Stream;
using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::make_id;
using ddp::testing::misuse_code;
using ddp::testing::NcclRank;
using ddp::testing::on_devices;
using ddp::testing::on_ranks;
using namespace std::chrono_literals;

ncclResult_t start_sum(NcclRank& own, ncclComm_t comm, float* values) {
    return ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, comm, own.stream);
}

// The sum of a one from each rank.
float ranks_in(NcclRank& own, ncclComm_t comm) {
    float* const values = own.holding<float>({1});
    EXPECT_EQ(start_sum(own, comm, values), ncclSuccess);
    return own.read(values, 1)[0];
}

int rank_in(ncclComm_t comm) {
    int rank = -1;
    EXPECT_EQ(ncclCommUserRank(comm, &rank), ncclSuccess);
    return rank;
}

ncclComm_t shrunk(NcclRank& own, std::vector<int> excluded, int flags = NCCL_SHRINK_DEFAULT) {
    ncclComm_t child = nullptr;
    EXPECT_EQ(ncclCommShrink(own.comm, excluded.data(), static_cast<int>(excluded.size()), &child,
                             nullptr, flags),
              ncclSuccess)
        << ncclGetLastError(nullptr);
    return child;
}

TEST(StandInShrink, TheOthersCloseTheGapsInTheirOrder) {
    on_ranks(4, [](NcclRank& own) {
        std::array excluded{2, 0};
        ncclComm_t child = nullptr;
        if (own.rank == 0 || own.rank == 2) {
            EXPECT_EQ(ncclCommShrink(own.comm, excluded.data(), 2, &child, nullptr, 0),
                      ncclInvalidArgument);
            return;
        }
        ASSERT_EQ(ncclCommShrink(own.comm, excluded.data(), 2, &child, nullptr, 0), ncclSuccess);
        EXPECT_EQ(excluded, (std::array{0, 2})) << "NCCL sorts the caller's list";
        EXPECT_EQ(rank_in(child), own.rank == 1 ? 0 : 1);
        EXPECT_EQ(ranks_in(own, child), 2);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    });
}

TEST(StandInShrink, TheParentStaysOfUse) {
    on_ranks(3, [](NcclRank& own) {
        for (int excluded = 2; excluded >= 0; --excluded) {
            if (own.rank == excluded) continue;
            ncclComm_t const child = shrunk(own, {excluded});
            EXPECT_EQ(ranks_in(own, child), 2);
            EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        }
        EXPECT_EQ(ranks_in(own, own.comm), 3);
        ncclComm_t all = nullptr;
        ASSERT_EQ(ncclCommSplit(own.comm, 0, 0, &all, nullptr), ncclSuccess);
        EXPECT_EQ(ranks_in(own, all), 3);
        EXPECT_EQ(ncclCommDestroy(all), ncclSuccess);
    });
}

TEST(StandInShrink, LeavesWorkInFlightAlone) {
    const Knob late("OPERATION_DELAY_US", "20000");
    on_ranks(3, [](NcclRank& own) {
        float* const values = own.holding<float>({1});
        EXPECT_EQ(start_sum(own, own.comm, values), ncclSuccess);
        if (own.rank != 1) {
            EXPECT_EQ(ncclCommDestroy(shrunk(own, {1})), ncclSuccess);
        }
        EXPECT_EQ(own.read(values, 1)[0], 3);
    });
}

// Rank 1 takes no part in the operation, as one that is dead.
TEST(StandInShrink, EndsWorkInFlightIfAsked) {
    const ncclUniqueId id = make_id();
    std::barrier all(3);
    on_devices(3, [&](NcclRank& own, int rank) {
        own.init(3, rank, id);
        if (rank == 1) {
            all.arrive_and_wait();
            EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
            return;
        }
        float* const values = own.holding<float>({1});
        EXPECT_EQ(start_sum(own, own.comm, values), ncclSuccess);
        ncclComm_t const child = shrunk(own, {1}, NCCL_SHRINK_ABORT);
        EXPECT_TRUE(own.api().is_done(Stream{own.stream}));
        EXPECT_EQ(ranks_in(own, child), 2);
        ncclComm_t const another = shrunk(own, {1});
        EXPECT_EQ(ranks_in(own, another), 2);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess) << "does not wait for rank 1";
        EXPECT_EQ(ncclCommDestroy(another), ncclSuccess);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        all.arrive_and_wait();
    });
}

TEST(StandInShrink, OfANonBlockingParentFillsInTheChildWhenItHasSettled) {
    const ncclUniqueId id = make_id();
    on_devices(2, [&](NcclRank& own, int rank) {
        ASSERT_EQ(own.init_without_blocking(2, rank, id), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        if (rank == 1) {
            ncclComm_t child = nullptr;
            int excluded = 0;
            ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
            ASSERT_EQ(ncclCommShrink(own.comm, &excluded, 1, &child, &config, 0), ncclInProgress);
            ASSERT_EQ(own.settled(), ncclSuccess);
            ASSERT_NE(child, nullptr);
            EXPECT_EQ(ranks_in(own, child), 1) << "blocks: only no config at all is the parent's";
            EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        }
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInShrink, OfRanksThatExcludeDifferentOnesHangsUntilAbort) {
    const ncclUniqueId id = make_id();
    on_devices(3, [&](NcclRank& own, int rank) {
        ASSERT_EQ(own.init_without_blocking(3, rank, id), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        ncclComm_t child = nullptr;
        int excluded = (rank + 1) % 3;
        EXPECT_EQ(ncclCommShrink(own.comm, &excluded, 1, &child, nullptr, 0), ncclInProgress);
        std::this_thread::sleep_for(10ms);
        EXPECT_EQ(own.state(), ncclInProgress);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        EXPECT_EQ(child, nullptr);
    });
}

TEST(StandInShrink, OfAGroupComesAtItsEnd) {
    on_ranks(3, [](NcclRank& own) {
        if (own.rank == 0) return;
        std::array<ncclComm_t, 2> children{};
        int excluded = 0;
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        for (ncclComm_t& child : children) {
            ASSERT_EQ(ncclCommShrink(own.comm, &excluded, 1, &child, nullptr, 0), ncclSuccess);
            EXPECT_EQ(child, nullptr);
        }
        ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
        for (ncclComm_t const child : children) {
            EXPECT_EQ(ranks_in(own, child), 2);
            EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        }
    });
}

TEST(StandInShrink, NeedsARankToExclude) {
    on_ranks(1, [](NcclRank& own) {
        ncclComm_t child = nullptr;
        int excluded = 5;
        EXPECT_EQ(ncclCommShrink(own.comm, nullptr, 1, &child, nullptr, 0), ncclInvalidArgument);
        EXPECT_EQ(ncclCommShrink(own.comm, &excluded, 0, &child, nullptr, 0), ncclInvalidArgument);
        EXPECT_EQ(ncclCommShrink(own.comm, &excluded, 1, nullptr, nullptr, 0), ncclInvalidArgument);
        const Knob lenient("LENIENT", "1");
        EXPECT_EQ(ncclCommShrink(own.comm, &excluded, 1, &child, nullptr, 0), ncclInvalidUsage);
    });
}

// Two ranks of a parent whose children share its resources, or do not.
void on_parents(bool shares, const std::function<void(NcclRank&)>& body) {
    const ncclUniqueId id = make_id();
    on_devices(2, [&](NcclRank& own, int rank) {
        own.rank = rank;
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.splitShare = config.shrinkShare = shares ? 1 : 0;
        ASSERT_EQ(ncclCommInitRankConfig(&own.comm, 2, id, rank, &config), ncclSuccess);
        body(own);
    });
}

// By a config of its own that shares nothing: that is for the child's children.
ncclComm_t child_of(const NcclRank& own) {
    ncclComm_t child = nullptr;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 0;
    EXPECT_EQ(ncclCommSplit(own.comm, 0, own.rank, &child, &config), ncclSuccess);
    return child;
}

TEST(StandInSharing, AParentMayGoBeforeItsChild) {
    on_parents(true, [](NcclRank& own) {
        ncclComm_t const child = child_of(own);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
        EXPECT_EQ(ranks_in(own, child), 2);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    });
}

TEST(StandInSharing, AnAbortEndsTheWorkOfAllThatShare) {
    for (const bool of_the_child : {false, true}) {
        on_parents(true, [&](NcclRank& own) {
            ncclComm_t const child = child_of(own);
            ncclComm_t const aborted = of_the_child ? child : own.comm;
            ncclComm_t const other = of_the_child ? own.comm : child;
            if (own.rank == 0) {
                EXPECT_EQ(start_sum(own, other, own.holding<float>({1})), ncclSuccess);
            }
            EXPECT_EQ(ncclCommAbort(aborted), ncclSuccess);
            own.api().synchronize(own.stream);
            ncclResult_t state = ncclInternalError;
            EXPECT_EQ(ncclCommGetAsyncError(other, &state), ncclSuccess);
            EXPECT_EQ(state, ncclSuccess) << "nothing tells";
            EXPECT_EQ(ncclCommDestroy(other), ncclSuccess);
        });
    }
}

TEST(StandInSharing, AnAbortIsAloneWithoutIt) {
    on_parents(false, [](NcclRank& own) {
        ncclComm_t const child = child_of(own);
        EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
        EXPECT_EQ(ranks_in(own, own.comm), 2);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInSharing, NeitherARevokedParentNorAShrinkThatAbortsShares) {
    on_parents(true, [](NcclRank& own) {
        EXPECT_EQ(ncclCommRevoke(own.comm, NCCL_REVOKE_DEFAULT), ncclSuccess);
        ncclComm_t const child = child_of(own);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        EXPECT_EQ(ranks_in(own, child), 2);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    });
    on_parents(true, [](NcclRank& own) {
        if (own.rank == 0) {
            ncclComm_t const child = shrunk(own, {1}, NCCL_SHRINK_ABORT);
            EXPECT_EQ(ranks_in(own, child), 1);
            EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        }
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

// Rank 1 calls the child's operation only, rank 0 the parent's before, on another stream.
bool is_child_done(bool shares) {
    std::barrier both(2);
    std::atomic<bool> done = false;
    on_parents(shares, [&](NcclRank& own) {
        ncclComm_t const child = child_of(own);
        CUstream_st* const other = own.api().make_stream(ddp::device::Priority::normal);
        float* const values = own.holding<float>({1});
        float* const more = own.holding<float>({1});
        own.api().synchronize(own.stream);
        if (own.rank == 0) {
            EXPECT_EQ(start_sum(own, own.comm, values), ncclSuccess);
        }
        EXPECT_EQ(ncclAllReduce(more, more, 1, ncclFloat32, ncclSum, child, other), ncclSuccess);
        const auto end = std::chrono::steady_clock::now() + (shares ? 20ms : 20s);
        while (!own.api().is_done(Stream{other}) && std::chrono::steady_clock::now() < end) {
            std::this_thread::yield();
        }
        if (own.rank == 1) done = own.api().is_done(Stream{other});
        both.arrive_and_wait();
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        EXPECT_EQ(ncclCommAbort(child), ncclSuccess);
        own.api().synchronize(other);
        own.api().destroy_stream(other);
    });
    return done;
}

TEST(StandInSharing, WorkOfAllThatShareIsInTheOrderOfTheCalls) {
    EXPECT_TRUE(is_child_done(false));
    EXPECT_FALSE(is_child_done(true));
}

class StandInChildMisuse : public ::testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StandInChildMisuse, AnOperationAfterItsWorkWasAborted) {
    const std::string message =
        "stand-in NCCL: misuse: ncclAllReduce: its work has been aborted, or that of one";
    EXPECT_EXIT(on_parents(true,
                           [](NcclRank& own) {
                               ncclComm_t const child = child_of(own);
                               float* const values = own.holding<float>({1});
                               ncclCommAbort(own.comm);
                               start_sum(own, child, values);
                           }),
                ::testing::ExitedWithCode(misuse_code), message);
    EXPECT_EXIT(on_parents(false,
                           [](NcclRank& own) {
                               if (own.rank == 1) return;
                               float* const values = own.holding<float>({1});
                               shrunk(own, {1}, NCCL_SHRINK_ABORT);
                               start_sum(own, own.comm, values);
                           }),
                ::testing::ExitedWithCode(misuse_code), message);
}

TEST_F(StandInChildMisuse, AChildOfOneThatHasBeenAbortedWithAnother) {
    EXPECT_EXIT(on_parents(true,
                           [](NcclRank& own) {
                               ncclComm_t const child = child_of(own);
                               ncclCommAbort(child);
                               child_of(own);
                           }),
                ::testing::ExitedWithCode(misuse_code),
                "stand-in NCCL: misuse: ncclCommSplit: its work has been aborted");
}

}  // namespace
