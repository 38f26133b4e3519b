// Jobs that hang in each of the known ways: the launcher says who is to blame, in which call, and
// at which line; and with --on-hang=stop it ends them.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int ranks = 3;

// "drill_worker.cpp:42", of the function of that name.
std::string line_of(const std::string& function) {
    std::ifstream source(DDP_TEST_DRILL_SOURCE);
    int number = 0;
    for (std::string line; std::getline(source, line);) {
        ++number;
        if (line.find("void " + function + "() { group_.") == line.npos) continue;
        return "drill_worker.cpp:" + std::to_string(number);
    }
    ADD_FAILURE() << "there is no " << function;
    return "";
}

struct Written {
    const char* function;
    const char* operation;
};
constexpr Written written[] = {{"sum", "all_reduce of 16 float32 (sum)"},
                               {"copy", "broadcast of 16 float32 from rank 0"},
                               {"meet", "barrier"}};

struct Drill {
    std::string backend = "shm";
    std::string fault = {};
    int rank = 1;
    int step = 40;
    int place = 0;

    Launch::Words words(const Launch::Words& options) const {
        Launch::Words all{"--nproc-per-node=" + std::to_string(ranks), "--shutdown-timeout=1"};
        all.insert(all.end(), options.begin(), options.end());
        all.insert(all.end(), {DDP_TEST_DRILL_WORKER, backend, fault, std::to_string(rank),
                               std::to_string(step), std::to_string(place)});
        return all;
    }
    const Written& call() const { return written[place]; }
    std::string name() const {
        return backend + " " + fault + " rank " + std::to_string(rank) + " step " +
               std::to_string(step) + " place " + std::to_string(place);
    }
};

std::string rank_name(int rank) { return "rank " + std::to_string(rank); }

// What hangs, and what ends by an error of all ranks.
enum class Outcome : std::uint8_t { hang, mismatch };
struct Fault {
    const char* name;
    Outcome outcome;
};
constexpr Fault faults[] = {
    {"missing", Outcome::mismatch},   {"extra", Outcome::mismatch},
    {"reordered", Outcome::mismatch}, {"operation", Outcome::mismatch},
    {"dtype", Outcome::mismatch},     {"count", Outcome::mismatch},
    {"root", Outcome::mismatch},      {"stop", Outcome::hang},
    {"loop", Outcome::hang},          {"sleep", Outcome::hang},
    {"posted", Outcome::hang},
};

class LaunchHang : public LaunchTest {
protected:
    void check(const Fault& fault, Drill drill) {
        drill.fault = fault.name;
        SCOPED_TRACE(drill.name());
        if (fault.outcome == Outcome::hang) {
            check_absent(drill);
        } else {
            check_mismatch(drill);
        }
    }
    // A rank does not come: the others wait at a known line, and it is named.
    void check_absent(const Drill& drill) {
        const LaunchResult result = launch(drill.words({"--on-hang=stop", "--hang-timeout=0"}));
        EXPECT_NE(result.exit_code, 0);
        const std::string holds_up = rank_name(drill.rank) + " holds up ranks ";
        EXPECT_THAT(result.err,
                    AllOf(HasSubstr("ddp-launch: " + holds_up), HasSubstr(drill.call().operation),
                          HasSubstr(line_of(drill.call().function)),
                          HasSubstr("stopping the job (--on-hang=stop): SIGTERM now"),
                          HasSubstr("ddp-launch: " + rank_name(drill.rank) + " (local rank "),
                          HasSubstr("hang     " + holds_up)));
    }
    // Ranks call different things: one of them what the others do not.
    void check_mismatch(const Drill& drill) {
        const LaunchResult result = launch(drill.words({"--on-hang=stop", "--hang-timeout=0"}));
        EXPECT_EQ(result.exit_code, 1);
        std::string others;
        for (int rank = 0; rank < ranks; ++rank) {
            if (rank != drill.rank) others += (others.empty() ? "" : ", ") + std::to_string(rank);
        }
        const std::string lines = "(.*\n)* *ddp-launch: +";
        EXPECT_THAT(result.err,
                    AllOf(HasSubstr("ddp-launch: " + rank_name(drill.rank) + " (local rank "),
                          HasSubstr("hang     the ranks have called different things:"),
                          HasSubstr("  " + rank_name(drill.rank) + ": "),
                          HasSubstr("  ranks " + others + ": ")));
        EXPECT_GE(count(result.err, "(drill_worker.cpp:"), 2) << result.err;
    }
    static int count(const std::string& text, std::string_view what) {
        int times = 0;
        for (std::size_t at = 0; (at = text.find(what, at)) != text.npos; ++at) ++times;
        return times;
    }
};

