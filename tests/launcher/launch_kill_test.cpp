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

#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <random>

namespace ddp::launcher::testing {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

void pause_for(microseconds time) {
    const timespec pause{0, static_cast<long>(time.count() * 1000)};
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

private:
    std::string path_;
    base::UniqueFd fd_;
    std::string text_;
};

enum class Victim { worker, agent, front };

class LaunchKill : public ::testing::Test {
protected:
    static constexpr std::size_t zoo_size = 5;  // worker, child, session, daemon, hopper

    Launch::Words zoo() const {
        return {"--nproc-per-node=2", "--shutdown-timeout=0", DDP_TEST_ZOO, witness_.path()};
    }
    LaunchSettings settings() const { return {.environment = {cookie()}}; }
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

    // Workers lead a session of their own, or are still about to; the agent's other children are
    // orphans that it has inherited from the zoo.
    static std::vector<pid_t> workers_of(pid_t agent) {
        std::vector<pid_t> workers = children_now(agent);
        std::erase_if(workers, [&](pid_t pid) {
            const pid_t session = ::getsid(pid);
            return session != pid && session != agent;
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
        return workers[random() % workers.size()];
    }

    void expect_answer(Victim victim, pid_t pid, const LaunchResult& result) const {
        EXPECT_EQ(result.exit_code, 137);
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
};

class RandomKill : public LaunchKill {
protected:
    // Returns whether there was a victim.
    bool kill_once(Victim victim, microseconds moment, std::mt19937& random) {
        Launch job(temporary_, zoo(), settings());
        pause_for(moment);
        const auto pid = find(job, victim, random);
        if (pid) {
            EXPECT_EQ(::kill(*pid, SIGKILL), 0);
        } else {
            job.signal(SIGKILL);
        }
        // Within the grace, which is 0, and a second; ten times that here.
        const LaunchResult result = job.wait(std::chrono::seconds{10});
        if (pid) expect_answer(victim, *pid, result);
        expect_nothing_left();
        return pid.has_value();
    }
};

TEST_F(RandomKill, NobodySurvivesAKillOfWorkerAgentOrFrontAtAnyMoment) {
    const unsigned seed = std::random_device{}();
    std::printf("seed %u\n", seed);
    std::mt19937 random(seed);
    constexpr int tries = 120;
    int killed = 0;
    for (int i = 0; i < tries && !HasFailure(); ++i) {
        const auto victim = static_cast<Victim>(i % 3);
        const microseconds moment{random() % 25'000};
        SCOPED_TRACE("try " + std::to_string(i) + " victim " + std::to_string(i % 3) + " after " +
                     std::to_string(moment.count()) + " us, seed " + std::to_string(seed));
        killed += kill_once(victim, moment, random) ? 1 : 0;
    }
    EXPECT_GT(killed, tries / 2);
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
