// The launcher on a terminal of its own (a pseudo-terminal): what a single worker gets of it.
#include "base/unique_fd.hpp"
#include "launcher/launch_fixture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <map>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;

// ddp-launch as a shell would start it in the foreground of a terminal.
class TerminalLaunch {
public:
    TerminalLaunch(const TemporaryFolder& folder, Launch::Words words)
        : master_(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
        words.insert(words.begin(), DDP_LAUNCH);
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        EXPECT_TRUE(::grantpt(master_.get()) == 0 && ::unlockpt(master_.get()) == 0);
        const std::string terminal = ::ptsname(master_.get());
        pid_ = ::fork();
        if (pid_ != 0) return;
        ::setenv("TMPDIR", folder.path().c_str(), 1);
        ::setenv("XDG_RUNTIME_DIR", runs_.path().c_str(), 1);
        ::setsid();
        const int slave = ::open(terminal.c_str(), O_RDWR);  // becomes the controlling one
        for (const int fd : {0, 1, 2}) ::dup2(slave, fd);
        if (slave > 2) ::close(slave);
        ::execv(argv[0], argv.data());
        ::_exit(95);
    }
    ~TerminalLaunch() {
        if (pid_ > 0) wait();
    }
    TerminalLaunch(const TerminalLaunch&) = delete;
    TerminalLaunch& operator=(const TerminalLaunch&) = delete;

