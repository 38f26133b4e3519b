#include "tensor/device/device_choice.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>
#include <vector>

namespace ddp::device {
namespace {

using ::testing::HasSubstr;

struct Case {
    const char* name;
    GpuCandidates candidates;
    std::optional<int> device;            // nothing: refused
    std::vector<std::string> words = {};  // of the refusal
    friend std::ostream& operator<<(std::ostream& out, const Case& row) { return out << row.name; }
};

class DeviceChoice : public ::testing::TestWithParam<Case> {};

TEST_P(DeviceChoice, IsTheRanksOwnOrRefused) {
    const Case& row = GetParam();
    try {
        const int device = choose_device(row.candidates);
        EXPECT_EQ(std::optional(device), row.device);
    } catch (const UsageError& error) {
        EXPECT_FALSE(row.device) << error.what();
        for (const std::string& word : row.words) EXPECT_THAT(error.what(), HasSubstr(word));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Places, DeviceChoice,
    ::testing::Values(
        Case{"OneOnOne", {.visible = 1}, 0},
        Case{"LastOfAll", {.local_rank = 7, .local_world_size = 8, .visible = 8}, 7},
        Case{"MoreGpusThanRanks", {.local_rank = 1, .local_world_size = 2, .visible = 4}, 1},
        Case{"ItsOwnAlone",
             {.local_rank = 3, .local_world_size = 4, .visible = 1, .restricted = true},
             0},
        Case{"ItsOwnAloneAsLocalRank0",
             {.local_rank = 0, .local_world_size = 4, .visible = 1, .restricted = true},
             0},
        // The first rank is refused as the last one is: all say the same.
        Case{"TooManyRanksFirst",
             {.local_rank = 0, .local_world_size = 3, .visible = 2},
             std::nullopt,
             {"3 ranks", "2 visible GPUs", "--nproc-per-node=gpu", "CUDA_VISIBLE_DEVICES"}},
        Case{"TooManyRanksLast",
             {.local_rank = 2, .local_world_size = 3, .visible = 2},
             std::nullopt,
             {"3 ranks", "2 visible GPUs", "--oversubscribe-gpu"}},
        Case{"TwoRanksOnAHostOfOne",
             {.local_rank = 0, .local_world_size = 2, .visible = 1},
             std::nullopt,
             {"2 ranks", "1 visible GPU:"}},
        Case{"TwoOfFourShown",
             {.local_rank = 3, .local_world_size = 4, .visible = 2, .restricted = true},
             std::nullopt,
             {"4 ranks", "2 visible GPUs"}},
        Case{"Shared",
             {.local_rank = 2, .local_world_size = 4, .visible = 1, .oversubscribed = true},
             0},
        Case{"SharedByTwos",
             {.local_rank = 3, .local_world_size = 4, .visible = 2, .oversubscribed = true},
             1},
        Case{"NoGpu",
             {.local_rank = 1, .local_world_size = 2, .visible = 0, .reason = "no driver"},
             std::nullopt,
             {"local rank 1", "no driver"}},
        Case{"NoGpuToShare",
             {.visible = 0, .reason = "no driver", .oversubscribed = true},
             std::nullopt,
             {"no driver"}}),
    [](const auto& row) { return std::string(row.param.name); });

TEST(DifferentDevices, MayBeAlikeButNotTheSame) {
    const std::vector<std::string> devices{"H100 (GPU-a)", "H100 (GPU-b)", "H100 (GPU-c)"};
    EXPECT_NO_THROW(require_different_devices(devices));
    const std::vector<std::string> same{"H100 (GPU-a)", "H100 (GPU-b)", "H100 (GPU-a)"};
    try {
        require_different_devices(same);
        ADD_FAILURE() << "ranks share a GPU";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("ranks 0 and 2 have both chosen H100 (GPU-a)"));
        EXPECT_THAT(error.what(), HasSubstr("CUDA_VISIBLE_DEVICES"));
    }
}

}  // namespace
}  // namespace ddp::device
