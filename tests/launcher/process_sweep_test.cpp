// Families that try to get away. Each test sweeps in a child of its own.
#include "launcher/process_sweep.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <functional>

namespace ddp::launcher {
namespace {

using std::chrono::seconds;

[[noreturn]] void wait_forever() {
    for (;;) ::pause();
}

// In a child, since a sweep takes all that this process has. `body` returns what to exit with.
int in_child(const std::function<int()>& body) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(body());
    int status = 0;
    EXPECT_EQ(::waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

template <class Body>
pid_t start(Body body) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        body();
        ::_exit(0);
    }
    return pid;
}

void start_daemon() {
    start([] {
        ::setsid();
        start(wait_forever);
    });
}

// Every hop is a new process; the old one is gone within a millisecond.
[[noreturn]] void hop() {
    for (;;) {
        const timespec pause{0, 200'000};
        ::nanosleep(&pause, nullptr);
        if (::fork() != 0) ::_exit(0);
    }
}

void start_stubborn_family() {
    start([] {
        std::signal(SIGTERM, SIG_IGN);
        ::setsid();
        start([] {
            ::setsid();
            start(wait_forever);
            wait_forever();
        });
        start_daemon();
        start(hop);
        wait_forever();
    });
}

bool has_no_child() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

TEST(ProcessSweep, NoDescendantSurvives) {
    for (int round = 0; round < 10; ++round) {
        // The witness: end of file when the last process that inherited the write end is gone.
        std::array<int, 2> witness{};
        ASSERT_EQ(::pipe(witness.data()), 0);
        const int result = in_child([&] {
            ::close(witness[0]);
            become_subreaper();
            for (int i = 0; i < 3; ++i) start_stubborn_family();
            const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}));
            return swept.complete && swept.survivors.empty() && has_no_child() ? 0 : 1;
        });
        EXPECT_EQ(result, 0);
        ::close(witness[1]);
        ::fcntl(witness[0], F_SETFL, O_NONBLOCK);
        char byte = 0;
        EXPECT_EQ(::read(witness[0], &byte, 1), 0) << "somebody still has the pipe";
        ::close(witness[0]);
    }
}

TEST(ProcessSweep, NothingToDoIsDoneAtOnce) {
    const int result = in_child(
        [] { return sweep_descendants(base::Deadline::after(seconds{0})).complete ? 0 : 1; });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, WhoeverIsSparedLives) {
    const int result = in_child([] {
        become_subreaper();
        const pid_t spared = start(wait_forever);
        start_stubborn_family();
        const std::array<pid_t, 1> list{spared};
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}), list);
        const bool alone = children_of(::getpid()) == std::vector<pid_t>{spared};
        const bool lives = ::waitpid(spared, nullptr, WNOHANG) == 0;
        ::kill(spared, SIGKILL);
        ::waitpid(spared, nullptr, 0);
        return swept.complete && alone && lives ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, ChildrenAreListedZombiesToo) {
    const int result = in_child([] {
        const pid_t alive = start(wait_forever);
        const pid_t zombie = start([] {});
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
        const std::vector<pid_t> children = children_of(::getpid());
        const auto has = [&](pid_t pid) {
            return std::count(children.begin(), children.end(), pid) == 1;
        };
        const bool right = children.size() == 2 && has(alive) && has(zombie);
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}));
        return swept.complete && right ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, SurvivorsAreNamedByPid) {
    EXPECT_EQ(describe_survivors({false, {12, 13}}), "pid 12, pid 13");
    EXPECT_NE(describe_survivors({false, {}}), "");
}

}  // namespace
}  // namespace ddp::launcher
