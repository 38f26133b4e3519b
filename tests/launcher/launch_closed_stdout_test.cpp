// A launcher whose stdout has lost its reader, as after `| head`: the job ends as a pipeline does,
// or goes on unseen where the user says so.
#include "base/process/process_tree.hpp"
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <sstream>

namespace ddp::launcher::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int exit_sigpipe = 128 + SIGPIPE;

class LaunchClosedStdout : public LaunchTest {
protected:
    // In bash, which runs `ddp-launch $words`.
    LaunchResult pipeline(const std::string& words, const std::string& rest) {
        return launch({"-c", std::string(DDP_LAUNCH) + " " + words + " | " + rest +
                                 "; echo ended with ${PIPESTATUS[0]}"},
                      {.program = "/bin/bash"});
    }
    // Each rank does the first, says that it is ready, waits for open_gate(), and does the rest.
    Launch::Words after_gate(Launch::Words options, const std::string& then,
                             const std::string& first = "true") const {
        options.insert(options.end(), {"bash", "-c",
                                       first + "; echo ready; until [ -e " + gate() +
                                           " ]; do sleep 0.02; done; " + then});
        return options;
    }
    void open_gate() const { std::ofstream(gate()).put('\n'); }
    std::string gate() const { return signs_.path() + "/gate"; }

    TemporaryFolder signs_;
};

// Clock ticks that a process has used.
long ticks_of(pid_t pid) {
    const std::string text = base::read_small_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name_end = text.rfind(") ");
    if (name_end == text.npos) return 0;
    std::istringstream fields(text.substr(name_end + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) fields >> skipped;
    long user = 0;
    long system = 0;
    fields >> user >> system;
    return user + system;
}

TEST_F(LaunchClosedStdout, EndsAJobThatWouldWriteForEver) {
    const LaunchResult result = pipeline("-n 2 yes", "head -n 2");
    EXPECT_EQ(result.out, "y\ny\nended with " + std::to_string(exit_sigpipe) + "\n");
    EXPECT_THAT(result.err, HasSubstr("ddp-launch: nobody reads stdout any more"));
    EXPECT_THAT(result.err, HasSubstr("--on-closed-stdout=continue"));
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
}

TEST_F(LaunchClosedStdout, EndsAWorkerThatIgnoresSigpipeAndWritesNoMore) {
    Launch job(folder_, after_gate({"-n", "2", "--shutdown-timeout=1000"},
                                   "trap '' PIPE; echo more; exec sleep 1000"));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.close_stdout();
    open_gate();
    EXPECT_EQ(job.wait().exit_code, exit_sigpipe);
}

TEST_F(LaunchClosedStdout, LetsWorkersThatHandleTheSignalTidyUp) {
    Launch job(folder_, after_gate({"-n", "2"}, "while :; do echo more; sleep 0.02; done",
                                   "trap '' TERM; trap 'echo saved >&2; exit' PIPE"));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    job.close_stdout();
    open_gate();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, exit_sigpipe);
    EXPECT_THAT(result.err, HasSubstr("saved\nsaved\n"));
}

TEST_F(LaunchClosedStdout, DoesNotCutShortAStopThatWasAskedFor) {
    Launch job(folder_, {"bash", "-c",
                         "trap 'for i in {1..20}; do echo tidy; sleep 0.02; done; echo saved >&2; "
                         "exit' INT; echo ready; while :; do sleep 0.02; done"});
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    job.signal(SIGINT);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGINT);
    EXPECT_THAT(result.err, HasSubstr("saved\n"));
}

// Which ends the reader as well, and may be read after the pipe that it has left.
TEST_F(LaunchClosedStdout, IsNotTheReasonWhereACtrlCCameToAll) {
    for (int i = 0; i < 8; ++i) {
        const std::string sign = signs_.path() + "/runs" + std::to_string(i);
        const LaunchResult result =
            launch({"--wait", "bash", "-c",
                    "trap : INT; (until [ -e " + sign + " ]; do sleep 0.02; done; kill -INT 0) & " +
                        DDP_LAUNCH + " -n 2 bash -c ': >" + sign +
                        "; exec yes' | cat >/dev/null; echo ended with ${PIPESTATUS[0]}"},
                   {.program = "/usr/bin/setsid"});
        EXPECT_EQ(result.out, "ended with " + std::to_string(128 + SIGINT) + "\n");
        EXPECT_THAT(result.err, Not(HasSubstr("nobody reads")));
    }
}