// Of each fault one place, by chance.
TEST_F(LaunchHang, IsExplainedWhateverHasCausedIt) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (const Fault& fault : faults) {
        check(fault, {.backend = random() % 2 == 0 ? "shm" : "gloo",
                      .rank = static_cast<int>(random() % ranks),
                      .step = 20 + static_cast<int>(random() % 100),
                      .place = static_cast<int>(random() % 3)});
    }
}

TEST_F(LaunchHang, SoakIsExplainedWhateverHasCausedIt) {
    std::mt19937 random(11);
    for (const Fault& fault : faults) {
        for (const char* const backend : {"shm", "gloo"}) {
            for (int i = 0; i < 25; ++i) {
                check(fault, {.backend = backend,
                              .rank = static_cast<int>(random() % ranks),
                              .step = 20 + static_cast<int>(random() % 500),
                              .place = static_cast<int>(random() % 3)});
            }
        }
    }
}

TEST_F(LaunchHang, NamesRanksThatWaitForEachOther) {
    const LaunchResult result =
        launch(Drill{.fault = "recv"}.words({"--on-hang=stop", "--hang-timeout=0"}));
    EXPECT_NE(result.exit_code, 0);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("ddp-launch: ranks wait for each other, since "),
                      HasSubstr("is in recv of 64 bytes from rank 2 (" + line_of("from_next")),
                      HasSubstr("is in all_reduce of 16 float32 (sum), operation 121 (" +
                                line_of("sum") + ") of a group of 3")));
}

TEST_F(LaunchHang, SaysWhereARankWasThatHasDied) {
    const LaunchResult result = launch(Drill{.fault = "death", .place = 1}.words({}));
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.err,
                AllOf(HasSubstr("rank 1 (local rank 1, pid "),
                      HasSubstr("call     after all_reduce of 16 float32 (sum), operation 121 (" +
                                line_of("sum") + ")"),
                      Not(HasSubstr("  hang "))));
}

TEST_F(LaunchHang, SaysNothingOfAPause) {
    Launch job(folder_, Drill{.fault = "pause"}.words({"--on-hang=stop", "--hang-timeout=0"}));
    ASSERT_TRUE(job.wait_for_output("done"));
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("holds up"), HasSubstr("goes on"))));
}

TEST_F(LaunchHang, SaysThatAStoppedRankRunsAgainAndTheJobGoesOn) {
    Launch job(folder_, Drill{.fault = "stop_and_go"}.words({}));
    const std::string before = "kill -CONT ";
    ASSERT_TRUE(job.wait_for_error(before)) << job.err();
    const std::string err = job.err();
    ::kill(std::stoi(err.substr(err.find(before) + before.size())), SIGCONT);
    EXPECT_TRUE(job.wait_for_output("done"));
    EXPECT_TRUE(job.wait_for_error("runs again: it was stopped for "));
    EXPECT_TRUE(job.wait_for_error("the job goes on: ranks 0, 2 had waited for "));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_EQ(count(result.err, "holds up"), 1) << "it is said once: " << result.err;
}

// As a container that is paused, or a laptop that sleeps.
TEST_F(LaunchHang, AStandstillOfAllIsNobodysFault) {
    // By step 700 the agent has learned.
    Launch job(folder_, Drill{.fault = "naps", .step = 700}.words({}));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_TRUE(job.wait_for_output("now"));
    const std::vector<pid_t> workers = children_now(*agent);
    ASSERT_EQ(workers.size(), static_cast<std::size_t>(ranks));
    const auto send = [&](int signal) {
        ::kill(*agent, signal);
        std::this_thread::sleep_for(50ms);
        for (const pid_t worker : workers) ::kill(worker, signal);
    };
    send(SIGSTOP);
    std::this_thread::sleep_for(1500ms);
    send(SIGCONT);
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(AnyOf(HasSubstr("holds up"), HasSubstr("hold up"),
                                      HasSubstr("do not run"), HasSubstr("goes on:"))));
}

