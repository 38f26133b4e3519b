// Jobs on GPUs (the stand-in NCCL's) that lose a rank, or cannot abort: they start anew and end
// with the quiet run's result.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;

class LaunchGpu : public LaunchTest {
protected:
    // The lines of the ranks, sorted.
    std::vector<std::string> run(const std::string& fault, int ranks = 2) {
        LaunchSettings settings;
        if (!fault.empty()) settings.environment.push_back("FAULT=" + fault);
        settings.environment.push_back("DDP_NCCL_ABORT_TIMEOUT=5");
        const LaunchResult result = launch(
            {"--nproc-per-node=" + std::to_string(ranks), "--max-restarts=1", DDP_GPU_WORKER},
            settings);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        errors_ = result.err;
        auto lines = lines_of(result.out);
        std::sort(lines.begin(), lines.end());
        return lines;
    }
    std::string errors_;
};

TEST_F(LaunchGpu, AJobThatLosesARankEndsWithTheQuietRunsResult) {
    const auto quiet = run("");
    ASSERT_EQ(quiet.size(), 2U);
    EXPECT_EQ(run("die:1:12"), quiet);
    EXPECT_EQ(run("die:0:init"), quiet);
    EXPECT_EQ(run("fail:1:7:3"), quiet);
}

// Alone: another rank would fail meanwhile, and the launcher would not wait for the abort.
TEST_F(LaunchGpu, AJobWhoseAbortHangsIsStartedAnew) {
    const auto quiet = run("", 1);
    EXPECT_EQ(run("fail:0:7:3,hang:0:abort", 1), quiet);
    EXPECT_THAT(errors_, HasSubstr("the process ends itself (exit code 83)"));
}

}  // namespace
}  // namespace ddp::launcher::testing
