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
    });
}

TEST(GpuHygiene, AStreamThatIsNoneFailsTheCallAndNotTheGroup) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuTensor<float> values(group, 1'000, 1.0F);
        CUstream_st* const stream = gpus().make_stream(device::Priority::normal);
        gpus().destroy_stream(stream);
        if (group.rank() == 1) {
            EXPECT_THAT(
                [&] { group.all_reduce(values.view(), ReduceOp::sum, Stream(stream)).wait(); },
                ThrowsMessage<UsageError>(HasSubstr("is none of cuda:1")));
        }
        group.all_reduce(values.view()).wait();
        EXPECT_EQ(values.values[999], 2.0F);
    });
}

TEST(GpuHygiene, AGpuForWhichThereIsNoCodeIsNamed) {
    const RankBody body = [](RankReporter&, const std::function<ProcessGroup()>& join) {
        standin_cuda::set_architecture(70);
        EXPECT_THAT([&] { join(); }, ThrowsMessage<UsageError>(
                                         AllOf(HasSubstr("rank 1 on host "),
                                               HasSubstr("has compute capability 7.0, and this "
                                                         "ddp has code for 7.5 and newer"))));
    };
    for (const RankFailure& failure :
         failures_of_ranks(2, body, {.init = {.backend = Backend::nccl}})) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}

}  // namespace
