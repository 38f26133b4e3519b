// The stand-in NCCL with a process for each rank.
#include "standin_nccl/ranks.hpp"

#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <vector>

namespace {

using ddp::ProcessGroup;
using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::NcclRank;
using ddp::testing::run_ranks;

// Rank 0's id on all ranks.
ncclUniqueId shared_id(ProcessGroup& group) {
    ncclUniqueId id{};
    if (group.rank() == 0) id = ddp::testing::make_id();
    std::vector<std::uint8_t> bytes(sizeof id);
    std::memcpy(bytes.data(), &id, sizeof id);
    group.broadcast(bytes).wait();
    std::memcpy(&id, bytes.data(), sizeof id);
    return id;
}

ncclResult_t sum(NcclRank& own, float* values, std::size_t count) {
    return own.result_of(
        ncclAllReduce(values, values, count, ncclFloat32, ncclSum, own.comm, own.stream));
}

TEST(StandInProcesses, ReduceExchangeAndSplit) {
    for (int ranks = 1; ranks <= 4; ++ranks) {
        run_ranks(ranks, [](ProcessGroup& group) {
            HostDeviceApi api(1);
            NcclRank own(api, 0);
            own.init(group.size(), group.rank(), shared_id(group));
            const auto rank = static_cast<float>(group.rank());
            float* const values = own.holding(std::vector<float>(30'000, rank));
            EXPECT_EQ(sum(own, values, 30'000), ncclSuccess);
            const int total = group.size() * (group.size() - 1) / 2;
            EXPECT_EQ(own.read(values, 30'000),
                      std::vector<float>(30'000, static_cast<float>(total)));
            float* const in = own.memory<float>(1);
            float* const out = own.holding<float>({rank});
            ncclGroupStart();
            ncclSend(out, 1, ncclFloat32, (own.rank + 1) % own.ranks, own.comm, own.stream);
            ncclRecv(in, 1, ncclFloat32, (own.rank + own.ranks - 1) % own.ranks, own.comm,
                     own.stream);
            ncclGroupEnd();
            EXPECT_EQ(own.read(in, 1)[0],
                      static_cast<float>((own.rank + own.ranks - 1) % own.ranks));
            ncclComm_t child = nullptr;
            ASSERT_EQ(ncclCommSplit(own.comm, own.rank % 2, own.rank, &child, nullptr),
                      ncclSuccess);
            EXPECT_EQ(ncclCommDestroy(child), ncclSuccess);
            EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
        });
    }
}

TEST(StandInProcesses, TheSameDeviceTwiceIsRefusedUnlessTheHostsAreSaidToDiffer) {
    for (const bool differ : {false, true}) {
        run_ranks(2, [differ](ProcessGroup& group) {
            if (differ) ::setenv("NCCL_HOSTID", std::to_string(group.rank()).c_str(), 1);
            HostDeviceApi api(2);  // the same two in both processes
            NcclRank own(api, 0);
            EXPECT_EQ(own.init_without_blocking(2, group.rank(), shared_id(group)), ncclInProgress);
            EXPECT_EQ(own.settled(), differ ? ncclSuccess : ncclInvalidUsage);
            group.barrier().wait();
            EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        });
    }
}

// Rank 1 dies as its second operation starts; `check` is what rank 0 sees then.
void with_a_death(const std::function<void(NcclRank&)>& check) {
    run_ranks(2,
              [&](ProcessGroup& group) {
                  const Knob fault("FAULTS", "die:1:1");
                  HostDeviceApi api(1);
                  NcclRank own(api, 0);
                  ASSERT_EQ(own.init_without_blocking(2, group.rank(), shared_id(group)),
                            ncclInProgress);
                  ASSERT_EQ(own.settled(), ncclSuccess);
                  float* const values = own.holding<float>({1});
                  EXPECT_EQ(sum(own, values, 1), ncclSuccess);
                  EXPECT_EQ(own.read(values, 1)[0], 2);
                  EXPECT_EQ(sum(own, values, 1), ncclSuccess);
                  if (own.rank == 1) own.api().synchronize(own.stream);
                  check(own);
                  EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
                  api.synchronize(own.stream);
              },
              {.may_die = {1}});
}

TEST(StandInProcesses, ADeathIsNotNoticed) {
    with_a_death([](NcclRank& own) {
        std::this_thread::sleep_for(std::chrono::milliseconds{50});
        EXPECT_EQ(own.state(), ncclSuccess);
        EXPECT_FALSE(own.api().is_done(ddp::Stream{own.stream}));
    });
}

TEST(StandInProcesses, ADeathIsARemoteErrorIfAsked) {
    const Knob patience("REMOTE_ERROR_MS", "1");
    with_a_death([](NcclRank& own) {
        const auto failed = [](ncclResult_t result) { return result != ncclSuccess; };
        EXPECT_EQ(own.state_when(failed), ncclRemoteError);
        EXPECT_FALSE(own.api().is_done(ddp::Stream{own.stream}));
    });
}

TEST(StandInProcesses, ADeathInInitLeavesTheOthersInIt) {
    run_ranks(2,
              [](ProcessGroup& group) {
                  const Knob fault("FAULTS", "die:1:init");
                  HostDeviceApi api(1);
                  NcclRank own(api, 0);
                  EXPECT_EQ(own.init_without_blocking(2, group.rank(), shared_id(group)),
                            ncclInProgress);
                  if (own.rank == 1) own.settled();
                  EXPECT_EQ(own.state(), ncclInProgress);
                  EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
              },
              {.may_die = {1}});
}

}  // namespace
