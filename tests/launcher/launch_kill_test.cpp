// SIGKILL at random moments to a worker, the agent or the front: the launcher answers as
// documented, and nobody survives. The zoo is a worker that is hard to get rid of; its witness pipe
// shows end of file when, and only when, all that it started are gone.
#include "launcher/launch_fixture.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <random>

namespace ddp::launcher::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

void pause_for(microseconds time) {
    const timespec pause{time.count() / 1'000'000, time.count() % 1'000'000 * 1000};
    ::nanosleep(&pause, nullptr);
}

class Witness {
public:
    explicit Witness(const TemporaryFolder& folder) : path_(folder.path() + "/witness") {
        EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
        fd_.reset(::open(path_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        EXPECT_TRUE(fd_);
    }
    const std::string& path() const { return path_; }

    // Whether nobody has the pipe open for writing.
    bool all_gone() {
        char bytes[4096];
        for (;;) {
            const ssize_t got = ::read(fd_.get(), bytes, sizeof bytes);
            if (got == 0) return true;
            if (got < 0) return false;
            text_.append(bytes, static_cast<std::size_t>(got));
        }
    }
    // Until so many of the zoo's processes have said who they are.
    bool wait_for(std::size_t count) {
        const auto deadline = base::Deadline::after(patience);
        while (!deadline.passed()) {
            all_gone();
            if (lines_of(text_).size() >= count) return true;
            ::poll(nullptr, 0, 1);
        }
        return false;
    }

    // Of those that have said "<name> <pid>".
    std::vector<pid_t> pids_of(const std::string& name) const {
        std::vector<pid_t> pids;
        for (const std::string& line : lines_of(text_)) {
            if (line.starts_with(name + " ")) pids.push_back(std::stoi(line.substr(name.size())));
        }
        return pids;
    }
    void forget() { text_.clear(); }

private:
    std::string path_;
    base::UniqueFd fd_;
    std::string text_;
};

enum class Victim { front, agent, worker, grandchild };
constexpr int victims = 4;

class LaunchKill : public ::testing::Test {
protected:
    static constexpr std::size_t zoo_size = 5;  // worker, child, session, daemon, hopper

    Launch::Words zoo(Launch::Words options = {}) const {
        options.insert(options.end(), {"--nproc-per-node=2", "--shutdown-timeout=0"});
        options.insert(options.end(), wrapper_.begin(), wrapper_.end());
        options.insert(options.end(), {DDP_TEST_ZOO, witness_.path()});
        return options;
    }
    // DDP_TEST_LAUNCHER: what becomes ddp-launch (tests/wheel/).
    LaunchSettings settings() const {
        const char* const named = std::getenv("DDP_TEST_LAUNCHER");
        return {.environment = {cookie()}, .program = named != nullptr ? named : ""};
    }
    std::string cookie() const { return "DDP_TEST_COOKIE=" + folder_.path(); }

    // The zoo by its pipe, others (the agent; a worker before its first line) by their environment.
    bool nobody_is_left(milliseconds at_most) {
        const auto deadline = base::Deadline::after(at_most);
        do {
            if (witness_.all_gone() && processes_with(cookie()).empty() && witness_.all_gone()) {
                return true;
            }
            ::poll(nullptr, 0, 1);
        } while (!deadline.passed());
        return false;
    }

    // Workers lead a process group in the agent's session, or are still about to; the agent's other
    // children are orphans that it has inherited from the zoo.
    static std::vector<pid_t> workers_of(pid_t agent) {
        std::vector<pid_t> workers = children_now(agent);
        std::erase_if(workers, [&](pid_t pid) {
            const pid_t group = ::getpgid(pid);
            return ::getsid(pid) != agent || (group != pid && group != agent);
        });
        return workers;
    }

    // Nothing when it has not begun or is over already.
    static std::optional<pid_t> find(const Launch& job, Victim victim, std::mt19937& random) {
        if (victim == Victim::front) return job.pid();
        const auto agent = job.wait_for_agent();
        if (victim == Victim::agent || !agent) return agent;
        const std::vector<pid_t> workers = workers_of(*agent);
        if (workers.empty()) return std::nullopt;
        const pid_t worker = workers[random() % workers.size()];
        if (victim == Victim::worker) return worker;
        const std::vector<pid_t> below = children_now(worker);
        if (below.empty()) return std::nullopt;
        return below[random() % below.size()];
    }

    void expect_answer(Victim victim, pid_t pid, const LaunchResult& result) const {
        EXPECT_EQ(result.exit_code, victim == Victim::grandchild ? 143 : 137);
        if (victim == Victim::agent) {
            EXPECT_THAT(result.err, HasSubstr("the agent (pid " + std::to_string(pid) +
                                              ") was killed by SIGKILL"));
        } else if (victim == Victim::worker) {
            EXPECT_THAT(result.err, HasSubstr("failed: SIGKILL (signal 9)"));
        }
    }

    void expect_nothing_left() {
        EXPECT_TRUE(nobody_is_left(std::chrono::seconds{10}));
        EXPECT_EQ(temporary_.names(), std::vector<std::string>{});
    }

    TemporaryFolder folder_;     // the witness's
    TemporaryFolder temporary_;  // the job's TMPDIR
    Witness witness_{folder_};
    Launch::Words wrapper_;  // what runs the zoo
};

class RandomKill : public LaunchKill {
protected:
    // Returns whether there was a victim. A job that loses a grandchild goes on, until it is told
    // to stop.
    bool kill_once(Victim victim, microseconds moment, std::mt19937& random) {
        Launch job(temporary_, zoo(), settings());
        pause_for(moment);
        const auto pid = find(job, victim, random);
        const bool killed = pid && ::kill(*pid, SIGKILL) == 0;
        if (!killed) job.signal(SIGKILL);
        if (killed && victim == Victim::grandchild) job.signal(SIGTERM);
        const auto at = base::Deadline::Clock::now();
        const LaunchResult result = job.wait(std::chrono::seconds{10});
        expect_nothing_left();
        clear_times_.push_back(base::Deadline::Clock::now() - at);
        if (killed) expect_answer(victim, *pid, result);
        return killed;
    }

    // The least of three: the first start of a program is slow.
    microseconds time_until_all_are_up() {
        microseconds least = start_once();
        for (int i = 0; i < 2; ++i) least = std::min(least, start_once());
        return least;
    }
    microseconds start_once() {
        witness_.forget();
        const auto from = base::Deadline::Clock::now();
        Launch job(temporary_, zoo(), settings());
        EXPECT_TRUE(witness_.wait_for(2 * zoo_size));
        const auto took = base::Deadline::Clock::now() - from;
        job.signal(SIGKILL);
        job.wait();
        expect_nothing_left();
        return std::chrono::duration_cast<microseconds>(took);
    }

    void kill_often(int tries) {
        const unsigned seed = std::random_device{}();
        std::printf("seed %u\n", seed);
        std::mt19937 random(seed);
        // Half of the moments, or more, find the whole zoo, however slow this build and machine
        // are.
        const auto moments = 2 * time_until_all_are_up();
        ASSERT_FALSE(HasFailure());
        int killed = 0;
        for (int i = 0; i < tries && !HasFailure(); ++i) {
            const auto victim = static_cast<Victim>(i % victims);
            const microseconds moment{static_cast<long>(random()) % moments.count()};
            SCOPED_TRACE("try " + std::to_string(i) + " victim " + std::to_string(i % victims) +
                         " after " + std::to_string(moment.count()) + " us, seed " +
                         std::to_string(seed));
            killed += kill_once(victim, moment, random) ? 1 : 0;
        }
        EXPECT_GT(killed, tries / 2);
        std::sort(clear_times_.begin(), clear_times_.end());
        const auto p99 = clear_times_[clear_times_.size() * 99 / 100];
        std::printf("%zu kills, clear p99 %.1f ms, max %.1f ms\n", clear_times_.size(),
                    std::chrono::duration<double, std::milli>(p99).count(),
                    std::chrono::duration<double, std::milli>(clear_times_.back()).count());
    }

    // Front and agent at (nearly) the same time; the first one's end must not help the other.
    void kill_both(const Launch::Words& options, int times,
                   const std::function<void()>& expect_afterwards) {
        for (int i = 0; i < times && !HasFailure(); ++i) {
            SCOPED_TRACE("time " + std::to_string(i));
            Launch job(temporary_, zoo(options), settings());
            ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
            const auto agent = job.wait_for_agent();
            ASSERT_TRUE(agent);
            const pid_t first = i % 2 == 0 ? job.pid() : *agent;
            const pid_t second = i % 2 == 0 ? *agent : job.pid();
            // Stopped, neither can answer the other's end before its own comes.
            ::kill(first, SIGSTOP);
            ::kill(second, SIGSTOP);
            ::kill(first, SIGKILL);
            ::kill(second, SIGKILL);
            job.wait();
            expect_afterwards();
            witness_.forget();
        }
    }

    std::vector<base::Deadline::Clock::duration> clear_times_;
};

TEST_F(RandomKill, NobodySurvivesAKillAtAnyMoment) { kill_often(100); }

TEST_F(RandomKill, SoakNobodySurvivesAThousandKills) { kill_often(1000); }

constexpr const char* with_pidns = "--contain=pidns";

class DoubleKill : public RandomKill {
protected:
    void expect_nobody() {
        const auto at = base::Deadline::Clock::now();
        expect_nothing_left_but_the_error_folder();
        EXPECT_LT(base::Deadline::Clock::now() - at, std::chrono::seconds{1});
    }

    // Who was killed cannot remove it; the system's own cleaning of TMPDIR does.
    void expect_nothing_left_but_the_error_folder() {
        EXPECT_TRUE(nobody_is_left(std::chrono::seconds{10}));
        for (const std::string& name : temporary_.names()) {
            EXPECT_TRUE(name.starts_with("ddp-launch-")) << name;
            std::filesystem::remove_all(temporary_.path() + "/" + name);
        }
    }

    // The documented limit: their parent's death ends the workers; what they started may survive.
    void expect_no_worker() {
        const std::vector<pid_t> workers = witness_.pids_of("worker");
        EXPECT_EQ(workers.size(), 2U);
        const auto left = [&] {
            std::vector<pid_t> alive = processes_with(cookie());
            std::erase_if(alive, [&](pid_t pid) {
                return std::find(workers.begin(), workers.end(), pid) == workers.end();
            });
            return alive;
        };
        const auto deadline = base::Deadline::after(patience);
        while (!left().empty() && !deadline.passed()) ::poll(nullptr, 0, 1);
        EXPECT_TRUE(left().empty());
        // A hopper is another process by the time it is found, but of the same group.
        for (const pid_t pid : witness_.pids_of("hopper")) ::kill(-pid, SIGKILL);
        while (!nobody_is_left(milliseconds{5}) && !deadline.passed()) {
            for (const pid_t pid : processes_with(cookie())) ::kill(pid, SIGKILL);
        }
        expect_nothing_left_but_the_error_folder();
    }
};

TEST_F(DoubleKill, InAPidNamespaceNobodySurvives) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_both({with_pidns}, 20, [this] { expect_nobody(); });
}

TEST_F(DoubleKill, SoakInAPidNamespaceNobodySurvives) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_both({with_pidns}, 200, [this] { expect_nobody(); });
}

