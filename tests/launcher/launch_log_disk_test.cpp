// --log-dir on a file system that takes nothing for a while, or never again. A stopped log writer
// stands in for it; as root a real one is frozen (ext4 on a loop device, fsfreeze), whose writer
// cannot even be killed.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace ddp::launcher::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::Not;

std::string content_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::optional<pid_t> log_writer_of(const Launch& job) {
    const auto agent = job.wait_for_agent();
    const auto deadline = base::Deadline::after(patience);
    while (agent && !deadline.passed()) {
        for (const pid_t child : children_now(*agent)) {
            if (content_of("/proc/" + std::to_string(child) + "/comm") == "ddp-log\n") return child;
        }
        ::poll(nullptr, 0, 1);
    }
    return std::nullopt;
}

int times(const std::string& text, const std::string& part) {
    int found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

class LaunchLogDisk : public LaunchTest {
protected:
    std::string log_option() const { return "--log-dir=" + logs_.path(); }
    std::string file(const char* name) const {
        return logs_.path() + "/" + logs_.names().at(0) + "/attempt_0/0/" + name;
    }

    TemporaryFolder logs_;
};

// While the disk takes nothing the worker waits in write(), and when it does all is there.
TEST_F(LaunchLogDisk, ASlowOneSlowsTheWorkersAndLosesNothing) {
    constexpr int lines = 200'000;
    Launch job(folder_, plain({log_option()}, {"lines_at_signal", std::to_string(lines)}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    ASSERT_EQ(::kill(*writer, SIGSTOP), 0);
    job.signal(SIGUSR1);
    const LaunchResult meanwhile = job.wait(milliseconds{500});
    EXPECT_EQ(meanwhile.exit_code, -1) << "the worker waits";
    EXPECT_LT(meanwhile.out.size(), std::size_t{3} << 20);
    ASSERT_EQ(::kill(*writer, SIGCONT), 0);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("--log-dir")));
    EXPECT_EQ(content_of(file("stdout.log")), result.out);
    EXPECT_EQ(times(result.out, "\n"), lines + 1);
}

TEST_F(LaunchLogDisk, OneThatTakesNothingCostsLinesAndNotTheJob) {
    constexpr int lines = 200'000;
    Launch job(folder_, plain({log_option()}, {"lines_at_signal", std::to_string(lines)}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    ASSERT_EQ(::kill(*writer, SIGSTOP), 0);
    job.signal(SIGUSR1);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(times(result.out, "\n"), lines + 1) << "the console is not the disk";
    EXPECT_EQ(times(result.err, "has taken nothing for 5 s"), 1) << result.err;
    EXPECT_EQ(times(result.err, "missing in the files of --log-dir"), 1) << result.err;
    EXPECT_THAT(result.err, Not(HasSubstr("cannot be killed"))) << "a stopped one can";
}

TEST_F(LaunchLogDisk, WhoEndsTheLogWriterLosesFilesAndNotTheJob) {
    Launch job(folder_, plain({log_option()}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    ASSERT_EQ(::kill(*writer, SIGKILL), 0);
    ASSERT_TRUE(
        job.wait_for_error("the log writer (pid " + std::to_string(*writer) + ") ended early"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
    EXPECT_EQ(times(job.out(), "got 15"), 1);
}

// Its pipe ends with the agent.
TEST_F(LaunchLogDisk, TheLogWriterDoesNotOutliveAKilledLauncher) {
    const std::string cookie = "DDP_TEST_COOKIE=" + logs_.path();
    Launch job(folder_, plain({log_option()}, {"wait_forever"}), {.environment = {cookie}});
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent && log_writer_of(job));
    ::kill(job.pid(), SIGSTOP);
    ::kill(*agent, SIGSTOP);
    ::kill(*agent, SIGKILL);
    ::kill(job.pid(), SIGKILL);
    job.wait();
    const auto deadline = base::Deadline::after(patience);
    while (!processes_with(cookie).empty() && !deadline.passed()) ::poll(nullptr, 0, 1);
    EXPECT_TRUE(processes_with(cookie).empty());
    for (const std::string& name : folder_.names()) fs::remove_all(folder_.path() + "/" + name);
}

TEST_F(LaunchLogDisk, WithoutAFolderThereIsNoLogWriter) {
    Launch job(folder_, plain({}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    EXPECT_EQ(children_now(*agent).size(), 1U);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

// A small ext4 of its own; nothing touches it while it is frozen but the job.
class FrozenDisk {
public:
    FrozenDisk() {
        const std::string image = folder_.path() + "/image";
        const std::string disk = path();
        std::ofstream(image).close();
        std::error_code problem;
        fs::resize_file(image, std::uintmax_t{32} << 20, problem);
        fs::create_directory(disk, problem);
        mounted_ = ::geteuid() == 0 && !problem && run("mkfs.ext4 -q -F " + image) &&
                   run("mount -o loop " + image + " " + disk);
        // Some kernels and containers know no freezing.
        usable_ = mounted_ && freeze() && thaw();
    }
    ~FrozenDisk() {
        thaw();
        if (mounted_) run("umount -l " + path());
    }
    FrozenDisk(const FrozenDisk&) = delete;
    FrozenDisk& operator=(const FrozenDisk&) = delete;

    bool usable() const { return usable_; }
    std::string path() const { return folder_.path() + "/disk"; }
    bool freeze() { return frozen_ = run("fsfreeze -f " + path()); }
    bool thaw() {
        if (!frozen_) return true;
        frozen_ = !run("fsfreeze -u " + path());
        return !frozen_;
    }

private:
    static bool run(const std::string& command) {
        return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
    }

    TemporaryFolder folder_;
    bool mounted_ = false;
    bool usable_ = false;
    bool frozen_ = false;
};

class LaunchFrozenDisk : public LaunchTest {
protected:
    void SetUp() override {
        if (!disk_.usable()) GTEST_SKIP() << "no file system can be frozen here (takes root)";
    }
    std::string log_option() const { return "--log-dir=" + disk_.path(); }
    static std::string writer_cannot_be_killed(pid_t writer) {
        return "the log writer (pid " + std::to_string(writer) + ") cannot be killed while the";
    }
    // The one that is left behind ends when the disk goes on.
    void expect_gone_after_thaw(pid_t writer) {
        EXPECT_EQ(::kill(writer, 0), 0);
        EXPECT_TRUE(disk_.thaw());
        const auto deadline = base::Deadline::after(patience);
        while (::kill(writer, 0) == 0 && !deadline.passed()) ::poll(nullptr, 0, 1);
        EXPECT_NE(::kill(writer, 0), 0);
    }
    void interrupt_often(int tries) {
        for (int i = 0; i < tries && !HasFailure(); ++i) {
            SCOPED_TRACE("time " + std::to_string(i));
            const std::string cookie = "DDP_TEST_COOKIE=" + disk_.path();
            Launch job(folder_, plain({log_option(), "--nproc-per-node=2"}, {"print_signals"}),
                       {.environment = {cookie}});
            ASSERT_TRUE(job.wait_for_output("ready", 2));
            const auto writer = log_writer_of(job);
            ASSERT_TRUE(writer);
            ASSERT_TRUE(disk_.freeze());
            job.signal(SIGUSR1);  // so that there is something to write
            ASSERT_TRUE(job.wait_for_output("got 10\n", 2));
            if (i % 2 == 1) {
                ASSERT_TRUE(job.wait_for_error("has taken nothing for 5 s"));
            }
            job.signal(SIGINT);
            const LaunchResult result = job.wait(seconds{8});
            EXPECT_EQ(result.exit_code, 130) << result.err;
            EXPECT_EQ(times(result.err, writer_cannot_be_killed(*writer)), 1) << result.err;
            EXPECT_EQ(processes_with(cookie), std::vector<pid_t>{*writer});
            expect_gone_after_thaw(*writer);
        }
    }

    FrozenDisk disk_;
};

TEST_F(LaunchFrozenDisk, AJobEndsRightWithOneWarning) {
    ASSERT_TRUE(disk_.freeze());
    Launch job(folder_, plain({log_option(), "--nproc-per-node=2"}, {"many_lines", "1000", "out"}));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(lines_of(result.out).size(), 2000U);
    EXPECT_EQ(times(result.err, "has taken nothing for 5 s"), 1) << result.err;
    EXPECT_EQ(times(result.err, writer_cannot_be_killed(*writer)), 1) << result.err;
    EXPECT_EQ(lines_of(result.err).size(), 2U) << result.err;
    expect_gone_after_thaw(*writer);
}

TEST_F(LaunchFrozenDisk, AnInterruptAtTheStartEndsIt) {
    ASSERT_TRUE(disk_.freeze());
    Launch job(folder_, plain({log_option()}, {"wait_forever"}));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    job.signal(SIGINT);
    const LaunchResult result = job.wait(seconds{8});
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_EQ(result.out, "") << "no worker was started";
    expect_gone_after_thaw(*writer);
}

TEST_F(LaunchFrozenDisk, AnInterruptEndsAllButTheLogWriterWhichIsNamed) { interrupt_often(2); }

TEST_F(LaunchFrozenDisk, SoakTwentyInterruptsOfTwenty) { interrupt_often(20); }

// There the agent cannot end before the log writer, as the first process of their namespace.
TEST_F(LaunchFrozenDisk, AnInterruptEndsAJobInAPidNamespaceToo) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    Launch job(folder_, plain({log_option(), "--contain=pidns"}, {"print_signals"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    const auto writer = log_writer_of(job);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(disk_.freeze());
    job.signal(SIGUSR1);
    ASSERT_TRUE(job.wait_for_output("got 10\n"));
    job.signal(SIGINT);
    const LaunchResult result = job.wait(seconds{8});
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.err, HasSubstr("cannot be killed while the file system of --log-dir"));
    expect_gone_after_thaw(*writer);
}

// TMPDIR on it: the agent itself hangs, making the folder for error files.
TEST_F(LaunchFrozenDisk, AnAgentThatCannotBeKilledIsLeftBehindAndNamed) {
    ASSERT_TRUE(disk_.freeze());
    Launch job(folder_, plain({}, {"wait_forever"}), {.environment = {"TMPDIR=" + disk_.path()}});
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const auto hangs = [&] {
        const std::string stat = content_of("/proc/" + std::to_string(*agent) + "/stat");
        return stat.find(") D ") != stat.npos;
    };
    const auto deadline = base::Deadline::after(patience);
    while (!hangs() && !deadline.passed()) ::poll(nullptr, 0, 1);
    LaunchResult result;
    for (int i = 0; i < 400 && result.exit_code == -1; ++i) {
        job.signal(SIGINT);
        result = job.wait(milliseconds{50});
    }
    EXPECT_EQ(result.exit_code, 137) << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("the agent (pid " + std::to_string(*agent) + ") cannot be killed"));
    expect_gone_after_thaw(*agent);
}

}  // namespace
}  // namespace ddp::launcher::testing
