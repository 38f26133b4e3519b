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
    bool wait_for(const std::string& text) {
        const auto deadline = base::Deadline::after(patience);
        while (shown_.find(text) == shown_.npos && !deadline.passed() && read_some()) {
        }
        return shown_.find(text) != shown_.npos;
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

TEST_F(LaunchTerminal, AmongSeveralWorkersNobodyHasIt) {
    TerminalLaunch job(folder_, {"--nproc-per-node=2", "bash", "-c", which});
    EXPECT_EQ(job.wait(), 0);
    for (const char* fd : {"fd0:no", "fd1:no", "fd2:no"}) EXPECT_THAT(job.shown(), HasSubstr(fd));
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