TEST_F(DoubleKill, WithoutANamespaceNoWorkerSurvives) {
    kill_both({}, 20, [this] { expect_no_worker(); });
}

TEST_F(DoubleKill, SoakWithoutANamespaceNoWorkerSurvives) {
    kill_both({}, 200, [this] { expect_no_worker(); });
}

class PidNamespace : public LaunchKill {};

TEST_F(PidNamespace, TheAgentIsItsFirstProcess) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    Launch job(temporary_, {with_pidns, "bash", "-c", "echo $PPID; ls -d /proc/1 /proc/self/ns"});
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "1\n/proc/1\n/proc/self/ns\n");
}

TEST_F(PidNamespace, KillsOfOneAreAnsweredAsWithout) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    for (const Victim victim : {Victim::front, Victim::agent}) {
        Launch job(temporary_, zoo({with_pidns}), settings());
        ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
        const auto agent = job.wait_for_agent();
        ASSERT_TRUE(agent);
        const pid_t pid = victim == Victim::front ? job.pid() : *agent;
        ASSERT_EQ(::kill(pid, SIGKILL), 0);
        const LaunchResult result = job.wait();
        expect_nothing_left();
        expect_answer(victim, pid, result);
        witness_.forget();
    }
}

// Workers that end with 0 and leave their family to a daemon, while front or agent is killed.
class Daemonised : public RandomKill {
protected:
    Launch::Words daemons() const {
        Launch::Words words = zoo();
        words.push_back("daemonise");
        return words;
    }
    void kill_often_while_they_leave(int tries) {
        const unsigned seed = std::random_device{}();
        std::printf("seed %u\n", seed);
        std::mt19937 random(seed);
        const auto moments = 2 * time_until_all_are_up();
        ASSERT_FALSE(HasFailure());
        int in_time = 0;
        for (int i = 0; i < tries && !HasFailure(); ++i) {
            SCOPED_TRACE("try " + std::to_string(i) + ", seed " + std::to_string(seed));
            const Victim victim = i % 2 == 0 ? Victim::front : Victim::agent;
            Launch job(temporary_, daemons(), settings());
            pause_for(microseconds{static_cast<long>(random()) % moments.count()});
            const auto pid = find(job, victim, random);
            if (pid) ::kill(*pid, SIGKILL);
            const LaunchResult result = job.wait();
            expect_nothing_left();
            EXPECT_THAT(result.exit_code, ::testing::AnyOf(0, 137)) << result.err;
            in_time += result.exit_code == 137 ? 1 : 0;
        }
        EXPECT_GT(in_time, 0);
    }
};

