// How a loader makes batches of single samples: stacked tensors, pairs taken apart, callables of
// the program's own, pinned memory.
#include <ddp/data_loader.hpp>
#include <ddp/distributed_sampler.hpp>
#include <ddp/error.hpp>
#include <ddp/tensor_functions.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "data_parallel/cpu_devices.hpp"
#include "support/stand_in_gpus.hpp"
#include "tensor/device/device_api.hpp"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Sample i is [i, i + 0.5] and its label 10 i.
struct Labelled {
    std::size_t size() const { return 5; }
    std::pair<ddp::Tensor, int> operator[](std::size_t i) const {
        const auto value = static_cast<float>(i);
        return {ddp::tensor({value, value + 0.5F}), static_cast<int>(10 * i)};
    }
};

std::vector<ddp::Tensor> rows(std::size_t n) {
    std::vector<ddp::Tensor> samples;
    for (std::size_t i = 0; i < n; ++i) samples.push_back(Labelled{}[i].first);
    return samples;
}

template <class T>
std::vector<T> values(const ddp::Tensor& tensor) {
    const auto span = tensor.as<T>();
    return {span.begin(), span.end()};
}

// The program's device API for one test.
class FakeGpu {
public:
    explicit FakeGpu(int devices = 1) : api(devices) { ddp::device::use_device_api(&api); }
    ~FakeGpu() { ddp::device::use_device_api(nullptr); }
    FakeGpu(const FakeGpu&) = delete;
    FakeGpu& operator=(const FakeGpu&) = delete;
    ddp::testing::StandInGpus api;
};

// A batch of a type that the loader does not know.
struct OwnBatch {
    std::vector<std::size_t> indices;
    bool pinned = false;
    OwnBatch pin_memory() const { return {indices, true}; }
};
struct OwnBatches {
    std::size_t size() const { return 4; }
    OwnBatch batch(std::span<const std::size_t> indices) const {
        return {{indices.begin(), indices.end()}};
    }
};

// Which device its samples are made on is not said.
struct MadeAnywhere {
    std::size_t size() const { return 6; }
    ddp::Tensor operator[](std::size_t i) const { return ddp::full({2}, static_cast<double>(i)); }
};

// The GPU that is current where a batch is made.
struct CurrentGpus {
    std::size_t size() const { return 6; }
    int batch(std::span<const std::size_t>) const { return ddp::device::device_api().current(); }
};

class CollateWorkers : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(Counts, CollateWorkers, testing::Values(0, 2));

}  // namespace

TEST_P(CollateWorkers, StacksTensors) {
    const auto samples = rows(5);
    const ddp::DataLoader loader{samples, {.batch_size = 2, .workers = GetParam()}};
    std::vector<std::string> shapes;
    std::vector<float> all;
    for (const ddp::Tensor& batch : loader) {
        shapes.push_back(to_string(batch.shape()));
        const auto of_batch = values<float>(batch);
        all.insert(all.end(), of_batch.begin(), of_batch.end());
    }
    EXPECT_THAT(shapes, ElementsAre("[2, 2]", "[2, 2]", "[1, 2]"));
    EXPECT_THAT(all, ElementsAre(0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5));
}

TEST_P(CollateWorkers, TakesPairsApart) {
    const Labelled dataset;
    const ddp::DataLoader loader{dataset, {.batch_size = 3, .workers = GetParam()}};
    auto it = loader.begin();
    const auto& [inputs, labels] = *it;
    static_assert(
        std::is_same_v<decltype(loader)::Batch, std::tuple<ddp::Tensor, std::vector<int>>>);
    EXPECT_EQ(inputs.shape(), (ddp::Shape{3, 2}));
    EXPECT_THAT(values<float>(inputs), ElementsAre(0, 0.5, 1, 1.5, 2, 2.5));
    EXPECT_THAT(labels, ElementsAre(0, 10, 20));
}

TEST_P(CollateWorkers, CallsTheProgramsOwn) {
    const std::vector<int> numbers{1, 2, 3, 4, 5};
    const auto offset = static_cast<int>(numbers.size()) * 20;  // no constant: it is captured
    const auto sum = [offset](const std::vector<int>& samples) {
        int total = offset;
        for (const int sample : samples) total += sample;
        return total;
    };
    const ddp::DistributedSampler sampler{numbers.size(), {0, 1}, {.shuffle = false}};
    std::vector<int> sums;
    for (const int total :
         ddp::DataLoader{numbers, sampler, {.batch_size = 2, .workers = GetParam()}, sum}) {
        sums.push_back(total);
    }
    EXPECT_THAT(sums, ElementsAre(103, 107, 105));
    const ddp::DataLoader without_sampler{numbers, {.batch_size = 5, .workers = GetParam()}, sum};
    EXPECT_EQ(*without_sampler.begin(), 115);
}

TEST_P(CollateWorkers, MakesBatchesOnTheLoopsDevice) {
    const ddp::testing::CpuDevices cpus{3};
    const MadeAnywhere dataset;
    const ddp::DataLoader loader{dataset, {.batch_size = 2, .workers = GetParam()}};
    const ddp::DeviceScope scope{ddp::testing::cpu(2)};
    for (const ddp::Tensor& batch : loader) EXPECT_EQ(batch.device(), ddp::testing::cpu(2));
}

