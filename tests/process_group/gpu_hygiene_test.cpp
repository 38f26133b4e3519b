// What a group does to a process's GPUs besides computing: contexts, kernels, streams that are the
// caller's. Over the stand-in for the CUDA runtime, which knows.
#include "process_group/gpus.hpp"

#include <ddp/tensor_functions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tensor/device/current_gpu.hpp"

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

// A context takes half a gigabyte of its GPU: eight ranks with one on GPU 0 each take four.
TEST(GpuHygiene, ARankOpensItsOwnGpuAlone) {
    run_ranks(4, [](ProcessGroup& group) {
        const Device own = group.device();
        {
            GpuTensor<float> values(group, 1'000, 1.0F);
            if (group.rank() == 3)
                std::this_thread::sleep_for(100ms);  // the watchdogs look meanwhile
            group.all_reduce(values.view(), ReduceOp::avg).wait();
            auto part = group.split({.color = group.rank() % 2});
            part.all_reduce(values.view()).wait();
        }
        auto shared = group.allocate({1'000}, DType::float32, own);
        Tensor made;
        const auto on_a_fresh_thread = [](const std::function<void()>& body) {
            std::thread(body).join();
        };
        on_a_fresh_thread([&] { made = zeros({100}, {.device = own}); });
        on_a_fresh_thread([&] { const DeviceScope scope(own); });
        Work work = group.all_reduce(made.view());
        on_a_fresh_thread([&] { work.wait(Stream{}); });
        on_a_fresh_thread([&] { work.wait(); });
        on_a_fresh_thread([&] { gpus().scale(made.view(), 0.5, {}); });
        on_a_fresh_thread([&] { made = {}; });
        on_a_fresh_thread([&] { shared = {}; });
        EXPECT_THAT(standin_cuda::contexts(), ElementsAre(group.local_rank()));
    });
}

// To load a kernel the driver may wait for all that runs on the GPU: another rank may wait for what
// this one would launch after.
TEST(GpuHygiene, LoadsItsKernelsWhenTheGroupIsMade) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 1'000, 1.0F);
        GpuTensor<double> others(group, 1'000, 1.0);
        if (group.rank() == 1) std::this_thread::sleep_for(100ms);
        Work waits = group.all_reduce(values.view());
        const device::CurrentGpu current{gpus(), group.device().index};
        gpus().scale(others.view(), 0.5, {});
        gpus().convert(others.view(), others.view(), {});
        gpus().synchronize(Stream{});
        waits.wait();
        EXPECT_EQ(others.values[999], 0.5);
        EXPECT_EQ(standin_cuda::late_loads(), 0U);
        EXPECT_EQ(standin_cuda::kernels_not_loaded(), 0U);
    });
}

TEST(GpuHygiene, AStreamOfAnotherGpuFailsTheCallAndNotTheGroup) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 1'000, 1.0F);
        CUstream_st* stream = nullptr;
        {
            const device::CurrentGpu another{gpus(), 3};
            stream = gpus().make_stream(device::Priority::normal);
        }
        if (group.rank() == 1) {
            EXPECT_THAT(
                [&] { group.all_reduce(values.view(), ReduceOp::sum, Stream(stream)).wait(); },
                ThrowsMessage<UsageError>(HasSubstr("is none of cuda:1")));
        }
        group.all_reduce(values.view()).wait();
        EXPECT_EQ(values.values[999], 2.0F);
    });
}

// One way of averaging for all: what some scale and others do not is wrong everywhere.
TEST(GpuHygiene, RanksOnDifferentGpusAverageInOneWay) {
    ::setenv("DDP_OVERSUBSCRIBE_GPU", "1", 1);
    const RankBody body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        const bool is_first = worker_env().rank == 0;
        ::setenv("NCCL_HOSTID", std::to_string(worker_env().rank).c_str(), 1);  // five on four GPUs
        standin_cuda::set_architecture(is_first ? 80 : 90);
        ProcessGroup group = join();
        GpuTensor<float> values(group, 300'001, static_cast<float>(group.rank()));
        group.all_reduce(values.view(), ReduceOp::avg).wait();
        for (const float value : values.values) ASSERT_FLOAT_EQ(value, 2.0F);
        EXPECT_EQ(standin_cuda::calls_of("cudaLaunchKernel"), 0U);
    };
    for (const RankFailure& failure :
         failures_of_ranks(5, body, {.init = {.backend = Backend::nccl}})) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
    ::unsetenv("DDP_OVERSUBSCRIBE_GPU");
}

TEST(GpuHygiene, AGpuForWhichThereIsNoCodeIsNamed) {
    const RankBody body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        standin_cuda::set_architecture(70);
        EXPECT_THAT([&] { join(); },
                    ThrowsMessage<UsageError>(AllOf(
                        HasSubstr("rank 1 on host "),
                        HasSubstr("has compute capability 7.0, for which this ddp has no code"))));
    };
    for (const RankFailure& failure :
         failures_of_ranks(2, body, {.init = {.backend = Backend::nccl}})) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}

}  // namespace