TEST_F(Daemonised, NobodySurvivesAKillAtAnyMoment) { kill_often_while_they_leave(40); }

TEST_F(Daemonised, SoakNobodySurvivesAThousandKills) { kill_often_while_they_leave(1000); }

TEST_F(Daemonised, NobodyOutlivesTheJob) {
    Launch job(temporary_, daemons(), settings());
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(witness_.all_gone()) << "gone when the front ends, not later";
    expect_nothing_left();
}

// Who changes its user loses the order to die with its parent: the kernel takes it back
// (prctl(2), PR_SET_PDEATHSIG).
class ChangedUser : public DoubleKill {
protected:
    void SetUp() override {
        if (::geteuid() != 0) GTEST_SKIP() << "changing the user takes root";
        ASSERT_EQ(::chmod(folder_.path().c_str(), 0777), 0);
        ASSERT_EQ(::chmod(witness_.path().c_str(), 0666), 0);
        wrapper_ = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"};
    }
    void kill_one_of(const Launch::Words& options) {
        for (const Victim victim : {Victim::front, Victim::agent}) {
            Launch job(temporary_, zoo(options), settings());
            ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
            const auto agent = job.wait_for_agent();
            ASSERT_TRUE(agent);
            const pid_t pid = victim == Victim::front ? job.pid() : *agent;
            ASSERT_EQ(::kill(pid, SIGKILL), 0);
            const LaunchResult result = job.wait();
            expect_nothing_left();
            expect_answer(victim, pid, result);
            witness_.forget();
        }
    }
    void kill_front_and_agent(const Launch::Words& options) {
        Launch job(temporary_, zoo(options), settings());
        ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
        const auto agent = job.wait_for_agent();
        ASSERT_TRUE(agent);
        ::kill(job.pid(), SIGSTOP);
        ::kill(*agent, SIGSTOP);
        ::kill(*agent, SIGKILL);
        ::kill(job.pid(), SIGKILL);
        job.wait();
    }
};

