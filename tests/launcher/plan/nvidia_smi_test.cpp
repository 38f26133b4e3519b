// Stand-ins for nvidia-smi: one that answers, and some that do not.
#include "launcher/plan/nvidia_smi.hpp"

#include "base/deadline.hpp"
#include "launcher/launch_fixture.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

namespace ddp::launcher {
namespace {

class NvidiaSmi : public ::testing::Test {
protected:
    std::optional<std::size_t> count(const std::string& script) const {
        const std::string path = folder_.path() + "/nvidia-smi";
        std::ofstream(path) << "#!/bin/sh\n" << script;
        EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
        return count_listed_gpus(path);
    }

    testing::TemporaryFolder folder_;
};

TEST_F(NvidiaSmi, ListsAGpuALine) {
    EXPECT_EQ(count("[ \"$1\" = -L ] || exit 1\n"
                    "echo 'GPU 0: NVIDIA RTX A2000 (UUID: GPU-12ab)'\n"
                    "echo '  MIG 1g.5gb Device 0: (UUID: MIG-34cd)'\n"
                    "echo 'GPU 1: NVIDIA RTX A2000 (UUID: GPU-56ef)'\n"),
              2U);
    EXPECT_EQ(count("exit 0\n"), 0U);
}

TEST_F(NvidiaSmi, GivesNoAnswerWhenItFails) {
    EXPECT_EQ(count("echo 'GPU 0: half an answer'\nexit 9\n"), std::nullopt);
    EXPECT_EQ(count("kill -SEGV $$\n"), std::nullopt);
    EXPECT_EQ(count_listed_gpus(folder_.path() + "/nowhere"), std::nullopt);
}

TEST_F(NvidiaSmi, ThatHangsIsKilledWithWhatItHasStarted) {
    const std::string mark = "DDP_TEST_HANGING_SMI=" + folder_.path();
    const auto start = base::Deadline::Clock::now();
    EXPECT_EQ(count("export " + mark + "\necho 'GPU 0: x'\nsleep 1000 &\nwait\n"), std::nullopt);
    EXPECT_GE(base::Deadline::Clock::now() - start, std::chrono::milliseconds{1900});
    const auto deadline = base::Deadline::after(testing::patience);
    while (!testing::processes_with(mark).empty() && !deadline.passed()) {
    }
    EXPECT_TRUE(testing::processes_with(mark).empty());
}

}  // namespace
}  // namespace ddp::launcher
