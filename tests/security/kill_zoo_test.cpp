// Workers that have become another user, and what they leave behind as daemons, end with their job
// whichever of the launcher's processes is killed. The one documented exception: with
// --contain=base and both killed at once, the kernel tells such workers nothing.
#include "launcher/launch_fixture.hpp"
#include "security/stranger.hpp"
#include "support/seed.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>

namespace ddp::security_test {
namespace {

using launcher::testing::Launch;
using launcher::testing::LaunchResult;
using launcher::testing::pid_namespaces_are_allowed;
using launcher::testing::processes_with;
using launcher::testing::TemporaryFolder;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr uid_t zoos_user = 12345;

enum class Victim { front, agent, both };

class KillZoo : public ::testing::Test {
protected:
    void SetUp() override {
        DDP_NEEDS_ROOT();
        ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
        ASSERT_EQ(::mkfifo(pipe_.c_str(), 0600), 0);
        ASSERT_EQ(::chmod(pipe_.c_str(), 0666), 0);
        witness_.reset(::open(pipe_.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
        ASSERT_TRUE(witness_);
    }

    std::string cookie() const { return "DDP_TEST_COOKIE=" + folder_.path(); }

    // Until the zoo's processes of both ranks have said who they are.
    bool wait_for_zoo() {
        constexpr std::ptrdiff_t all = 10;
        const auto deadline = base::Deadline::after(patience);
        said_.clear();
        while (std::count(said_.begin(), said_.end(), '\n') < all && !deadline.passed()) {
            char bytes[4096];
            const ssize_t got = ::read(witness_.get(), bytes, sizeof bytes);
            if (got > 0) said_.append(bytes, static_cast<std::size_t>(got));
            ::poll(nullptr, 0, 1);
        }
        return !deadline.passed();
    }

    // The pipe shows its end when, and only when, nobody of the zoo is there.
    bool zoo_is_gone() {
        char bytes[4096];
        ssize_t got = 0;
        while ((got = ::read(witness_.get(), bytes, sizeof bytes)) > 0) {
        }
        return got == 0;
    }

    bool nobody_is_left(milliseconds at_most) {
        const auto deadline = base::Deadline::after(at_most);
        do {
            if (zoo_is_gone() && processes_with(cookie()).empty() && zoo_is_gone()) return true;
            ::poll(nullptr, 0, 1);
        } while (!deadline.passed());
        return false;
    }

    // Nobody who is still the launcher's user: the documents except the others alone.
    bool only_the_changed_are_left() {
        const auto deadline = base::Deadline::after(seconds{10});
        do {
            const std::vector<pid_t> left = processes_with(cookie());
            if (std::none_of(left.begin(), left.end(), [](pid_t pid) {
                    struct stat status {};
                    const std::string folder = "/proc/" + std::to_string(pid);
                    return ::stat(folder.c_str(), &status) == 0 && status.st_uid != zoos_user;
                })) {
                return true;
            }
            ::poll(nullptr, 0, 1);
        } while (!deadline.passed());
        return false;
    }

    // Those whom the documented exception lets live; hoppers are new processes all the time.
    void kill_survivors() {
        const auto deadline = base::Deadline::after(patience);
        while (!nobody_is_left(milliseconds{2}) && !deadline.passed()) {
            for (const pid_t pid : processes_with(cookie())) {
                const pid_t group = ::getpgid(pid);
                if (group > 1 && group != ::getpgid(0)) ::kill(-group, SIGKILL);
                ::kill(pid, SIGKILL);
            }
        }
    }

    void kill_once(Victim victim, const std::string& contain, std::mt19937& random) {
        const TemporaryFolder temporary;
        Launch job(temporary,
                   {contain, "--nproc-per-node=2", "--shutdown-timeout=0", "/usr/bin/setpriv",
                    "--reuid=" + std::to_string(zoos_user), "--regid=" + std::to_string(zoos_user),
                    "--clear-groups", DDP_TEST_ZOO, pipe_},
                   {.environment = {cookie()}});
        ASSERT_TRUE(wait_for_zoo()) << said_ << job.wait(milliseconds{0}).exit_code << ": "
                                    << job.wait(milliseconds{0}).err;
        const auto agent = job.wait_for_agent();
        ASSERT_TRUE(agent);
        std::vector<pid_t> victims;
        if (victim != Victim::agent) victims.push_back(job.pid());
        if (victim != Victim::front) victims.push_back(*agent);
        if (random() % 2 == 0) std::swap(victims.front(), victims.back());
        // Stopped, neither can answer the other's end before its own comes.
        for (const pid_t pid : victims) ::kill(pid, SIGSTOP);
        for (const pid_t pid : victims) ::kill(pid, SIGKILL);
        const LaunchResult result = job.wait();
        EXPECT_EQ(result.exit_code, 128 + SIGKILL);
        if (victim == Victim::both && contain == "--contain=base") {
            EXPECT_TRUE(only_the_changed_are_left());
            kill_survivors();
        }
        const bool gone = nobody_is_left(seconds{10});
        EXPECT_TRUE(gone);
        if (!gone) kill_survivors();
    }

    void kill_often(int times, const std::vector<Victim>& victims, const std::string& contain) {
        std::mt19937 random(store_test::random_seed());
        for (int i = 0; i < times && !HasFailure(); ++i) {
            SCOPED_TRACE("time " + std::to_string(i));
            kill_once(victims[static_cast<std::size_t>(i) % victims.size()], contain, random);
        }
    }

    TemporaryFolder folder_;
    std::string pipe_ = folder_.path() + "/witness";
    base::UniqueFd witness_;
    std::string said_;  // by the zoo's processes
};

const std::vector one_at_a_time{Victim::front, Victim::agent};
const std::vector both{Victim::both};
const std::vector any{Victim::front, Victim::agent, Victim::both};

TEST_F(KillZoo, NoWorkerOfAnotherUserSurvivesEither) {
    kill_often(6, one_at_a_time, "--contain=base");
}

TEST_F(KillZoo, NobodySurvivesInAPidNamespace) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_often(6, any, "--contain=pidns");
}

TEST_F(KillZoo, SoakNoWorkerOfAnotherUserSurvivesEither) {
    kill_often(200, one_at_a_time, "--contain=base");
}

TEST_F(KillZoo, SoakNobodySurvivesInAPidNamespace) {
    if (!pid_namespaces_are_allowed()) GTEST_SKIP() << "this host allows no PID namespace";
    kill_often(200, any, "--contain=pidns");
}

// docs/launcher.md: a namespace keeps them, base does not promise to.
TEST_F(KillZoo, SoakBothKilledLeaveNoneThatTheDocumentsDoNotName) {
    kill_often(200, both, "--contain=base");
}

}  // namespace
}  // namespace ddp::security_test
