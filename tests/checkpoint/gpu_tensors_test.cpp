// Tensors of GPUs in state dictionaries and checkpoints, on devices that the host plays: they stop
// at what a GPU could not reach, and nothing of theirs is left behind.
#include <ddp/error.hpp>
#include <ddp/state_dict.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_folder.hpp"
#include "checkpoint/formats/torch_file.hpp"
#include "checkpoint/simulated_disk.hpp"
#include "support/stand_in_gpus.hpp"

namespace {

using ddp::testing::StandInGpus;
using testing::Each;
using testing::ElementsAre;

class GpuTensors : public testing::Test {
protected:
    GpuTensors() { ddp::device::use_device_api(&api_); }
    ~GpuTensors() override {
        for (void* memory : allocated_) api_.free(memory);
        EXPECT_EQ(api_.allocated(), 0U) << "pinned memory is left";
        ddp::device::use_device_api(nullptr);
    }

    template <class T>
    ddp::TensorView on_gpu(std::vector<T> values, int gpu = 1) {
        api_.use(gpu);
        void* const memory = allocated_.emplace_back(api_.allocate(values.size() * sizeof(T)));
        api_.copy(memory, values.data(), values.size() * sizeof(T), {});
        api_.synchronize({});
        api_.use(0);
        return {memory,
                {static_cast<std::int64_t>(values.size())},
                ddp::dtype_of<T>(),
                {ddp::DeviceType::cuda, gpu}};
    }
    template <class T>
    std::vector<T> values_of(const ddp::TensorView& tensor) {
        std::vector<T> values(tensor.numel());
        api_.use(tensor.device.index);
        api_.copy(values.data(), tensor.data, tensor.bytes(), {});
        api_.use(0);
        return values;
    }

    StandInGpus api_{2};

private:
    std::vector<void*> allocated_;
};

std::vector<float> numbers(std::size_t count) {
    std::vector<float> values(count);
    std::iota(values.begin(), values.end(), 0.F);
    return values;
}

constexpr std::size_t several_parts = 5'000'000;  // 20 MB

}  // namespace

TEST_F(GpuTensors, AreCopiedIntoAStateDictionary) {
    const auto values = numbers(several_parts);
    const ddp::StateDict state{{{"w", on_gpu(values)}, {"nothing", on_gpu<float>({})}}};
    EXPECT_EQ(state["w"].view().device, ddp::Device{});
    const auto found = state["w"].as<float>();
    EXPECT_TRUE(std::equal(found.begin(), found.end(), values.begin(), values.end()));
    EXPECT_EQ(api_.current(), 0);
}

TEST_F(GpuTensors, AreReadAfterTheWorkOnAllStreams) {
    const ddp::TensorView tensor = on_gpu<float>({1, 2, 3}, 0);
    CUstream_st* const stream = api_.make_stream(ddp::device::Priority::normal);
    api_.set_launch_delay(std::chrono::milliseconds{50});
    api_.scale(tensor, 10, stream);
    const ddp::StateDict state{{{"w", tensor}}};
    EXPECT_THAT(state["w"].as<float>(), ElementsAre(10, 20, 30));
    api_.set_launch_delay({});
    api_.destroy_stream(stream);
}

TEST_F(GpuTensors, AreLoadedFromAnyDeviceAndDtype) {
    std::vector<double> here{0.5, -2};
    std::vector<float> wanted(2);
    const ddp::TensorView gpu0 = on_gpu<float>({0, 0}, 0);
    const ddp::TensorView gpu1 = on_gpu<double>({0, 0}, 1);
    const ddp::StateDict state{{{"w", here}}};
    for (const auto& target : {gpu0, gpu1}) {
        ddp::load_state_dict({{"w", target}}, state, {.convert_dtype = true});
    }
    EXPECT_THAT(values_of<float>(gpu0), ElementsAre(0.5, -2));
    EXPECT_THAT(values_of<double>(gpu1), ElementsAre(0.5, -2));

    ddp::StateDict of_gpus;  // as ProcessGroup::allocate makes them
    of_gpus.add("w", ddp::Tensor{gpu1, nullptr});
    const ddp::TensorView other = on_gpu<float>({9, 9}, 0);
    ddp::load_state_dict({{"w", other}}, of_gpus, {.convert_dtype = true});
    ddp::load_state_dict({{"w", wanted}}, of_gpus, {.convert_dtype = true});
    EXPECT_THAT(values_of<float>(other), ElementsAre(0.5, -2));
    EXPECT_THAT(wanted, ElementsAre(0.5, -2));
}

