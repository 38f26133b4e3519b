// Groups with a GPU half, a process a rank: the choice of it, the ways of a tensor, every
// collective on every dtype, and how such a group ends.
#include "backends/nccl/nccl_library.hpp"
#include "process_group/gpu_arena.hpp"
#include "process_group/gpus.hpp"
#include "process_group/reports.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>
#include <ddp/worker_env.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <random>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using backends::Collective;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

TEST(GpuGroup, HasAGpuOfItsOwnOnEachRank) {
    on_worlds({1, 2, 4}, [](ProcessGroup& group) {
        EXPECT_EQ(group.backend(), Backend::nccl);
        EXPECT_EQ(to_string(group.device()), "cuda:" + std::to_string(group.local_rank()));
        EXPECT_EQ(gpus().current(), group.local_rank());
        with_native_handle(group, [](ncclComm* comm) { EXPECT_NE(comm, nullptr); });
    });
}

// The stand-in refuses a second thread in a communicator; the watchdog looks at this one as long as
// the operation waits for rank 1.
TEST(GpuGroup, KeepsItsWatchdogOutOfACommunicatorThatIsUsed) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 1'000, 1.0F);
        if (group.rank() == 1) std::this_thread::sleep_for(200ms);
        Work work = group.all_reduce(values.view());
        with_native_handle(group, [&](ncclComm* comm) {
            const auto& nccl = nccl::NcclLibrary::load();
            const auto end = std::chrono::steady_clock::now() + 150ms;
            while (group.rank() == 0 && std::chrono::steady_clock::now() < end) {
                ncclResult_t state = ncclSuccess;
                ASSERT_EQ(nccl.communicator.get_async_error(comm, &state), ncclSuccess);
            }
        });
        work.wait();
        EXPECT_EQ(values.values[999], 2.0F);
    });
}

TEST(GpuGroup, MovesCpuMemoryToo) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> here(1'000, 1.0F);
        group.all_reduce(here).wait();
        EXPECT_EQ(here[999], 2.0F);
        EXPECT_EQ(group.all_reduce(group.rank() + 1), 3);
        group.barrier().wait();
    });
}

TEST(GpuGroup, DoesEveryCollectiveAsTheModelSays) {
    const auto seed = seed_for_ranks();
    on_worlds({1, 2, 3, 4},
              [&](ProcessGroup& group) { expect_collectives_of_the_model(group, seed, 300); });
}

struct Registrations {
    int made, ended;
    bool operator==(const Registrations&) const = default;
};
// Of memory that two ranks allocate and give back, one of them with this setting and all others so.
Registrations registrations(const Join& join, const char* setting, const std::string& kind) {
    ::setenv("DDP_NCCL_REGISTER", setting, 1);
    const std::string library = ::getenv("DDP_NCCL_LIBRARY");
    const auto calls = [&](const char* what) {
        return stand_in_function<int(const char*)>("ddp_stand_in_calls",
                                                   library)(("ncclComm" + kind + what).c_str());
    };
    Tensor outlives;
    {
        ProcessGroup group = join();
        {
            const Tensor tensor = group.allocate({100}, DType::float32, group.device());
            group.all_reduce(tensor.view()).wait();
        }
        outlives = group.allocate({100}, DType::float32, group.device());
    }
    outlives = {};
    return {calls("Register"), calls("Deregister")};
}

TEST(GpuGroup, RegistersItsMemoryWhereAllRanksAreToldTo) {
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        EXPECT_EQ(registrations(join, "1", "Window"), (Registrations{2, 1}));
    });
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        const bool first = worker_env().rank == 0;
        EXPECT_EQ(registrations(join, first ? "1" : "0", "Window"), (Registrations{0, 0}));
    });
    run_joining_ranks(2, [](RankReporter&, const Join& join) {
        ::setenv("DDP_NCCL_LIBRARY", stand_in_path("libnccl_stand_in_windowless.so").c_str(), 1);
        EXPECT_EQ(registrations(join, "1", ""), (Registrations{2, 1}));
    });
}

TEST(GpuGroup, SendsAndReceivesInOneBatch) {
    run_ranks(3, [](ProcessGroup& group) {
        const int next = (group.rank() + 1) % 3, last = (group.rank() + 2) % 3;
        GpuTensor<int> from(group, 1'000, group.rank()), to(group, 1'000, -1);
        const std::array ops{P2POp{P2POp::send, from.view(), Peer{next}},
                             P2POp{P2POp::recv, to.view(), Peer{last}}};
        group.batch_send_recv(ops).wait();
        EXPECT_EQ(to.values[999], last);
        if (group.rank() == 0) group.send(from.view(), Peer{1}).wait();
        if (group.rank() == 1) {
            group.recv(to.view(), Peer{0}).wait();
            EXPECT_EQ(to.values[0], 0);
        }
    });
}

TEST(GpuGroup, TakesManyTensorsAsOne) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> a(group, 10, 1.0F), b(group, 2'000, 2.0F);
        const std::array both{a.view(), b.view()};
        group.all_reduce_coalesced(both).wait();
        EXPECT_EQ(a.values[9] + b.values[1'999], 6.0F);
        std::fill(b.values.begin(), b.values.end(), static_cast<float>(group.rank()));
        group.broadcast_coalesced(both, Root{1}).wait();
        EXPECT_EQ(b.values[0], 1.0F);
        group.all_reduce_coalesced({}).wait();
    });
}

