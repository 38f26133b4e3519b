// ddp-launch inspect: what it shows of jobs that run, have ended, or were killed.
#include "launcher/hang_drills.hpp"
#include "launcher/inspect/run_folder.hpp"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Words = Launch::Words;

class LaunchInspect : public LaunchTest {
protected:
    LaunchSettings settings() const {
        return {.environment = {"XDG_RUNTIME_DIR=" + runtime_.path()}};
    }
    std::string folder_of_runs() const { return runtime_.path() + "/ddp"; }
    std::size_t files() const {
        if (!std::filesystem::exists(folder_of_runs())) return 0;
        const std::filesystem::directory_iterator all(folder_of_runs());
        return static_cast<std::size_t>(std::distance(begin(all), end(all)));
    }
    LaunchResult run(const Words& words) { return launch(words, settings()); }
    LaunchResult inspect(Words words = {}) {
        words.insert(words.begin(), "inspect");
        return run(words);
    }
    json inspected(Words words = {}) {
        words.push_back("--json");
        const LaunchResult result = inspect(words);
        EXPECT_EQ(result.exit_code, 0) << result.err;
        return json::parse(result.out, nullptr, false);
    }
    // Three ranks, one of which sleeps for ever at some step.
    Words hanging() const {
        Words words{"-n", "3", "--shutdown-timeout=1"};
        const Words command = Drill{.fault = "sleep", .place = 1}.command();
        words.insert(words.end(), command.begin(), command.end());
        return words;
    }

    // Of the only job that runs: more ask than it will ever let in.
    void fill_queue() {
        const RunFolder folder(folder_of_runs());
        for (int i = 0; i < 50; ++i) folder.connect_to(folder.runs().front());
    }
    static void stop(Launch& job) {
        job.signal(SIGTERM);
        job.wait();
    }

    TemporaryFolder runtime_;
};