    void type(const std::string& text) const {
        EXPECT_EQ(::write(master_.get(), text.data(), text.size()),
                  static_cast<ssize_t>(text.size()));
    }
    bool wait_for(const std::string& text, std::size_t times = 1) {
        const auto deadline = base::Deadline::after(patience);
        while (count_of(text) < times && !deadline.passed() && read_some()) {
        }
        return count_of(text) >= times;
    }
    // 128 + signal when that ended it.
    int wait() {
        const auto deadline = base::Deadline::after(patience);
        int status = 0;
        while (::waitpid(pid_, &status, WNOHANG) == 0) {
            if (deadline.passed()) ::kill(pid_, SIGKILL);
            read_some();
        }
        while (read_some()) {
        }
        pid_ = -1;
        return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    const std::string& shown() const { return shown_; }
    bool echoes() const {
        termios modes{};
        return ::tcgetattr(master_.get(), &modes) == 0 && (modes.c_lflag & ECHO) != 0;
    }

private:
    std::size_t count_of(const std::string& text) const {
        std::size_t count = 0;
        for (std::size_t at = shown_.find(text); at != shown_.npos;
             at = shown_.find(text, at + text.size())) {
            ++count;
        }
        return count;
    }
    // False when nothing came for a moment, or nobody is left who could write.
    bool read_some() {
        pollfd entry{master_.get(), POLLIN, 0};
        if (::poll(&entry, 1, 20) <= 0) return pid_ > 0 && ::kill(pid_, 0) == 0;
        std::array<char, 4096> bytes;
        const ssize_t got = ::read(master_.get(), bytes.data(), bytes.size());
        if (got > 0) shown_.append(bytes.data(), static_cast<std::size_t>(got));
        return got > 0;
    }

    base::UniqueFd master_;
    pid_t pid_ = -1;
    const TemporaryFolder runs_;  // where ddp-launch inspect finds it
    std::string shown_;
};

class LaunchTerminal : public LaunchTest {};

const std::string which = "for fd in 0 1 2; do [ -t $fd ] && echo fd$fd:tty || echo fd$fd:no; done";

TEST_F(LaunchTerminal, ASingleWorkerKeepsIt) {
    TerminalLaunch job(folder_, {"bash", "-c", which});
    EXPECT_EQ(job.wait(), 0);
    for (const char* fd : {"fd0:tty", "fd1:tty", "fd2:tty"})
        EXPECT_THAT(job.shown(), HasSubstr(fd));
}

TEST_F(LaunchTerminal, AmongSeveralWorkersNobodyHasItAndStdoutIsOneOfItsOwn) {
    TerminalLaunch job(folder_, {"--nproc-per-node=2", "bash", "-c", which});
    EXPECT_EQ(job.wait(), 0);
    for (const char* fd : {"fd0:no", "fd1:tty", "fd2:no"}) EXPECT_THAT(job.shown(), HasSubstr(fd));
}

TEST_F(LaunchTerminal, ACProgramsLinesShowAsTheyArePrinted) {
    TerminalLaunch job(folder_, plain({"-n2"}, {"print_and_wait", "step one", "step two"}));
    EXPECT_TRUE(job.wait_for("step two", 2)) << job.shown();
    job.type("\x03");
    EXPECT_EQ(job.wait(), 130);
}

TEST_F(LaunchTerminal, ItsOwnForStdoutIsNeitherASessionNorAControllingOne) {
    TerminalLaunch job(folder_, plain({"-n2"}, {"show_surroundings"}));
    EXPECT_EQ(job.wait(), 0);
    EXPECT_THAT(job.shown(), HasSubstr("parent's session yes"));
    EXPECT_THAT(job.shown(), HasSubstr("group leader yes"));
    EXPECT_THAT(job.shown(), HasSubstr("fd 1 -> /dev/pts/"));
    TerminalLaunch other(folder_, plain({"-n2"}, {"show_terminal"}));
    EXPECT_EQ(other.wait(), 0);
    EXPECT_THAT(other.shown(), HasSubstr("terminals 010"));
    EXPECT_THAT(other.shown(), HasSubstr("controlling no"));
}

// Written by a program that then ends at once, in more than a terminal's buffer holds.
TEST_F(LaunchTerminal, NoLineIsLostOrChangedOnItsOwnForStdout) {
    constexpr int count = 3000;
    TerminalLaunch job(folder_, plain({"-n2"}, {"many_lines", std::to_string(count), "out"}));
    EXPECT_EQ(job.wait(), 0);
    std::map<std::string, int> next;
    for (const std::string& line : lines_of(job.shown())) {
        const std::size_t at = line.find("rank ");
        if (at == line.npos || line.find(" line ") == line.npos) continue;
        const std::string rank = line.substr(at, line.find(" line ") - at);
        EXPECT_EQ(line.substr(at), rank + " line " + std::to_string(next[rank]++) + "\r");
    }
    EXPECT_EQ(next, (std::map<std::string, int>{{"rank 0", count}, {"rank 1", count}}));
}

TEST_F(LaunchTerminal, AStreamThatHasAFileKeepsItsPipe) {
    const TemporaryFolder logs;
    for (const Launch::Words& options :
         {Launch::Words{"-t", "1"}, {"-r", "0:1"}, {"--log-dir", logs.path()}}) {
        Launch::Words words{"-n2"};
        words.insert(words.end(), options.begin(), options.end());
        words.insert(words.end(), {"bash", "-c", "[ $RANK = 1 ] || [ ! -t 1 ]"});
        TerminalLaunch job(folder_, words);
        EXPECT_EQ(job.wait(), 0) << options.front();
    }
}

TEST_F(LaunchTerminal, ASingleWorkerReadsWhatIsTyped) {
    TerminalLaunch job(folder_, {"bash", "-c", "read -p 'name? ' name; echo hello $name"});
    ASSERT_TRUE(job.wait_for("name? ")) << job.shown();
    job.type("gradient\n");
    EXPECT_TRUE(job.wait_for("hello gradient"));
    EXPECT_EQ(job.wait(), 0);
}

TEST_F(LaunchTerminal, TheNamedRankOfSeveralReadsWhatIsTyped) {
    TerminalLaunch job(folder_, {"--nproc-per-node=2", "--stdin=1", "bash", "-c",
                                 "read -r name; echo $RANK:$name"});
    job.type("gradient\n");
    EXPECT_TRUE(job.wait_for("1:gradient"));
    EXPECT_EQ(job.wait(), 0);
    EXPECT_THAT(job.shown(), HasSubstr("0:\r\n"));
}

TEST_F(LaunchTerminal, CtrlCStopsASingleWorkerToo) {
    TerminalLaunch job(folder_, plain({}, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for("ready"));
    job.type("\x03");
    EXPECT_EQ(job.wait(), 130);
    EXPECT_THAT(job.shown(), HasSubstr("stopped by SIGINT"));
}

// As IPython and others do at Ctrl-Z. Nobody would continue it.
TEST_F(LaunchTerminal, AWorkerThatHasItDoesNotStop) {
    for (const Launch::Words& options : {Launch::Words{}, Launch::Words{"--tty"}}) {
        Launch::Words words = options;
        words.insert(words.end(), {"bash", "-c", "kill -TSTP 0; echo went on"});
        TerminalLaunch job(folder_, words);
        EXPECT_TRUE(job.wait_for("went on"));
        EXPECT_EQ(job.wait(), 0);
    }
}

TEST_F(LaunchTerminal, ItsModesAreAsBeforeWhenAWorkerThatChangedThemIsKilled) {
    TerminalLaunch job(folder_, {"bash", "-c", "stty -echo; echo quiet; kill -9 $$"});
    ASSERT_TRUE(job.wait_for("quiet"));
    EXPECT_EQ(job.wait(), 137);
    EXPECT_TRUE(job.echoes());
}

}  // namespace
}  // namespace ddp::launcher::testing
