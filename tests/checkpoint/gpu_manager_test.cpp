// CheckpointManager in groups with a GPU each: what rank 0 reads comes to all GPUs.
#include <ddp/checkpoint.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "process_group/gpus.hpp"

namespace {

namespace fs = std::filesystem;
using namespace ddp::testing;
using ::testing::Each;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

std::string new_folder() {
    return made_once([] {
        std::string name = (fs::temp_directory_path() / "ddp-gpu-manager-XXXXXX").string();
        EXPECT_NE(::mkdtemp(name.data()), nullptr);
        return name;
    });
}

// Saved and found again on each rank's `device`; only rank 0's numbers may come back.
void save_and_resume(const std::string& dir, ddp::ProcessGroup& group, const ddp::Device& device) {
    ddp::CheckpointManager manager{dir, group};
    const auto mine = static_cast<float>(group.rank() + 1);
    GpuTensor<float> saved(device, 100'000, mine), loaded(device, 100'000, -1.F);
    std::vector<double> rate{mine};
    manager.save(1, {{"w", saved.view()}, {"rate", rate}});
    rate = {0};
    EXPECT_EQ(manager.load_latest({{"w", loaded.view()}, {"rate", rate}}), 1);
    EXPECT_THAT(loaded.values, Each(1.F));
    EXPECT_EQ(rate[0], 1);
}

}  // namespace

TEST(CheckpointManagerOnGpus, GivesAllGpusWhatRank0Saved) {
    const std::string dir = new_folder();
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::CheckpointManager manager{dir, group};
        const auto mine = static_cast<float>(group.rank() + 1);
        GpuTensor<float> saved(group, 100'000, mine), loaded(group, 100'000, -1.F);
        manager.save(1, {{"w", saved.view()}});
        EXPECT_EQ(manager.load_latest({{"w", loaded.view()}}), 1);
        EXPECT_THAT(loaded.values, Each(1.F));

        manager.save_async({.epoch = 2}, {{"w", saved.view()}});
        std::fill(saved.values.begin(), saved.values.end(), 9.F);  // the training goes on
        EXPECT_EQ(manager.load_latest({{"w", loaded.view()}}), 2);
        EXPECT_THAT(loaded.values, Each(1.F));
        EXPECT_EQ(gpus().current(), group.local_rank());
    });
    fs::remove_all(dir);
}

TEST(CheckpointManagerOnGpus, GivesGpusOfAGroupOfCpusWhatRank0Saved) {
    const std::string dir = new_folder();
    run_ranks(3,
              [&](ddp::ProcessGroup& group) {
                  ASSERT_EQ(group.device(), ddp::Device{});
                  save_and_resume(dir, group, {ddp::DeviceType::cuda, group.local_rank()});
              },
              {.init = {.backend = ddp::Backend::gloo}});
    fs::remove_all(dir);
}

// One rank's tensors alone: the ranks have to take the same way all the same.
TEST(CheckpointManagerOnGpus, GivesAnotherGpuThanTheGroupsWhatRank0Saved) {
    const std::string dir = new_folder();
    run_ranks(3, [&](ddp::ProcessGroup& group) {
        ddp::Device device = group.device();
        if (group.rank() == 1) device.index = 3;
        save_and_resume(dir, group, device);
        EXPECT_EQ(gpus().current(), group.local_rank());
    });
    fs::remove_all(dir);
}