TEST_F(LaunchClosedStdout, IsNoSuccessForAJobThatHasWrittenAll) {
    Launch job(folder_, after_gate({}, "echo last"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, exit_sigpipe);
    EXPECT_THAT(result.err, HasSubstr("nobody reads stdout any more"));
}

TEST_F(LaunchClosedStdout, IsNotNoticedBeforeSomebodyWrites) {
    Launch job(folder_, after_gate({}, "exit 0"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    EXPECT_EQ(job.wait().exit_code, 0);
}

TEST_F(LaunchClosedStdout, StartsNoOtherAttempt) {
    Launch job(folder_, after_gate({"--max-restarts=5"}, "echo more; exec sleep 1000"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, exit_sigpipe);
    EXPECT_THAT(result.err, Not(HasSubstr("restart")));
}

TEST_F(LaunchClosedStdout, MayBeGoneWithoutEndingTheJob) {
    const std::string continued = "--on-closed-stdout=continue ";
    const LaunchResult result =
        pipeline(continued + DDP_TEST_WORKER + " many_lines 50000 out", "head -n 1");
    EXPECT_EQ(result.out, "rank 0 line 0\nended with 0\n");
    EXPECT_EQ(result.err, "");
}

TEST_F(LaunchClosedStdout, MayBeGoneForTheNextAttemptToo) {
    Launch job(folder_, after_gate({"--on-closed-stdout=continue", "--max-restarts=1"},
                                   "yes | head -n 100000; [ $TORCHELASTIC_RESTART_COUNT = 1 ]"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("restart 1 of 1"));
}

TEST_F(LaunchClosedStdout, CostsNoLineOfTheFiles) {
    TemporaryFolder logs;
    Launch job(folder_, after_gate({"--on-closed-stdout=continue", "--log-dir=" + logs.path()},
                                   "seq 200000"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    EXPECT_EQ(job.wait().exit_code, 0);
    ASSERT_EQ(logs.names().size(), 1U);
    std::ifstream file(logs.path() + "/" + logs.names()[0] + "/attempt_0/0/stdout.log");
    const std::vector<std::string> lines =
        lines_of({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
    ASSERT_EQ(lines.size(), 1U + 200000U);
    EXPECT_EQ(lines.back(), "200000");
}

TEST_F(LaunchClosedStdout, CostsNoTimeWhileNobodyWritesMuch) {
    Launch job(folder_, after_gate({"-n", "2", "--on-closed-stdout=continue"},
                                   "until [ -e " + gate() + "2 ]; do echo more; sleep 0.05; done"));
    ASSERT_TRUE(job.wait_for_output("ready", 2));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    job.close_stdout();
    open_gate();
    const long before = ticks_of(job.pid()) + ticks_of(*agent);
    EXPECT_EQ(job.wait(milliseconds{1500}).exit_code, -1);
    const long used = ticks_of(job.pid()) + ticks_of(*agent) - before;
    EXPECT_LT(used, ::sysconf(_SC_CLK_TCK) / 2) << "of 1.5 s";
    std::ofstream(gate() + "2").put('\n');
    EXPECT_EQ(job.wait().exit_code, 0);
}

// What the workers say on stderr is still to be seen.
TEST_F(LaunchClosedStdout, LeavesStderrAlone) {
    Launch job(folder_, after_gate({"--on-closed-stdout=continue"},
                                   "echo more; echo still here >&2; exit 5"));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.close_stdout();
    open_gate();
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 5);
    EXPECT_THAT(result.err, HasSubstr("still here\n"));
}

}  // namespace
}  // namespace ddp::launcher::testing