TEST_P(CollateWorkers, HasTheLoopsGpuCurrent) {
    FakeGpu gpus{2};
    gpus.api.use(0);  // what the program has not used does not become current again
    const CurrentGpus dataset;
    const ddp::DataLoader loader{dataset, {.batch_size = 2, .workers = GetParam()}};
    {
        const ddp::DeviceScope scope{ddp::Device::parse("cuda:1")};
        for (const int current : loader) EXPECT_EQ(current, 1);
    }
    for (const int current : loader) EXPECT_EQ(current, 0);
    gpus.api.use(1);
    const ddp::DataLoader pinning{dataset,
                                  {.batch_size = 2, .workers = GetParam(), .pin_memory = true}};
    for (const int current : pinning) EXPECT_EQ(current, 1);
    gpus.api.use(0);
}

TEST(DefaultCollate, StacksScalarsRowsAndTensorsInTuples) {
    const ddp::DefaultCollate collate;
    EXPECT_EQ(collate(std::vector<ddp::Tensor>{}).numel(), 0U);
    const std::vector<ddp::Tensor> scalars{ddp::full({}, 3), ddp::full({}, 4)};
    EXPECT_THAT(values<float>(collate(scalars)), ElementsAre(3, 4));
    EXPECT_EQ(collate(scalars).shape(), ddp::Shape{2});
    using Sample = std::tuple<ddp::Tensor, std::pair<std::string, ddp::Tensor>>;
    const auto [first, second] = collate(std::vector<Sample>{
        {ddp::ones({2, 1}, {.dtype = ddp::DType::int64}), {"a", ddp::zeros({3})}},
        {ddp::ones({2, 1}, {.dtype = ddp::DType::int64}), {"b", ddp::ones({3})}}});
    EXPECT_EQ(first.shape(), (ddp::Shape{2, 2, 1}));
    EXPECT_EQ(first.dtype(), ddp::DType::int64);
    EXPECT_THAT(std::get<0>(second), ElementsAre("a", "b"));
    EXPECT_THAT(values<float>(std::get<1>(second)), ElementsAre(0, 0, 0, 1, 1, 1));
}

TEST(DefaultCollate, NamesTheSampleThatDiffers) {
    std::vector<ddp::Tensor> samples = rows(3);
    samples[2] = ddp::zeros({4});
    try {
        ddp::DefaultCollate{}(samples);
        FAIL() << "no exception";
    } catch (const ddp::UsageError& error) {
        EXPECT_THAT(error.what(),
                    HasSubstr("sample 2 of a batch is [4] float32 on cpu, but the first is [2] "
                              "float32 on cpu"));
    }
    samples[2] = ddp::zeros({2}, {.dtype = ddp::DType::int32});
    EXPECT_THROW(ddp::DefaultCollate{}(samples), ddp::UsageError);
}

TEST(DefaultCollate, StacksOnTheSamplesDevice) {
    const FakeGpu gpu;
    const auto device = ddp::Device::parse("cuda:0");
    const auto batch = ddp::DefaultCollate{}(std::vector<ddp::Tensor>{
        ddp::tensor({1.0F, 2.0F}).to(device), ddp::tensor({3.0F, 4.0F}).to(device)});
    EXPECT_EQ(batch.device(), device);
    EXPECT_THAT(values<float>(batch.to(ddp::Device{})), ElementsAre(1, 2, 3, 4));
}

TEST(PinMemory, PutsTheTensorsOfABatchIntoPinnedMemory) {
    const Labelled dataset;
    const FakeGpu gpu;
    const ddp::DataLoader loader{dataset, {.batch_size = 5, .workers = 0, .pin_memory = true}};
    ASSERT_EQ(gpu.api.allocated(), 0U);
    {
        const auto it = loader.begin();
        EXPECT_THAT(values<float>(std::get<0>(*it)),
                    ElementsAre(0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4, 4.5));
        EXPECT_GE(gpu.api.allocated(), 10 * sizeof(float));
    }
    EXPECT_EQ(gpu.api.allocated(), 0U);
}

TEST(PinMemory, LeavesTensorsOnAGpuWhereTheyAre) {
    const FakeGpu gpu;
    const auto device = ddp::Device::parse("cuda:0");
    const std::vector<ddp::Tensor> samples{ddp::ones({2}, {.device = device})};
    const ddp::DataLoader loader{samples, {.workers = 0, .pin_memory = true}};
    EXPECT_EQ(loader.begin()->device(), device);
}

TEST(PinMemory, AsksABatchOfAnotherType) {
    const OwnBatches dataset;
    const FakeGpu gpu;
    EXPECT_TRUE((ddp::DataLoader{dataset, {.pin_memory = true}}.begin()->pinned));
    EXPECT_FALSE(ddp::DataLoader{dataset}.begin()->pinned);
}

TEST(PinMemory, DoesNothingWithoutAGpuAndSaysSo) {
    const OwnBatches dataset;
    FakeGpu gpu;
    gpu.api.set_reason("no driver");
    testing::internal::CaptureStderr();
    const ddp::DataLoader loader{dataset, {.pin_memory = true}};
    for (const OwnBatch& batch : loader) EXPECT_FALSE(batch.pinned);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_THAT(log, HasSubstr("data loader: pin_memory does nothing without a GPU (no driver"));
    EXPECT_EQ(std::ranges::count(log, '\n'), 1);
}