TEST_F(LaunchInspect, ShowsWhereEachRankIsAndWhoHoldsUpTheOthers) {
    Launch job(folder_, hanging(), settings());
    ASSERT_TRUE(job.wait_for_error("holds up"));
    const LaunchResult shown = inspect();
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_THAT(shown.out, AllOf(HasSubstr("running for"), HasSubstr("rank 1 holds up ranks 0, 2"),
                                 HasSubstr("in barrier, operation"), HasSubstr(line_of("meet"))));
    const json run = inspected();
    EXPECT_EQ(run["state"], "running");
    EXPECT_EQ(run["launcher_pid"], job.pid());
    EXPECT_EQ(run["hang"]["ranks"], json::array({1}));
    ASSERT_EQ(run["ranks"].size(), 3U);
    for (const json& rank : run["ranks"]) {
        EXPECT_EQ(rank["step"], 39);
        EXPECT_EQ(rank["phase"], "in a group");
        EXPECT_EQ(rank["state"], "running");
        EXPECT_GT(rank["resident_bytes"], 100'000);
    }
    stop(job);
}

TEST_F(LaunchInspect, ShowsWhoIsStopped) {
    Launch job(folder_, {"-n", "2", "--no-python", "sh", "-c", "echo $RANK $$; sleep 60"},
               settings());
    ASSERT_TRUE(job.wait_for_output("\n", 2));
    const json before = inspected();
    const auto pid = before["ranks"][1]["pid"].get<pid_t>();
    EXPECT_THAT(job.out(), HasSubstr("1 " + std::to_string(pid)));
    ASSERT_EQ(::kill(pid, SIGSTOP), 0);
    json after = inspected();
    for (int i = 0; i < 200 && after["ranks"][1]["state"] != "stopped"; ++i) {
        std::this_thread::sleep_for(20ms);
        after = inspected();
    }
    EXPECT_EQ(after["ranks"][0]["state"], "running");
    EXPECT_EQ(after["ranks"][1]["state"], "stopped");
    EXPECT_EQ(after["ranks"][1]["phase"], "no group yet");
    ASSERT_EQ(::kill(pid, SIGCONT), 0);
    stop(job);
}

TEST_F(LaunchInspect, ShowsStacksNowAndThoseOfAHangAfterwards) {
    Launch job(folder_, hanging(), settings());
    ASSERT_TRUE(job.wait_for_error("stack of rank 0 (pid "));
    const LaunchResult shown = inspect({"--stacks"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    for (const char* rank : {"0", "1", "2"}) {
        EXPECT_THAT(shown.out, HasSubstr("\nstack of rank " + std::string(rank) + " (pid "));
    }
    EXPECT_THAT(shown.out, AllOf(HasSubstr("nanosleep"), HasSubstr(drill_main)));
    const json now = inspected({"--stacks"});
    ASSERT_EQ(now["stacks"].size(), 3U);
    EXPECT_EQ(now["stacks"][2]["pid"], now["ranks"][2]["pid"]);
    EXPECT_FALSE(inspected().contains("stacks"));
    stop(job);
    const LaunchResult later = inspect({"--stacks"});
    EXPECT_THAT(later.out, AllOf(HasSubstr("\nstack of rank 1 (pid "), HasSubstr("nanosleep")));
    EXPECT_EQ(inspected({"--stacks"})["stacks"].size(), 2U);
}

TEST_F(LaunchInspect, ReadsNoStacksWherePidsAreThoseOfAnotherNamespace) {
    const Words words{"--contain=pidns", "-n", "1", "sh", "-c", "echo; sleep 60"};
    Launch job(folder_, words, settings());
    if (!job.wait_for_output("\n"))
        GTEST_SKIP() << "there are no PID namespaces here: " << job.err();
    EXPECT_THAT(inspect({"--stacks"}).out, HasSubstr("it is in a PID namespace of its own"));
    stop(job);
}

// Of all workers, killed: the agent knows what they did last.
TEST_F(LaunchInspect, KeepsTheLastViewOfAJobThatWasKilled) {
    Launch job(folder_, hanging(), settings());
    ASSERT_TRUE(job.wait_for_error("holds up"));
    const json alive = inspected();
    // None leaves by itself because another one is killed.
    for (const int signal : {SIGSTOP, SIGKILL}) {
        for (const json& rank : alive["ranks"]) ::kill(rank["pid"].get<pid_t>(), signal);
    }
    EXPECT_EQ(job.wait().exit_code, 137);
    const json run = inspected();
    EXPECT_EQ(run["state"], "ended");
    EXPECT_EQ(run["exit_code"], 137);
    EXPECT_THAT(run["report"].get<std::string>(), HasSubstr("SIGKILL"));
    ASSERT_EQ(run["ranks"].size(), 3U);
    for (const json& rank : run["ranks"]) {
        EXPECT_EQ(rank["end"], "SIGKILL (signal 9)");
        EXPECT_THAT(rank["call"].get<std::string>(), HasSubstr("drill_worker.cpp:"));
        EXPECT_EQ(rank["step"], 39);
    }
    const LaunchResult shown = inspect();
    EXPECT_THAT(shown.out, AllOf(HasSubstr("ended after"), HasSubstr("exit code 137")));
}

TEST_F(LaunchInspect, KnowsTheLastAttemptOfAJobThatWasStartedAnew) {
    EXPECT_EQ(run({"--max-restarts=2", "bash", "-c", "exit 3"}).exit_code, 3);
    const json ended = inspected();
    EXPECT_EQ(ended["attempt"], 3);
    EXPECT_EQ(ended["attempts"], 3);
    EXPECT_EQ(ended["ranks"][0]["exit_code"], 3);
}

TEST_F(LaunchInspect, ShowsTheLastAttemptBeforeTheNextOne) {
    Launch job(folder_, {"--max-restarts=1", "--restart-delay=60", "bash", "-c", "exit 3"},
               settings());
    ASSERT_TRUE(job.wait_for_error("restart 1 of 1 in"));
    const json run = inspected();
    EXPECT_EQ(run["state"], "running");
    EXPECT_EQ(run["attempt"], 1);
    EXPECT_EQ(run["ranks"][0]["end"], "exit code 3");
    stop(job);
    EXPECT_THAT(inspected()["report"].get<std::string>(), HasSubstr("stopped by SIGTERM"));
}

TEST_F(LaunchInspect, KnowsOfAJobThatCouldNotStart) {
    const std::string program = runtime_.path() + "/program";
    std::ofstream(program) << "#!/nowhere/sh\n";
    ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
    const int exit_code = run({program}).exit_code;
    EXPECT_THAT(exit_code, AnyOf(126, 127));
    EXPECT_EQ(inspected()["exit_code"], exit_code);
}

// Nobody is told an exit code, nor waits for the ends of the workers.
TEST_F(LaunchInspect, SaysThatTheFrontOfAJobWasKilled) {
    Launch job(folder_, hanging(), settings());
    ASSERT_TRUE(job.wait_for_error("holds up"));
    job.signal(SIGKILL);
    job.wait();
    json run = inspected();
    for (int i = 0; i < 200 && run["state"] == "running"; ++i) {
        std::this_thread::sleep_for(20ms);
        run = inspected();
    }
    EXPECT_EQ(run["state"], "ended");
    EXPECT_TRUE(run["exit_code"].is_null());
    EXPECT_THAT(run["report"].get<std::string>(), HasSubstr("its launcher was killed"));
    for (const json& rank : run["ranks"]) EXPECT_GE(rank["seconds_since_call"], 0);
    const auto deadline = base::Deadline::after(patience);  // for the agent, which cleans up last
    while (!folder_.names().empty() && !deadline.passed()) std::this_thread::sleep_for(10ms);
}

TEST_F(LaunchInspect, FindsARunByItsIdItsLauncherOrTheNewestThatRuns) {
    Launch older(folder_, {"--rdzv-id=older", "bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(older.wait_for_output("\n"));
    Launch newer(folder_, {"--rdzv-id=newer", "bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(newer.wait_for_output("\n"));
    ASSERT_EQ(run({"--rdzv-id=done", "true"}).exit_code, 0);
    EXPECT_EQ(inspected()["run_id"], "newer");
    EXPECT_EQ(inspected({"older"})["launcher_pid"], older.pid());
    EXPECT_EQ(inspected({std::to_string(older.pid())})["run_id"], "older");
    EXPECT_EQ(inspected({"done"})["state"], "ended");
    const LaunchResult none = inspect({"another"});
    EXPECT_EQ(none.exit_code, 1);
    EXPECT_THAT(none.err, AllOf(HasSubstr("no job of another"), HasSubstr(folder_of_runs())));
    stop(newer);
    stop(older);
}

TEST_F(LaunchInspect, WatchesUntilTheJobHasEnded) {
    Launch job(folder_, {"bash", "-c", "echo; sleep 1"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    const LaunchResult shown = inspect({"--watch=0.2", "--json"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    const auto lines = lines_of(shown.out);
    ASSERT_GE(lines.size(), 2U);
    EXPECT_EQ(json::parse(lines.front())["state"], "running");
    EXPECT_EQ(json::parse(lines.back())["state"], "ended");
    EXPECT_EQ(job.wait().exit_code, 0);
}

TEST_F(LaunchInspect, SaysThatThereIsNothingToShow) {
    const LaunchResult none = inspect();
    EXPECT_EQ(none.exit_code, 1);
    EXPECT_THAT(none.err, HasSubstr("there is no job in " + folder_of_runs()));
    EXPECT_EQ(lines_of(none.err).size(), 1U);
}

TEST_F(LaunchInspect, RefusesWhatItDoesNotUnderstandInOneLine) {
    for (const Words& words : {Words{"--stack"}, Words{"a", "b"}, Words{"--watch=0"},
                               Words{"--watch=x"}, Words{"--watch=1e9"}, Words{""}}) {
        const LaunchResult result = inspect(words);
        EXPECT_EQ(result.exit_code, 2) << words.front();
        EXPECT_THAT(lines_of(result.err), ElementsAre(HasSubstr("inspect: ")));
    }
    EXPECT_THAT(inspect({"--help"}).out, HasSubstr("usage: ddp-launch inspect"));
}

TEST_F(LaunchInspect, RunsAProgramOfThatNameByItsPath) {
    const std::string program = runtime_.path() + "/inspect";
    std::ofstream(program) << "#!/bin/sh\necho mine\n";
    ASSERT_EQ(::chmod(program.c_str(), 0700), 0);
    EXPECT_THAT(run({program}).out, HasSubstr("mine"));
    EXPECT_THAT(run({"-n", "1", program}).out, HasSubstr("mine"));
}

TEST_F(LaunchInspect, LeavesNothingBehindWithoutHistory) {
    Launch job(folder_, {"--no-history", "bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    EXPECT_EQ(inspected()["state"], "running");
    stop(job);
    EXPECT_EQ(files(), 0U);
}

TEST_F(LaunchInspect, KeepsTheTenNewestAndAllThatRun) {
    Launch first(folder_, {"--rdzv-id=first", "bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(first.wait_for_output("\n"));
    for (int i = 0; i < 13; ++i) ASSERT_EQ(run({"true"}).exit_code, 0);
    EXPECT_EQ(files(), 12U);  // ten, and two of the one that runs
    EXPECT_EQ(inspected({"first"})["state"], "running");
    stop(first);
}

TEST_F(LaunchInspect, SaysThatALauncherWasKilledOrDoesNotAnswer) {
    Launch job(folder_, {"bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    const LaunchResult silent = inspect();
    EXPECT_EQ(silent.exit_code, 1);
    EXPECT_THAT(silent.err, HasSubstr("does not answer"));
    ASSERT_EQ(::kill(*agent, SIGKILL), 0);
    EXPECT_NE(job.wait().exit_code, 0);
    const LaunchResult gone = inspect();
    EXPECT_EQ(gone.exit_code, 1);
    EXPECT_THAT(gone.err, HasSubstr("left nothing to be read"));
}

// Neither who asks nor another job, which looks for old ones.
TEST_F(LaunchInspect, NobodyWaitsForALauncherThatLetsNobodyIn) {
    Launch job(folder_, {"bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    const auto agent = job.wait_for_agent();
    ASSERT_TRUE(agent);
    ASSERT_EQ(::kill(*agent, SIGSTOP), 0);
    fill_queue();
    EXPECT_THAT(inspect().err, HasSubstr("does not answer"));
    for (int i = 0; i < 11; ++i) EXPECT_EQ(run({"true"}).exit_code, 0);
    ASSERT_EQ(::kill(*agent, SIGCONT), 0);
    EXPECT_EQ(inspected()["state"], "running");
    stop(job);
}

// No job fails for it.
TEST_F(LaunchInspect, UsesNoFolderThatOthersMayEnter) {
    ASSERT_EQ(::mkdir(folder_of_runs().c_str(), 0755), 0);
    ASSERT_EQ(::chmod(folder_of_runs().c_str(), 0755), 0);
    LaunchSettings chatty = settings();
    chatty.environment.emplace_back("DDP_LOG_LEVEL=debug");
    const LaunchResult result = launch({"true"}, chatty);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.err, HasSubstr("cannot be inspected"));
    EXPECT_EQ(files(), 0U);
}

TEST_F(LaunchInspect, ShowsNothingOfAFolderThatOthersMayEnter) {
    ASSERT_EQ(run({"true"}).exit_code, 0);
    ASSERT_EQ(::chmod(folder_of_runs().c_str(), 0755), 0);
    const LaunchResult refused = inspect();
    EXPECT_EQ(refused.exit_code, 1);
    EXPECT_THAT(refused.err, HasSubstr("is not this user's alone"));
}

TEST_F(LaunchInspect, BearsWhateverLiesInTheFolder) {
    ASSERT_EQ(run({"--rdzv-id=real", "true"}).exit_code, 0);
    const std::string garbage = folder_of_runs() + "/9999999999999-";
    ASSERT_EQ(::mkfifo((garbage + "1.json").c_str(), 0600), 0);
    ASSERT_EQ(::mkdir((garbage + "2.json").c_str(), 0700), 0);
    ASSERT_EQ(::symlink("/dev/zero", (garbage + "3.json").c_str()), 0);
    std::ofstream(garbage + "4.json") << std::string(1'000'000, '[');
    std::ofstream(garbage + "5.json") << R"({"run_id": 5, "ranks": 7})";
    std::ofstream(garbage + "6.live");
    std::ofstream(garbage + "\033[2J.json") << "{}";
    EXPECT_EQ(inspected({"real"})["state"], "ended");
    const LaunchResult shown = inspect();
    EXPECT_EQ(shown.exit_code, 1);
    EXPECT_THAT(shown.err, AllOf(HasSubstr("left nothing to be read"), Not(HasSubstr("\033"))));
}

TEST_F(LaunchInspect, EndsItsWatchWhenNothingIsLeft) {
    Launch job(folder_, {"--no-history", "bash", "-c", "echo; sleep 1"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    const LaunchResult shown = inspect({"--watch=0.2"});
    EXPECT_EQ(shown.exit_code, 1);
    EXPECT_THAT(shown.err, HasSubstr("left nothing to be read"));
    job.wait();
}

// By their ends: one that was long is not lost among short ones.
TEST_F(LaunchInspect, ShowsTheOneThatEndedLast) {
    Launch longest(folder_, {"--rdzv-id=longest", "bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(longest.wait_for_output("\n"));
    for (int i = 0; i < 11; ++i) ASSERT_EQ(run({"true"}).exit_code, 0);
    std::this_thread::sleep_for(20ms);  // the file system's clock
    stop(longest);
    EXPECT_EQ(inspected()["run_id"], "longest");
}

TEST_F(LaunchInspect, UsesNoFolderThatALinkLeadsTo) {
    const TemporaryFolder elsewhere;
    ASSERT_EQ(::symlink(elsewhere.path().c_str(), folder_of_runs().c_str()), 0);
    EXPECT_EQ(run({"true"}).exit_code, 0);
    EXPECT_THAT(elsewhere.names(), IsEmpty());
}

// Many ask at once, and go before they have their answer.
TEST_F(LaunchInspect, AnswersWhoeverElseAsks) {
    Launch job(folder_, {"bash", "-c", "echo; exec sleep 60"}, settings());
    ASSERT_TRUE(job.wait_for_output("\n"));
    std::vector<std::unique_ptr<Launch>> hurried;
    for (int i = 0; i < 8; ++i) {
        hurried.push_back(
            std::make_unique<Launch>(folder_, Words{"inspect", "--watch=0.05"}, settings()));
    }
    for (auto& one : hurried) one->signal(SIGKILL);
    hurried.clear();
    EXPECT_EQ(inspected()["state"], "running");
    stop(job);
}

// Half of them with a rank killed amid its calls, half with all at once.
TEST_F(LaunchInspect, SoakTheLastCallsAreThereHoweverManyAreKilled) {
    std::mt19937 random(17);
    Words words{"-n", "3"};
    const Words command = Drill{.fault = "none", .step = 1'000'000'000}.command();
    words.insert(words.end(), command.begin(), command.end());
    for (int i = 0; i < 400; ++i) {
        SCOPED_TRACE(i);
        Launch job(folder_, words, settings());
        json run;
        do {
            run = json::parse(inspect({"--json"}).out, nullptr, false);
            // Before this one is to be seen the last one is.
        } while (!run.is_object() || run["launcher_pid"] != job.pid() || run["ranks"].size() != 3 ||
                 run["ranks"][2]["step"] == 0);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
        if (i % 2 == 0) {
            ::kill(run["ranks"][random() % 3]["pid"].get<pid_t>(), SIGKILL);
        } else {
            for (const json& rank : run["ranks"]) ::kill(rank["pid"].get<pid_t>(), SIGKILL);
        }
        EXPECT_EQ(job.wait().exit_code, 137);
        const json last = inspected();
        EXPECT_EQ(last["state"], "ended");
        for (const json& rank : last["ranks"]) {
            EXPECT_GT(rank["step"], 0);
            EXPECT_THAT(rank["call"].get<std::string>(), HasSubstr("drill_worker.cpp:"));
        }
    }
}

}  // namespace
}  // namespace ddp::launcher::testing
