// A group of one rank on a real GPU, with the real NCCL: what can be seen of the backend and of the
// reducer without a second GPU. tools/gpu-check.sh runs it where there is one.
#include "process_group/gpu_averages.hpp"
#include "process_group/needs_gpu.hpp"
#include "tensor/device_arrays.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;

class CudaGroup : public NeedsGpu {};

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

TEST_F(CudaGroup, AveragesGradients) {
    auto group = join();
    expect_averages(group);
}

#ifndef DDP_STANDIN_CUDA  // where soak does it with the kernels alone
// More than 32 bits, and signed ones, count.
TEST_F(CudaGroup, TakesMoreThanTwoToThe31Elements) {
    auto group = join();
    auto& gpu = device::device_api();
    constexpr std::size_t size = (std::size_t{1} << 31) + 1'001;
    const auto at = [](const device::Buffer& buffer, std::size_t index) {
        return buffer.data() + index;
    };
    const auto bytes_of = [&](std::byte* data, std::size_t count) {
        return TensorView{data, {static_cast<std::int64_t>(count)}, DType::uint8, group.device()};
    };
    device::Buffer from, to;
    from.reserve(group.device(), size);
    to.reserve(group.device(), 2 * size);
    gpu.set_zero(from.data(), size, {});
    const std::vector<std::size_t> marked{0, (std::size_t{1} << 31) - 1, std::size_t{1} << 31,
                                          size - 1};
    const std::byte mark{7};
    for (const std::size_t index : marked) gpu.copy(at(from, index), &mark, 1, {});
    const auto expect_marks = [&](std::size_t stride, std::size_t first) {
        gpu.synchronize({});
        for (const std::size_t index : marked) {
            std::byte got{};
            gpu.copy(&got, at(to, first + index * stride), 1, {});
            EXPECT_EQ(got, mark) << index;
        }
        gpu.set_zero(to.data(), 2 * size, {});
    };
    gpu.set_zero(to.data(), 2 * size, {});
    group.all_reduce(bytes_of(from.data(), size), bytes_of(to.data(), size), ReduceOp::sum).wait();
    expect_marks(1, 0);
    group.all_gather(bytes_of(from.data(), size), bytes_of(to.data(), size)).wait();
    expect_marks(1, 0);
    const device::PackItem all{from.data(), size, 3};
    gpu.pack({&all, 1}, bytes_of(to.data(), size + 3), 1, {});
    expect_marks(1, 3);
    const TensorView wide{
        to.data(), {static_cast<std::int64_t>(size)}, DType::int16, group.device()};
    gpu.convert(bytes_of(from.data(), size), wide, {});
    expect_marks(2, 0);
}
#endif

}  // namespace