TEST_F(LaunchHang, IsInTheReportOfAJobThatTheUserStops) {
    TemporaryFolder logs;
    Launch job(folder_, Drill{.fault = "sleep"}.words({"--log-dir=" + logs.path(), "--rdzv-id=x"}));
    ASSERT_TRUE(job.wait_for_error("holds up"));
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_THAT(result.err, HasSubstr("hang     rank 1 holds up ranks 0, 2"));
    std::size_t found = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(logs.path())) {
        if (entry.path().filename() != "report.json") continue;
        ++found;
        std::ifstream file(entry.path());
        const nlohmann::json report = nlohmann::json::parse(file);
        EXPECT_EQ(report["hang"]["kind"], "missing");
        EXPECT_EQ(report["hang"]["ranks"], nlohmann::json::array({1}));
        EXPECT_EQ(report["workers"][0]["last_call"],
                  "in all_reduce of 16 float32 (sum), operation 121 (" + line_of("sum") + ")");
    }
    EXPECT_EQ(found, 1U);
    std::filesystem::remove_all(logs.path() + "/x");
}

TEST_F(LaunchHang, OfAnyProgramIsSeenThatItIsStopped) {
    const LaunchResult result =
        launch({"-n", "2", "--on-hang=stop", "--hang-timeout=0", "--no-python", "sh", "-c",
                "if [ $RANK = 1 ]; then kill -STOP $$; fi; exec sleep 60"});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, AllOf(HasSubstr("rank 1 does not run since "),
                                  HasSubstr(" is stopped (SIGSTOP); kill -CONT "),
                                  HasSubstr("rank 1 (local rank 1, pid "),
                                  HasSubstr(") held up the job: it was stopped by SIGTERM")));
}

TEST_F(LaunchHang, EndsNoJobBeforeItsTime) {
    Launch job(folder_, Drill{.fault = "stop_and_go"}.words({"--on-hang=stop"}));
    ASSERT_TRUE(job.wait_for_error("kill -CONT ")) << job.err();
    std::this_thread::sleep_for(600ms);
    job.signal(SIGTERM);
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.err, Not(HasSubstr("stopping the job (--on-hang=stop)")));
}

TEST_F(LaunchHang, IsAFailureAfterWhichTheJobIsStartedAgain) {
    const LaunchResult result =
        launch({"-n", "1", "--on-hang=stop", "--hang-timeout=0", "--max-restarts=1", "--no-python",
                "sh", "-c", "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then kill -STOP $$; fi"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("restart 1 of 1"));
}

TEST_F(LaunchHang, IsNobodysBusinessWhenItIsOff) {
    Launch job(folder_, Drill{.fault = "sleep"}.words({"--on-hang=off"}));
    ASSERT_TRUE(job.wait_for_output("now"));
    std::this_thread::sleep_for(1500ms);
    job.signal(SIGTERM);
    EXPECT_THAT(job.wait().err, Not(HasSubstr("holds up")));
}

// Where the kernel lets this user have a freezer.
TEST_F(LaunchHang, OfAFrozenCgroupIsSeen) {
    const std::string cgroup = "/sys/fs/cgroup/freezer/ddp-test-" + std::to_string(::getpid());
    if (::mkdir(cgroup.c_str(), 0700) != 0) GTEST_SKIP() << "no cgroup can be made";
    Launch::Words words = Drill{.fault = "freeze"}.words({"--on-hang=stop", "--hang-timeout=0"});
    words.push_back(cgroup);
    Launch job(folder_, words);
    EXPECT_TRUE(job.wait_for_error("is frozen, with its cgroup"));
    std::ofstream(cgroup + "/freezer.state") << "THAWED" << std::endl;
    EXPECT_NE(job.wait().exit_code, 0);
    ::rmdir(cgroup.c_str());
}

}  // namespace
}  // namespace ddp::launcher::testing