TEST_F(ChangedUser, NobodySurvivesAKillAtAnyMoment) { kill_often(40); }

TEST_F(ChangedUser, SoakNobodySurvivesAThousandKills) { kill_often(1000); }

TEST_F(ChangedUser, SoakInAPidNamespaceNobodySurvivesDoubleKills) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_both({with_pidns}, 200, [this] { expect_nobody(); });
}

TEST_F(ChangedUser, WorkersDieWhenOneHalfOfTheLauncherIsKilled) { kill_one_of({}); }

TEST_F(ChangedUser, InAPidNamespaceNobodySurvivesADoubleKill) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_front_and_agent({with_pidns});
    expect_nobody();
}

// As docs/launcher.md says of --contain=base.
TEST_F(ChangedUser, WithoutANamespaceWorkersSurviveADoubleKillAsDocumented) {
    kill_front_and_agent({});
    const std::vector<pid_t> workers = witness_.pids_of("worker");
    ASSERT_EQ(workers.size(), 2U);
    for (const pid_t worker : workers) {
        EXPECT_EQ(::kill(worker, 0), 0) << "then the docs promise too little";
        ::kill(worker, SIGKILL);
    }
    expect_no_worker();
}

TEST_F(LaunchKill, AKilledAgentIsSaidInOneLineAndItsWorkersAreStopped) {
    Launch job(temporary_, zoo(), settings());
    ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGKILL), 0);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_EQ(result.err, "ddp-launch: the agent (pid " + std::to_string(*agent) +
                              ") was killed by SIGKILL; its workers were stopped\n");
    EXPECT_TRUE(witness_.all_gone()) << "gone when the front ends, not later";
    expect_nothing_left();
}

