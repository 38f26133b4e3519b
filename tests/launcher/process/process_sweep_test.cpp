// Families that try to get away. Each test sweeps in a child of its own.
#include "launcher/process/process_sweep.hpp"

#include "base/process/process_tree.hpp"

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
#include <limits>
#include <vector>

namespace ddp::launcher {
namespace {

using std::chrono::seconds;

// Whoever is left behind by a test that was killed ends by itself.
constexpr seconds longest_life{60};

[[noreturn]] void wait_forever() {
    ::alarm(static_cast<unsigned>(longest_life.count()));
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
enum class Group { kept, left };
[[noreturn]] void hop(Group group) {
    const auto end = base::Deadline::after(longest_life);
    while (!end.passed()) {
        const timespec pause{0, 200'000};
        ::nanosleep(&pause, nullptr);
        if (::fork() != 0) ::_exit(0);
        if (group == Group::left) ::setsid();
    }
    ::_exit(0);
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
        start([] { hop(Group::kept); });
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

TEST(ProcessSweep, WhoLeavesItsGroupAtEachForkDoesNotSurvive) {
    const int result = in_child([] {
        become_subreaper();
        for (int i = 0; i < 3; ++i) start([] { hop(Group::left); });
        ::usleep(300000);
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}));
        return swept.complete && has_no_child() ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, NothingToDoIsDoneAtOnce) {
    const int result = in_child(
        [] { return sweep_descendants(base::Deadline::after(seconds{0})).complete ? 0 : 1; });
    EXPECT_EQ(result, 0);
}

// Whether `pid`, and no other child, lives; then it is ended.
bool was_left_alone(pid_t pid) {
    const bool alone = base::children_of(::getpid()) == std::vector<pid_t>{pid};
    const bool lives = ::waitpid(pid, nullptr, WNOHANG) == 0;
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return alone && lives;
}

TEST(ProcessSweep, AnExcludedProcessLives) {
    const int result = in_child([] {
        become_subreaper();
        const pid_t excluded = start(wait_forever);
        start_stubborn_family();
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}), {excluded});
        return swept.complete && was_left_alone(excluded) ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

pid_t start_in_group(pid_t group) {
    const pid_t pid = start(wait_forever);
    ::setpgid(pid, group);
    return pid;
}

TEST(ProcessSweep, WhoIsInTheGroupOfAnExcludedProcessIsKilledAlone) {
    const int result = in_child([] {
        ::setsid();
        become_subreaper();
        const pid_t excluded = start_in_group(0);
        start_in_group(excluded);
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}), {excluded});
        return swept.complete && was_left_alone(excluded) ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

// In a session that the one who sweeps has not begun, as a shell's.
TEST(ProcessSweep, WhoIsInTheGroupOfAnotherFamilyIsKilledAlone) {
    const pid_t other = start_in_group(0);
    const int result = in_child([&] {
        become_subreaper();
        start_in_group(other);
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}));
        return swept.complete && has_no_child() ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
    EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0) << "it is gone";
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
}

// What a excluded process leaves behind when it ends in the middle of a sweep was never ours.
TEST(ProcessSweep, WhatIsBelowAnExcludedProcessLivesToo) {
    const int result = in_child([] {
        become_subreaper();
        std::array<int, 2> pipe{};
        if (::pipe(pipe.data()) != 0) return 2;
        const pid_t excluded = start([&] {
            const pid_t below = start(wait_forever);
            if (::write(pipe[1], &below, sizeof below) != sizeof below) ::_exit(1);
            wait_forever();
        });
        pid_t below = 0;
        if (::read(pipe[0], &below, sizeof below) != sizeof below) return 3;
        ExcludedProcesses list;
        list.add_with_descendants(excluded);
        ::kill(excluded, SIGKILL);
        ::waitpid(excluded, nullptr, 0);  // `below` is our child from here on
        start_stubborn_family();
        const SweepResult swept = sweep_descendants(base::Deadline::after(seconds{30}), list);
        return swept.complete && was_left_alone(below) ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, BelowAnotherProcessEverybodyIsKilled) {
    const int result = in_child([] {
        become_subreaper();
        const pid_t ancestor = start([] {
            become_subreaper();
            start_stubborn_family();
            wait_forever();
        });
        const auto deadline = base::Deadline::after(seconds{30});
        while (base::children_of(ancestor).empty() && !deadline.passed()) ::usleep(1000);
        const SweepResult swept = sweep_below(ancestor, deadline);
        const bool lives = ::waitpid(ancestor, nullptr, WNOHANG) == 0;
        ::kill(ancestor, SIGKILL);
        ::waitpid(ancestor, nullptr, 0);
        sweep_descendants(base::Deadline::after(seconds{30}));
        return swept.complete && lives ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

TEST(ProcessSweep, LivingDescendantsAreListedAndSignalled) {
    const int result = in_child([] {
        become_subreaper();
        const pid_t excluded = start(wait_forever);
        const pid_t zombie = start([] {});
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
        const pid_t parent = start([] {
            start(wait_forever);
            wait_forever();
        });
        const auto deadline = base::Deadline::after(seconds{30});
        while (base::children_of(parent).empty() && !deadline.passed()) ::usleep(1000);
        // The kernel's list may miss somebody while it changes.
        std::vector<Descendant> found;
        while (found.size() != 2 && !deadline.passed()) found = living_descendants({excluded});
        const bool right = found.size() == 2 && found[0].pid == parent &&
                           found[1].parent == parent && !found[0].name.empty();
        signal_descendants(found, SIGTERM);
        ::waitpid(parent, nullptr, 0);
        while (!living_descendants({excluded}).empty() && !deadline.passed()) ::usleep(1000);
        const bool gone = living_descendants({excluded}).empty();
        const bool lives = ::waitpid(excluded, nullptr, WNOHANG) == 0;
        sweep_descendants(base::Deadline::after(seconds{30}));
        return right && gone && lives ? 0 : 1;
    });
    EXPECT_EQ(result, 0);
}

// Who has the name of one that was excluded is excluded only if it is the same process.
TEST(ProcessSweep, APidThatWasReusedIsNotExcluded) {
    ExcludedProcesses list;
    list.add(std::numeric_limits<pid_t>::max());
    EXPECT_TRUE(list.empty());
    list.add(::getpid());
    EXPECT_TRUE(list.contains(::getpid()));
    EXPECT_FALSE(list.contains(::getppid()));
}

TEST(ProcessSweep, LeftoversAreDescribedByNameAndTheirNamesArePlain) {
    EXPECT_EQ(describe({{12, 1, "sleep"}, {13, 1, "a\x1b[2J"}}), "pid 12 (sleep), pid 13 (a?[2J)");
    const std::vector<Descendant> many(7, Descendant{1, 1, "x"});
    EXPECT_TRUE(describe(many).ends_with(" and 2 more"));
}

TEST(ProcessSweep, ChildrenAreListedZombiesToo) {
    const int result = in_child([] {
        const pid_t alive = start(wait_forever);
        const pid_t zombie = start([] {});
        siginfo_t info{};
        ::waitid(P_PID, static_cast<id_t>(zombie), &info, WEXITED | WNOWAIT);
        const std::vector<pid_t> children = base::children_of(::getpid());
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
