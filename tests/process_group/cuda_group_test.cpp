// A group of one rank on a real GPU, with the real NCCL: what can be seen of the backend and of the
// reducer without a second GPU. tools/gpu-check.sh runs it where there is one.
#include "reducer/gpu_model.hpp"
#include "tensor/device_arrays.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>
#include <ddp/reducer.hpp>

#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <string>

namespace {

using namespace ddp;
using namespace ddp::testing;

class CudaGroup : public ::testing::Test {
protected:
    void SetUp() override {
        const device::Probe probe = device::device_api().probe();
        if (probe.devices > 0) return;
        const char* const required = std::getenv("DDP_REQUIRE_GPU");
        if (required != nullptr && std::string(required) == "1") {
            FAIL() << "DDP_REQUIRE_GPU=1, but: " << probe.reason;
        }
        GTEST_SKIP() << probe.reason;
    }
};

ProcessGroup join() { return init_process_group({.backend = Backend::nccl}); }

template <class T>
HostArray<T> small_numbers(std::size_t size) {
    HostArray<T> values(size);
    for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<T>(static_cast<float>(i % 2));
    return values;
}

template <class T>
void expect_same(const HostArray<T>& got, const HostArray<T>& wanted, const std::string& what) {
    for (std::size_t i = 0; i < wanted.size; ++i) {
        ASSERT_TRUE(got[i] == wanted[i]) << what << ", element " << i;
    }
}

TEST_F(CudaGroup, HasTheGpuAndNccl) {
    auto group = join();
    EXPECT_EQ(group.backend(), Backend::nccl);
    EXPECT_EQ(group.device(), (Device{DeviceType::cuda, 0}));
    with_native_handle(group, [](ncclComm* comm) { EXPECT_NE(comm, nullptr); });
    EXPECT_EQ(group.all_reduce(3), 3);  // the CPU half
}

TEST_F(CudaGroup, DoesEveryCollectiveOnEveryDtype) {
    auto group = join();
    device::DeviceApi& api = device::device_api();
    for_each_type([&]<class T>(std::type_identity<T>) {
        if constexpr (!std::is_same_v<T, std::int16_t>) {  // which NCCL has not
            const HostArray<T> values = small_numbers<T>(5'001);
            DeviceArray<T> input(api, values), output(api, HostArray<T>(values.size));
            const auto expect_copied = [&](const char* what) {
                expect_same(output.read(), values, std::string(what) + to_string(dtype_of<T>()));
                api.set_zero(output.data(), values.size * sizeof(T), {});
                api.synchronize({});
            };
            for (const ReduceOp op :
                 {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
                if (!is_defined(op, dtype_of<T>())) continue;
                group.all_reduce(input.view(), output.view(), op).wait();
                expect_copied("all_reduce of ");
                group.reduce_scatter(input.view(), output.view(), op).wait();
                expect_copied("reduce_scatter of ");
                group.reduce(input.view(), output.view(), Root{0}, op).wait();
                expect_copied("reduce of ");
            }
            group.all_gather(input.view(), output.view()).wait();
            expect_copied("all_gather of ");
            group.all_to_all(input.view(), output.view()).wait();
            expect_copied("all_to_all of ");
            group.gather(input.view(), output.view()).wait();
            expect_copied("gather of ");
            group.scatter(input.view(), output.view()).wait();
            expect_copied("scatter of ");
            group.broadcast(input.view()).wait();
            expect_same(input.read(), values, "broadcast");
        }
    });
}

TEST_F(CudaGroup, MultipliesBeforeItSums) {
    auto group = join();
    const HostArray<float> ones = small_numbers<float>(100);
    DeviceArray<float> values(device::device_api(), ones);
    group.all_reduce(values.view(), ReduceOp::make_premul_sum(0.5)).wait();
    EXPECT_EQ(values.read()[1], 0.5F);
}

TEST_F(CudaGroup, AllocatesZeroedMemory) {
    auto group = join();
    const Tensor tensor = group.allocate({100'000}, DType::float32, group.device());
    for (const std::byte byte : device::read(tensor)) ASSERT_EQ(byte, std::byte{0});
}

TEST_F(CudaGroup, RefusesMemoryOfTheCpuBesideItsOwn) {
    auto group = join();
    std::vector<float> here(10);
    const HostArray<float> values(10);
    DeviceArray<float> there(device::device_api(), values);
    EXPECT_THROW(group.all_reduce(there.view(), here, ReduceOp::sum).wait(), UsageError);
    group.all_reduce(there.view()).wait();
}

TEST_F(CudaGroup, SplitsAndLeavesAgainAndAgain) {
    for (int i = 0; i < 5; ++i) {
        auto group = join();
        ProcessGroup part = group.split({});
        const HostArray<float> values(10);
        DeviceArray<float> tensor(device::device_api(), values);
        part.all_reduce(tensor.view()).wait();
    }
}

// On streams of the user's, in views and in copies; and hooks, which all meet in one rank.
TEST_F(CudaGroup, AveragesGradients) {
    auto group = join();
    for (const bool views : {true, false}) {
        for (const CommHook& hook : {CommHook{}, all_reduce_hook(), bf16_compress_hook()}) {
            GpuModel model(group, {1'000, 1, 77, 300'000});
            const GpuStream a, b, optimiser;
            const std::array<Stream, 2> streams{a, b};
            Reducer reducer(model.parameters(), group,
                            {.bucket_cap_mb = 0.1,
                             .first_bucket_mb = 0.01,
                             .gradient_as_bucket_view = views,
                             .comm_hook = hook});
            for (int step = 1; step <= 3; ++step) {
                for (const std::size_t p : {3U, 2U, 1U, 0U}) {
                    model.set_gradient(p, static_cast<float>(step), streams[p % 2]);
                    reducer.mark_ready(p, streams[p % 2]);
                }
                EXPECT_TRUE(reducer.wait(optimiser));
                for (std::size_t p = 0; p < 4; ++p) {
                    EXPECT_TRUE(all_are(model.gradient(p, optimiser), static_cast<float>(step)));
                }
            }
        }
    }
}

}  // namespace