TEST_F(LaunchKill, AKilledFrontTakesEverybodyAlong) {
    Launch job(temporary_, zoo(), settings());
    ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
    job.signal(SIGKILL);
    EXPECT_EQ(job.wait().exit_code, 137);
    expect_nothing_left();
}

// Else the agent's messages to a front that is gone would fill a pipe that nobody reads.
TEST_F(LaunchKill, TheAgentDoesNotReadWhatItSaysItself) {
    Launch job(temporary_, zoo(), settings());
    ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const std::filesystem::path descriptors("/proc/" + std::to_string(*agent) + "/fd");
    const auto messages = std::filesystem::read_symlink(descriptors / "2");
    for (const auto& entry : std::filesystem::directory_iterator(descriptors)) {
        if (std::filesystem::read_symlink(entry.path()) != messages) continue;
        const auto how = entry.symlink_status().permissions();  // as it was opened
        EXPECT_EQ(how & std::filesystem::perms::owner_read, std::filesystem::perms::none) << entry;
    }
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
    expect_nothing_left();
}

TEST_F(LaunchKill, AFailedWorkersFamilyIsGoneWhenTheLauncherEnds) {
    Launch job(temporary_, zoo(), settings());
    ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    const std::vector<pid_t> workers = workers_of(*agent);
    ASSERT_FALSE(workers.empty());
    ASSERT_EQ(::kill(workers.front(), SIGKILL), 0);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_TRUE(witness_.all_gone());
    expect_nothing_left();
}

TEST_F(LaunchKill, SigtermEndsAZooThatIgnoresIt) {
    Launch job(temporary_, zoo(), settings());
    ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
    EXPECT_TRUE(witness_.all_gone());
    expect_nothing_left();
}

TEST_F(LaunchKill, NothingIsLeftInSharedMemory) {
    const auto names = [] {
        std::vector<std::string> result;
        for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
            const std::string name = entry.path().filename();
            if (name.find("ddp") != std::string::npos) result.push_back(name);
        }
        return result;
    };
    {
        Launch job(temporary_, zoo(), settings());
        ASSERT_TRUE(witness_.wait_for(2 * zoo_size));
        job.signal(SIGKILL);
        EXPECT_EQ(job.wait().exit_code, 137);
    }
    expect_nothing_left();
    EXPECT_EQ(names(), std::vector<std::string>{});
}

}  // namespace
}  // namespace ddp::launcher::testing
