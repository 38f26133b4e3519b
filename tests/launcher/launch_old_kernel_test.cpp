// Under a kernel or a seccomp profile that lacks newer system calls.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LaunchOldKernel : public LaunchTest {
protected:
    LaunchResult launch_without(const char* error, const char* calls,
                                const Launch::Words& arguments) {
        Launch::Words words{error, calls, DDP_LAUNCH};
        words.insert(words.end(), arguments.begin(), arguments.end());
        return launch(words, {.program = DDP_TEST_WITHOUT_CALLS});
    }
};

TEST_F(LaunchOldKernel, WithoutPidfdsItSaysSoBeforeAnythingIsStarted) {
    for (const char* call : {"pidfd_open", "pidfd_send_signal"}) {
        for (const char* error : {"EPERM", "ENOSYS"}) {
            const LaunchResult result =
                launch_without(error, call, {"-n2", "bash", "-c", "echo started"});
            if (result.exit_code == 97) GTEST_SKIP() << "no seccomp filters here: " << result.err;
            EXPECT_EQ(result.exit_code, 1);
            EXPECT_EQ(result.out, "");
            EXPECT_THAT(result.err, StartsWith("ddp-launch: " + std::string(call) + " is refused"));
            EXPECT_THAT(result.err, HasSubstr("Linux 5.4"));
            EXPECT_THAT(result.err, HasSubstr("seccomp"));
            EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
        }
    }
}

TEST_F(LaunchOldKernel, WithoutCloseRangeWorkersGetNoOtherDescriptors) {
    for (const char* error : {"EPERM", "ENOSYS"}) {
        const LaunchResult result =
            launch_without(error, "close_range", plain({"-n2"}, {"show_surroundings"}));
        if (result.exit_code == 97) GTEST_SKIP() << "no seccomp filters here: " << result.err;
        EXPECT_EQ(result.exit_code, 0) << result.err;
        std::size_t descriptors = 0;
        for (const std::string& line : lines_of(result.out)) {
            if (line.starts_with("fd ")) ++descriptors;
        }
        EXPECT_EQ(descriptors, 2 * 4U) << result.out << "0, 1, 2 and the control region";
    }
}

// There is nobody to watch. Valgrind 3.19 knows no pidfds either.
TEST_F(LaunchOldKernel, AWorldOfOneNeedsNoPidfds) {
    const LaunchResult result = launch({"ENOSYS", "pidfd_open", DDP_TEST_FAILING_WORKER, "init"},
                                       {.program = DDP_TEST_WITHOUT_CALLS});
    if (result.exit_code == 97) GTEST_SKIP() << "no seccomp filters here: " << result.err;
    EXPECT_EQ(result.exit_code, 0) << result.err;
}

}  // namespace
}  // namespace ddp::launcher::testing
