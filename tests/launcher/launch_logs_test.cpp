// --log-dir, --redirects, --tee and the filter, with pipes for stdout and stderr: what is shown,
// and what is kept.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace ddp::launcher::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

class LaunchLogs : public LaunchTest {
protected:
    std::string log_option() const { return "--log-dir=" + logs_.path(); }
    // <log_dir>/<the only job>/attempt_0/<rank>
    std::string folder_of(int rank) const {
        const auto jobs = logs_.names();
        EXPECT_EQ(jobs.size(), 1U);
        return jobs.empty() ? ""
                            : logs_.path() + "/" + jobs[0] + "/attempt_0/" + std::to_string(rank);
    }
    static std::string content_of(const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        EXPECT_TRUE(file) << path;
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // "rank R line I" from 0 on, nothing else.
    static void expect_all_lines(const std::string& path, int rank, int count) {
        std::ifstream file(path);
        std::string line;
        for (int i = 0; i < count; ++i) {
            ASSERT_TRUE(std::getline(file, line)) << path << " ends before line " << i;
            ASSERT_EQ(line, "rank " + std::to_string(rank) + " line " + std::to_string(i)) << path;
        }
        EXPECT_FALSE(std::getline(file, line)) << path << " goes on with " << line;
    }

    TemporaryFolder logs_;
};

TEST_F(LaunchLogs, BothStreamsAreKeptAndShown) {
    const LaunchResult result =
        launch({log_option(), "--nproc-per-node=2", "bash", "-c",
                "echo out$RANK; echo err$RANK >&2; printf '\\r1\\r2\\r3\\nend'"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("out0", "out1", "3", "3", "end", "end"));
    EXPECT_THAT(lines_of(result.err), UnorderedElementsAre("err0", "err1"));
    EXPECT_THAT(fs::path(folder_of(0)).parent_path().parent_path().filename().string(),
                MatchesRegex(".*_[0-9a-f]{8}"));
    for (int rank = 0; rank < 2; ++rank) {
        const std::string number = std::to_string(rank);
        EXPECT_EQ(content_of(folder_of(rank) + "/stdout.log"), "out" + number + "\n\r1\r2\r3\nend")
            << "as it was written";
        EXPECT_EQ(content_of(folder_of(rank) + "/stderr.log"), "err" + number + "\n");
    }
}

TEST_F(LaunchLogs, RedirectedStreamsAreNotShown) {
    const LaunchResult result = launch({log_option(), "--redirects=1:1", "--nproc-per-node=2",
                                        "bash", "-c", "echo out$RANK; echo err$RANK >&2"});
    EXPECT_EQ(result.out, "out0\n");
    EXPECT_THAT(lines_of(result.err), UnorderedElementsAre("err0", "err1"));
    EXPECT_EQ(content_of(folder_of(1) + "/stdout.log"), "out1\n");
}

TEST_F(LaunchLogs, TeedLinesAreShownWithTorchrunsPrefix) {
    const LaunchResult result =
        launch({log_option(), "--tee=3", "--redirects=3", "--role=trainer", "--nproc-per-node=2",
                "bash", "-c", "echo out; echo err >&2"});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("[trainer0]:out", "[trainer1]:out"));
    EXPECT_THAT(lines_of(result.err), UnorderedElementsAre("[trainer0]:err", "[trainer1]:err"));
    EXPECT_EQ(content_of(folder_of(1) + "/stdout.log"), "out\n");
}

TEST_F(LaunchLogs, ATemplateIsBeforeEveryLine) {
    const LaunchResult result = launch({"--log-line-prefix-template=${rank}/$local_rank> ",
                                        "--nproc-per-node=2", "bash", "-c", "echo a; echo b"});
    EXPECT_THAT(lines_of(result.out), UnorderedElementsAre("0/0> a", "0/0> b", "1/1> a", "1/1> b"));
    const LaunchResult from_environment =
        launch({"echo", "a"}, {.environment = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<$rank>"}});
    EXPECT_EQ(from_environment.out, "<0>a\n");
}

TEST_F(LaunchLogs, WhoIsFilteredIsKeptAllTheSame) {
    const LaunchResult result =
        launch({log_option(), "--local-ranks-filter=1", "--nproc-per-node=2", "bash", "-c",
                "echo out$RANK; echo err$RANK >&2"});
    EXPECT_EQ(result.out, "out1\n");
    EXPECT_EQ(result.err, "err1\n");
    EXPECT_EQ(content_of(folder_of(0) + "/stdout.log"), "out0\n");
    EXPECT_EQ(content_of(folder_of(0) + "/stderr.log"), "err0\n");
}

TEST_F(LaunchLogs, RedirectedWithoutAFolderTheyGoNowhere) {
    const LaunchResult result = launch({"--redirects=3", "bash", "-c", "echo out; echo err >&2"});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out + result.err, "");
}

TEST_F(LaunchLogs, AFolderThatCannotBeMadeEndsTheJobBeforeItStarts) {
    std::ofstream(logs_.path() + "/file") << "in the way";
    const LaunchResult result = launch({"--log-dir=" + logs_.path() + "/file", "echo", "started"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("--log-dir"));
}

TEST_F(LaunchLogs, AFullDiskIsSaidOnceAndEndsNothing) {
    const LaunchResult result = launch(
        {"bash", "-c",
         "ulimit -f 20; exec \"$0\" --log-dir=" + logs_.path() + " \"$1\" many_lines 5000 out",
         DDP_LAUNCH, DDP_TEST_WORKER});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 5000U);
    const std::size_t said = result.err.find("stdout.log: File too large");
    ASSERT_NE(said, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("File too large", said + 20), std::string::npos) << result.err;
}

TEST_F(LaunchLogs, FilesAreCompleteWhenTheReaderOfTheConsoleIsGone) {
    const LaunchResult result = launch(
        {"bash", "-c",
         "set -o pipefail; \"$0\" --log-dir=" + logs_.path() +
             " --on-closed-stdout=continue --nproc-per-node=2 \"$1\" many_lines 50000 out | head "
             "-n 1",
         DDP_LAUNCH, DDP_TEST_WORKER});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (int rank = 0; rank < 2; ++rank) {
        expect_all_lines(folder_of(rank) + "/stdout.log", rank, 50'000);
    }
}

TEST_F(LaunchLogs, FilesAreCompleteWhenTheFrontIsKilled) {
    const std::string cookie = "DDP_TEST_COOKIE=" + logs_.path();
    Launch job(folder_, plain({log_option()}, {"many_lines", "200000", "out"}),
               {.environment = {cookie}, .read_output = false});
    ASSERT_TRUE(job.wait_for_full_stdout());
    job.signal(SIGKILL);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGKILL);
    const auto deadline = base::Deadline::after(patience);  // for the agent to clear up
    while (!processes_with(cookie).empty() && !deadline.passed()) ::usleep(1000);
    // A full pipe holds less than 64 KiB where its pages are not.
    EXPECT_GT(result.out.size(), 32'768U);
    const std::string text = content_of(folder_of(0) + "/stdout.log");
    EXPECT_TRUE(text.starts_with(result.out))
        << text.size() << " bytes, where the console got " << result.out.size();
}

TEST_F(LaunchLogs, TheReportDoesNotWaitForAStalledReaderOfStdout) {
    Launch job(folder_,
               {"bash", "-c",
                "exec 2>\"$2/report\"; exec \"$0\" bash -c '\"$0\" many_lines 100000 out; exit 9' "
                "\"$1\"",
                DDP_LAUNCH, DDP_TEST_WORKER, logs_.path()},
               {.read_output = false});
    ASSERT_TRUE(job.wait_for_full_stdout());
    const auto deadline = base::Deadline::after(patience);
    std::string report;
    // The worker itself waits for the reader: end it.
    for (const pid_t outer_agent : children_now(job.pid())) {
        for (const pid_t front : children_now(outer_agent)) {
            for (const pid_t agent : children_now(front)) {
                for (const pid_t worker : children_now(agent)) ::kill(worker, SIGKILL);
            }
        }
    }
    while (report.find("rank 0") == std::string::npos && !deadline.passed()) {
        report = content_of(logs_.path() + "/report");
    }
    EXPECT_THAT(report, HasSubstr("ddp-launch: rank 0"));
    EXPECT_EQ(job.wait(std::chrono::milliseconds{100}).exit_code, -1) << "stdout is not given up";
    job.start_reading();
    EXPECT_EQ(job.wait().exit_code, 128 + SIGKILL);
}

}  // namespace
}  // namespace ddp::launcher::testing
