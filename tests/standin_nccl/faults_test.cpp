// The stand-in's slow and failing sides, with ranks as threads.
#include "standin_nccl/ranks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

namespace {

using ddp::Stream;
using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::make_id;
using ddp::testing::NcclRank;
using ddp::testing::on_devices;
using std::chrono::steady_clock;
using namespace std::chrono_literals;

ncclResult_t start_sum(NcclRank& own, float* values, std::size_t count = 1) {
    return ncclAllReduce(values, values, count, ncclFloat32, ncclSum, own.comm, own.stream);
}
ncclResult_t sum(NcclRank& own, float* values, std::size_t count = 1) {
    return own.result_of(start_sum(own, values, count));
}

// Two ranks without blocking, up and running.
void on_two(const std::function<void(NcclRank&)>& body) {
    const ncclUniqueId id = make_id();
    on_devices(2, [&](NcclRank& own, int rank) {
        ASSERT_EQ(own.init_without_blocking(2, rank, id), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        body(own);
    });
}

TEST(StandInLife, ANonBlockingCommunicatorComesUpWhenAllAreThere) {
    std::barrier both(2);
    const ncclUniqueId id = make_id();
    on_devices(2, [&](NcclRank& own, int rank) {
        if (rank == 1) both.arrive_and_wait();
        ASSERT_EQ(own.init_without_blocking(2, rank, id), ncclInProgress);
        if (rank == 0) {
            for (int i = 0; i < 100; ++i) EXPECT_EQ(own.state(), ncclInProgress);
            both.arrive_and_wait();
        }
        ASSERT_EQ(own.settled(), ncclSuccess);
        float* const values = own.holding<float>({1});
        EXPECT_EQ(sum(own, values), ncclSuccess);
        EXPECT_EQ(ncclCommFinalize(own.comm), ncclInProgress);
        EXPECT_EQ(own.settled(), ncclSuccess);
        EXPECT_EQ(own.read(values, 1)[0], 2);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInLife, AbortEndsAnInitThatNobodyElseJoins) {
    on_devices(1, [](NcclRank& own, int) {
        ASSERT_EQ(own.init_without_blocking(2, 0, make_id()), ncclInProgress);
        EXPECT_EQ(own.state(), ncclInProgress);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

TEST(StandInLife, TheSameRankOrDeviceTwiceIsAnError) {
    const ncclUniqueId id = make_id();
    HostDeviceApi api(2);
    NcclRank first(api, 0);
    NcclRank second(api, 0);
    ASSERT_EQ(first.init_without_blocking(2, 0, id), ncclInProgress);
    ASSERT_EQ(second.init_without_blocking(2, 1, id), ncclInProgress);
    EXPECT_EQ(first.settled(), ncclInvalidUsage);
    EXPECT_NE(std::string(ncclGetLastError(first.comm)).find("Duplicate GPU"), std::string::npos);
    EXPECT_EQ(second.settled(), ncclInvalidUsage);
    EXPECT_EQ(ncclCommAbort(first.comm), ncclSuccess);
    EXPECT_EQ(ncclCommAbort(second.comm), ncclSuccess);
}

TEST(StandInLife, SplitFillsInTheChildWhenTheParentHasSettled) {
    on_two([](NcclRank& own) {
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommSplit(own.comm, 0, own.rank, &child, nullptr), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        ASSERT_NE(child, nullptr);
        int ranks = 0;
        EXPECT_EQ(ncclCommCount(child, &ranks), ncclSuccess);
        EXPECT_EQ(ranks, 2);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInLife, RevokeStopsWorkAndTheRanksCanSplitAfterwards) {
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        if (own.rank == 0) {
            EXPECT_EQ(sum(own, values), ncclSuccess);
        }
        EXPECT_EQ(ncclCommRevoke(own.comm, NCCL_REVOKE_DEFAULT), ncclInProgress);
        EXPECT_EQ(own.settled(), ncclSuccess);
        own.api().synchronize(own.stream);
        EXPECT_EQ(sum(own, values), ncclInvalidUsage);
        ncclComm_t child = nullptr;
        ASSERT_EQ(ncclCommSplit(own.comm, 0, own.rank, &child, nullptr), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
        own.comm = child;
        float* const more = own.holding<float>({1});
        EXPECT_EQ(sum(own, more), ncclSuccess);
        EXPECT_EQ(own.read(more, 1)[0], 2);
        EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
    });
}

TEST(StandInHangs, APeerThatNeverComesIsWaitedForUntilAbort) {
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        if (own.rank == 0) {
            EXPECT_EQ(sum(own, values), ncclSuccess);
            std::this_thread::sleep_for(20ms);
            EXPECT_FALSE(own.api().is_done(Stream{own.stream}));
            EXPECT_EQ(own.state(), ncclSuccess);  // nothing tells
        }
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        own.api().synchronize(own.stream);
    });
}

TEST(StandInHangs, RanksThatMeanDifferentThingsHang) {
    const std::array<std::function<void(NcclRank&, float*)>, 4> different{
        [](NcclRank& own, float* values) { sum(own, values, own.rank == 0 ? 2 : 3); },
        [](NcclRank& own, float* values) {
            const ncclRedOp_t op = own.rank == 0 ? ncclSum : ncclMax;
            own.result_of(ncclAllReduce(values, values, 4, ncclFloat32, op, own.comm, own.stream));
        },
        [](NcclRank& own, float* values) {
            const ncclDataType_t dtype = own.rank == 0 ? ncclFloat32 : ncclInt32;
            own.result_of(ncclAllReduce(values, values, 4, dtype, ncclSum, own.comm, own.stream));
        },
        [](NcclRank& own, float* values) {
            own.result_of(own.rank == 0
                              ? ncclSend(values, 2, ncclFloat32, 1, own.comm, own.stream)
                              : ncclRecv(values, 1, ncclFloat32, 0, own.comm, own.stream));
            if (own.rank == 0) sum(own, values);
        }};
    for (const auto& call : different) {
        on_two([&](NcclRank& own) {
            float* const values = own.holding<float>({1, 2, 3, 4});
            own.api().synchronize(own.stream);
            call(own, values);
            std::this_thread::sleep_for(10ms);
            EXPECT_FALSE(own.api().is_done(Stream{own.stream}));
            EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        });
    }
}

TEST(StandInOrder, WorkOnTwoStreamsOfACommunicatorRunsInTheOrderOfTheCalls) {
    on_two([](NcclRank& own) {
        HostDeviceApi& api = own.api();
        CUstream_st* const other = api.make_stream(ddp::device::Priority::normal);
        float* const values = own.holding<float>({1});
        api.synchronize(own.stream);
        api.set_launch_delay(5ms);
        api.set_zero(own.memory<float>(1), 4, own.stream);  // the first comes later than the second
        sum(own, values);
        own.result_of(ncclAllReduce(values, values, 1, ncclFloat32, ncclProd, own.comm, other));
        api.synchronize(other);
        api.set_launch_delay(0ms);
        EXPECT_EQ(own.read(values, 1)[0], 4);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
        api.destroy_stream(other);
    });
}

TEST(StandInKnobs, OperationsStartLateOnTheirStream) {
    const Knob late("OPERATION_DELAY_US", "30000");
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        const auto begin = steady_clock::now();
        EXPECT_EQ(sum(own, values), ncclSuccess);
        EXPECT_EQ(own.read(values, 1)[0], 2);
        EXPECT_GE(steady_clock::now() - begin, 30ms);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInKnobs, ACallIsInProgressForSomePollsBeforeItIsOnTheStream) {
    const Knob polls("LAUNCH_POLLS", "3");
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        own.api().synchronize(own.stream);
        EXPECT_EQ(start_sum(own, values), ncclInProgress);
        for (int poll = 0; poll < 3; ++poll) {
            EXPECT_EQ(own.state(), ncclInProgress);
            EXPECT_TRUE(own.api().is_done(Stream{own.stream})) << "not there yet";
        }
        EXPECT_EQ(own.state(), ncclSuccess);
        EXPECT_EQ(own.read(values, 1)[0], 2);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInKnobs, ALaunchTakesAsLongAsAsked) {
    const Knob late("LAUNCH_DELAY_US", "20000");
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        const auto begin = steady_clock::now();
        EXPECT_EQ(start_sum(own, values), ncclInProgress);
        EXPECT_EQ(own.settled(), ncclSuccess);
        EXPECT_GE(steady_clock::now() - begin, 20ms);
        EXPECT_EQ(own.read(values, 1)[0], 2);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInFaults, AnOperationHangsOnTheRankAndThusOnAll) {
    const Knob fault("FAULTS", "hang:1:1");
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        EXPECT_EQ(sum(own, values), ncclSuccess);
        EXPECT_EQ(own.read(values, 1)[0], 2);
        EXPECT_EQ(sum(own, values), ncclSuccess);
        std::this_thread::sleep_for(10ms);
        EXPECT_FALSE(own.api().is_done(Stream{own.stream}));
        EXPECT_EQ(own.state(), ncclSuccess);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

TEST(StandInFaults, AnOperationFailsLaterOrAtOnce) {
    const Knob fault("FAULTS", "error:1:0:6,fail:0:0:3");
    on_two([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        if (own.rank == 0) {
            EXPECT_EQ(sum(own, values), ncclInternalError);
            EXPECT_EQ(own.state(), ncclInternalError);
        } else {
            EXPECT_EQ(start_sum(own, values), ncclInProgress);
            const auto failed = [](ncclResult_t result) {
                return result != ncclSuccess && result != ncclInProgress;
            };
            EXPECT_EQ(own.state_when(failed), ncclRemoteError);
            EXPECT_FALSE(own.api().is_done(Stream{own.stream}));
        }
        EXPECT_EQ(sum(own, values), own.rank == 0 ? ncclInternalError : ncclRemoteError);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

TEST(StandInFaults, InitHangsFailsLaterOrAtOnce) {
    const Knob fault("FAULTS", "hang:0:init,error:1:init:2,fail:2:init:3");
    const ncclUniqueId id = make_id();
    on_devices(3, [&](NcclRank& own, int rank) {
        if (rank == 2) {
            EXPECT_EQ(own.init_without_blocking(3, rank, id), ncclInternalError);
            return;
        }
        ASSERT_EQ(own.init_without_blocking(3, rank, id), ncclInProgress);
        if (rank == 1) {
            EXPECT_EQ(own.settled(), ncclSystemError);
        } else {
            EXPECT_EQ(own.state(), ncclInProgress);
        }
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

TEST(StandInFaults, AnAbortHangsUntilTheTestLetsItGo) {
    std::atomic<bool> aborted = false;
    on_devices(1, [&](NcclRank& own, int) {
        ASSERT_EQ(own.init_without_blocking(1, 0, make_id()), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        std::thread side;
        {
            const Knob fault("FAULTS", "hang:0:abort");
            side = std::thread([&] {
                EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
                aborted = true;
            });
            std::this_thread::sleep_for(20ms);
            EXPECT_FALSE(aborted);
        }
        side.join();
        EXPECT_TRUE(aborted);
    });
}

TEST(StandInFaults, ThatAPeerHasAbortedIsSaidOnlyIfAsked) {
    const Knob patience("REMOTE_ERROR_MS", "10");
    on_two([](NcclRank& own) {
        if (own.rank == 1) {
            EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
            return;
        }
        const auto failed = [](ncclResult_t result) { return result != ncclSuccess; };
        EXPECT_EQ(own.state_when(failed), ncclRemoteError);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

}  // namespace