TEST(GpuGroup, LetsAStreamWaitAndTheWorkGo) {
    run_ranks(2, [](ProcessGroup& group) {
        const ScopedKnob delay("LAUNCH_DELAY_US", "50000");
        GpuTensor<float> values(group, 5'000, 1.0F), read(group, 5'000, 0.0F);
        CUstream_st* const consumer = gpus().make_stream(device::Priority::normal);
        group.all_reduce(values.view()).wait(consumer);
        gpus().copy(read.values.data(), values.values.data(), values.values.size_bytes(), consumer);
        gpus().synchronize(consumer);
        EXPECT_EQ(std::count(read.values.begin(), read.values.end(), 2.0F), 5'000);
        gpus().destroy_stream(consumer);
    });
}

std::string usage_error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

TEST(GpuGroup, NamesBothDevicesWhenATensorIsOnAnother) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 10, 1.0F);
        TensorView elsewhere = values.view();
        elsewhere.device.index = 3;
        const std::string rank = std::to_string(group.rank());
        EXPECT_THAT(usage_error_of([&] { group.all_reduce(elsewhere).wait(); }),
                    HasSubstr("all_reduce: the tensor is on cuda:3, rank " + rank +
                              "'s group uses cuda:" + rank));
        std::vector<float> here(10);
        EXPECT_THAT(
            usage_error_of([&] { group.all_reduce(values.view(), here, ReduceOp::sum).wait(); }),
            HasSubstr("one tensor is on cuda:" + rank + ", another on cpu"));
        group.all_reduce(values.view()).wait();  // nothing has happened
        EXPECT_EQ(values.values[0], 2.0F);
    });
}

TEST(GpuGroup, NamesBothDevicesInEachOperationWithARoot) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 10, 1.0F);
        TensorView elsewhere = values.view();
        elsewhere.device.index = 3;
        const Root other{1 - group.rank()};
        const std::vector<std::pair<std::string, std::function<void()>>> calls{
            {"broadcast", [&] { group.broadcast(elsewhere, other).wait(); }},
            {"reduce", [&] { group.reduce(elsewhere, {}, other).wait(); }},
            {"gather", [&] { group.gather(elsewhere, {}, other).wait(); }},
            {"scatter", [&] { group.scatter({}, elsewhere, other).wait(); }}};
        for (const auto& [name, call] : calls) {
            EXPECT_THAT(usage_error_of(call), HasSubstr(name + ": the tensor is on cuda:3, rank "));
        }
        group.all_reduce(values.view()).wait();  // nothing has happened
        EXPECT_EQ(values.values[0], 2.0F);
    });
}

TEST(GpuGroup, AllocatesOnTheDeviceThatIsAskedFor) {
    run_ranks(2, [](ProcessGroup& group) {
        Tensor there = group.allocate({100}, DType::float32, group.device());
        EXPECT_EQ(there.view().device, group.device());
        auto* const values = static_cast<float*>(there.view().data);
        EXPECT_EQ(std::accumulate(values, values + 100, 0.0F), 0.0F);
        std::fill(values, values + 100, 1.0F);
        group.all_reduce(there.view()).wait();
        EXPECT_EQ(values[99], 2.0F);
        EXPECT_EQ(group.allocate({100}, DType::float32).view().device, Device{});
    });
}

TEST(GpuGroup, GivesBackWhatItHasAllocated) {
    run_ranks(2, [](ProcessGroup& group) {
        const std::size_t before = gpus().allocated();
        {
            const Tensor there = group.allocate({100}, DType::float32, group.device());
            EXPECT_GT(gpus().allocated(), before);
        }
        EXPECT_EQ(gpus().allocated(), before);
    });
}

TEST(GpuGroup, AllocatesOnNoRankWhereOneHasTooLittle) {
    run_ranks(3, [](ProcessGroup& group) {
        if (group.rank() == 1) gpus().set_memory(gpus().allocated());
        const std::size_t before = gpus().allocated();
        try {
            group.allocate({100}, DType::float32, group.device());
            ADD_FAILURE() << "rank " << group.rank() << " has memory";
        } catch (const SystemError& error) {
            EXPECT_THAT(error.what(), HasSubstr("nccl: allocate 400 bytes on "));
            EXPECT_THAT(error.what(), HasSubstr(group.rank() == 1 ? "" : "the GPU of rank 1"));
        }
        EXPECT_EQ(gpus().allocated(), before);
        EXPECT_EQ(group.all_reduce(1), 3);
    });
}

TEST(GpuGroup, GivesItsSubGroupsAHalfForGpus) {
    run_ranks(4, [](ProcessGroup& group) {
        ProcessGroup pair = group.split({.color = group.rank() % 2});
        EXPECT_EQ(pair.backend(), Backend::nccl);
        EXPECT_EQ(pair.device(), group.device());
        GpuTensor<int> values(group, 100, 1 << group.rank());
        pair.all_reduce(values.view()).wait();
        EXPECT_EQ(values.values[99], group.rank() % 2 == 0 ? 5 : 10);
        const std::array some{3, 0, 1};
        auto three = group.new_group(some);
        EXPECT_EQ(three.has_value(), group.rank() != 2);
        if (three) {
            three->broadcast(values.view(), Root{2}).wait();
            EXPECT_EQ(values.values[0], 10);
        }
    });
}

}  // namespace
