// Signals that the launcher was started to ignore, as a shell's background jobs are.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using std::chrono::milliseconds;

class LaunchIgnoredSignal : public LaunchTest {
protected:
    // ddp-launch under the process number of a bash that ignores SIGINT.
    static Launch::Words ignoring_interrupts(const std::string& options) {
        return {"-c", std::string("trap '' INT; exec ") + DDP_LAUNCH + " " + options +
                          " bash -c 'trap \"echo got term; exit\" TERM; echo ready; "
                          "while :; do sleep 0.02; done'"};
    }
};

TEST_F(LaunchIgnoredSignal, StaysSoWhereItIsNotListed) {
    Launch job(folder_, ignoring_interrupts("--signals-to-handle=SIGTERM"),
               {.program = "/bin/bash"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait(milliseconds{500}).exit_code, -1) << "it runs on";
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.out, ::testing::HasSubstr("got term\n"));
}

TEST_F(LaunchIgnoredSignal, StopsTheJobWhereItIsListed) {
    Launch job(folder_, ignoring_interrupts("--signals-to-handle=SIGTERM,SIGINT"),
               {.program = "/bin/bash"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 128 + SIGINT);
}

}  // namespace
}  // namespace ddp::launcher::testing