TEST_F(GpuTensors, StayAsTheyAreWhenTheStateDoesNotFit) {
    const ddp::TensorView first = on_gpu<float>({1});
    std::vector<float> one{5};
    std::vector<float> two{5, 6};
    const ddp::StateDict state{{{"a", one}, {"b", two}}};
    EXPECT_THROW(ddp::load_state_dict({{"a", first}, {"b", on_gpu<float>({2})}}, state),
                 ddp::CheckpointError);
    EXPECT_THAT(values_of<float>(first), ElementsAre(1));
}

TEST_F(GpuTensors, ComeBackFromACheckpointOnAnyDevice) {
    ddp::checkpoint_test::SimulatedDisk disk;
    ddp::checkpoint::CheckpointFolder folder{disk, "run", 2};
    const auto values = numbers(several_parts);
    std::vector<std::int64_t> step{7};
    folder.write({.epoch = 1}, {{"w", on_gpu(values)}, {"step", step}});

    const ddp::TensorView gpu = on_gpu(std::vector<float>(several_parts), 0);
    std::vector<float> cpu(several_parts);
    const ddp::TensorView gpu_step = on_gpu<std::int64_t>({0});
    EXPECT_EQ(folder.read({{"w", gpu}, {"step", gpu_step}}), ddp::Progress{.epoch = 1});
    EXPECT_EQ(values_of<float>(gpu), values);
    EXPECT_THAT(values_of<std::int64_t>(gpu_step), ElementsAre(7));
    EXPECT_EQ(folder.read({{"w", cpu}, {"step", step}}), ddp::Progress{.epoch = 1});
    EXPECT_EQ(cpu, values);
}

TEST_F(GpuTensors, AreSavedAndLoadedAfterTheWorkOnAllStreams) {
    ddp::checkpoint_test::SimulatedDisk disk;
    ddp::checkpoint::CheckpointFolder folder{disk, "run", 2};
    const ddp::TensorView tensor = on_gpu<float>({1, 2, 3}, 0);
    CUstream_st* const stream = api_.make_stream(ddp::device::Priority::normal);
    api_.set_launch_delay(std::chrono::milliseconds{50});
    api_.scale(tensor, 10, stream);
    folder.write({.epoch = 1}, {{"w", tensor}});
    api_.scale(tensor, 10, stream);
    EXPECT_EQ(folder.read({{"w", tensor}}), ddp::Progress{.epoch = 1});
    api_.synchronize(stream);
    api_.set_launch_delay({});
    EXPECT_THAT(values_of<float>(tensor), ElementsAre(10, 20, 30));
    api_.destroy_stream(stream);
}

TEST_F(GpuTensors, GiveTheSameTorchFileAsThoseOfTheCpu) {
    const auto written = [](const std::vector<ddp::NamedTensor>& tensors) {
        ddp::checkpoint_test::SimulatedDisk disk;
        ddp::checkpoint::write_torch_file(disk, "net.pth", tensors);
        return disk.durable().contents[disk.durable().names.at("net.pth")];
    };
    auto values = numbers(several_parts);
    const ddp::TensorView gpu = on_gpu(values);
    const ddp::TensorView empty = on_gpu<float>({});
    std::vector<float> none;
    EXPECT_TRUE(written({{"w", gpu}, {"tied", gpu}, {"nothing", empty}}) ==
                written({{"w", values}, {"tied", values}, {"nothing", none}}));
}
