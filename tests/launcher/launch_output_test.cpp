// Workers' output: relayed line by whole line, in order per rank, nothing lost, whatever the reader
// does.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <fstream>
#include <map>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;

class LaunchOutput : public LaunchTest {};

// "rank R line I": whole, in order for each rank, so many of each.
void expect_lines(const std::string& text, int ranks, int count) {
    std::map<int, int> next;
    for (const std::string& line : lines_of(text)) {
        int rank = -1;
        int number = -1;
        char after = 0;
        const int fields = std::sscanf(line.c_str(), "rank %d line %d%c", &rank, &number, &after);
        ASSERT_EQ(fields, 2) << "not a whole line: " << line;
        ASSERT_EQ(number, next[rank]++) << "out of order: " << line;
    }
    EXPECT_EQ(next.size(), static_cast<std::size_t>(ranks));
    for (const auto& [rank, lines] : next) EXPECT_EQ(lines, count) << "rank " << rank;
}

TEST_F(LaunchOutput, ManyLinesOfTwoRanksArriveWholeAndInOrder) {
    const LaunchResult result = launch(plain({"--nproc-per-node=2"}, {"many_lines", "10000"}));
    EXPECT_EQ(result.exit_code, 0);
    expect_lines(result.out, 2, 10000);
    expect_lines(result.err, 2, 10000);
}

TEST_F(LaunchOutput, StdoutAndStderrStayApart) {
    const LaunchResult result = launch({"bash", "-c", "echo out; echo err >&2"});
    EXPECT_EQ(result.out, "out\n");
    EXPECT_EQ(result.err, "err\n");
}

TEST_F(LaunchOutput, AnUnterminatedLastLineGetsItsNewline) {
    EXPECT_EQ(launch({"printf", "half a line"}).out, "half a line\n");
}

TEST_F(LaunchOutput, AVeryLongLineArrivesComplete) {
    const LaunchResult result = launch(plain({}, {"print_bytes", "5000000"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.out, std::string(5'000'000, 'x') + "\n");
}

TEST_F(LaunchOutput, ALineShowsWhileTheWorkerStillRuns) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"wait_forever"}));
    EXPECT_TRUE(job.wait_for_output("ready", 2));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchOutput, TheLastWordsOfAFailingWorkerComeBeforeTheReport) {
    const LaunchResult result =
        launch({"--nproc-per-node=2", "bash", "-c",
                "if [ $RANK = 1 ]; then echo last words >&2; exit 9; fi; exec sleep 99"});
    EXPECT_EQ(result.exit_code, 9);
    const std::size_t report = result.err.rfind("ddp-launch: rank 1 ");
    ASSERT_NE(report, std::string::npos);
    EXPECT_LT(result.err.find("last words\n"), report);
}

// The 8 MB do not fit into all the pipes and queues on the way: the workers wait. Of whole lines, as
// the beginning of a line shows by itself where its worker gets no time for 100 ms to go on.
TEST_F(LaunchOutput, AReaderThatPausesLosesNothing) {
    Launch job(folder_, plain({"--nproc-per-node=2"}, {"many_lines", "200000", "out", "whole"}),
               {.read_output = false});
    ASSERT_TRUE(job.wait_for_full_stdout());
    EXPECT_EQ(job.wait(std::chrono::milliseconds{300}).exit_code, -1) << "nobody reads";
    job.start_reading();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    expect_lines(result.out, 2, 200000);
}

// What is left of the job then is its last words on their way to a slow reader.
TEST_F(LaunchOutput, AStopAfterTheLastWorkerChangesNothingOfHowTheJobEnded) {
    const TemporaryFolder sign;
    Launch job(
        folder_,
        {"bash", "-c", "yes & until [ -e " + sign.path() + "/full ]; do sleep 0.02; done; exit 3"},
        {.read_output = false});
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_TRUE(job.wait_for_full_stdout());
    std::ofstream(sign.path() + "/full").put('\n');
    const auto deadline = base::Deadline::after(patience);
    while (!children_now(*agent).empty() && !deadline.passed()) ::usleep(5'000);
    job.signal(SIGINT);
    EXPECT_EQ(job.wait().exit_code, 3);
}

TEST_F(LaunchOutput, AStopIsNotHeldUpByAReaderThatTakesNothing) {
    Launch job(
        folder_,
        plain({"--nproc-per-node=2", "--shutdown-timeout=1"}, {"many_lines", "500000", "out"}),
        {.read_output = false});
    ASSERT_TRUE(job.wait_for_full_stdout());
    job.signal(SIGTERM);
    const LaunchResult result = job.wait(std::chrono::seconds{30});
    EXPECT_EQ(result.exit_code, 143);
}

TEST_F(LaunchOutput, AFullDiskIsSaidOnce) {
    const LaunchResult result = launch(
        {"bash", "-c",
         std::string(DDP_LAUNCH) + " " + DDP_TEST_WORKER + " print_env HOME PATH > /dev/full"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("cannot write to stdout: No space left on device"));
}

}  // namespace
}  // namespace ddp::launcher::testing
