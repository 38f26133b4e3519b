// ddp::launch() of a command, from this test program itself.
#include <ddp/launch.hpp>

#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "launch/find_launcher.hpp"
#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using launching::find_launcher;
using launching::LauncherSearch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using TemporaryFolder = launcher::testing::TemporaryFolder;
using Words = std::vector<std::string>;

Words shell(const std::string& script) { return {"sh", "-c", script}; }

std::string usage_error_of(const auto& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "no UsageError";
}

TEST(LaunchCommand, GivesTheExitCodeAndTheReportOfTheRankToBlame) {
    EXPECT_TRUE(launch({.nproc_per_node = 2}, shell("true")).ok());
    const auto result = launch({.nproc_per_node = 3},
                               shell("[ $RANK = 2 ] && { echo lost >&2; exit 7; }; sleep 60"));
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_FALSE(result.timed_out);
    EXPECT_THAT(result.report, AllOf(HasSubstr("rank 2"), HasSubstr("exit code 7")));
    EXPECT_EQ(launch({}, shell("kill -KILL $$")).exit_code, 137);
}

TEST(LaunchCommand, PassesEnvironmentAndOptionsOn) {
    const TemporaryFolder folder;
    ::setenv("DDP_TEST_OLD", "old", 1);
    const auto result = launch({.nproc_per_node = 1,
                                .max_restarts = 3,
                                .environment = {"DDP_TEST_OLD=new", "DDP_TEST_ADDED=a b=c"},
                                .arguments = {"--nproc-per-node=2", "--role=tester"}},
                               shell("echo $DDP_TEST_OLD $DDP_TEST_ADDED $WORLD_SIZE $ROLE_NAME "
                                     "$TORCHELASTIC_MAX_RESTARTS ${DDP_LAUNCH_HOST-none} > " +
                                     folder.path() + "/$RANK"));
    ::unsetenv("DDP_TEST_OLD");
    EXPECT_TRUE(result.ok()) << result.report;
    for (const char* rank : {"0", "1"}) {
        std::string line;
        std::getline(std::ifstream(folder.path() + "/" + rank), line);
        EXPECT_EQ(line, "new a b=c 2 tester 3 none");
    }
}

// Both are this host, which the stand-in for ssh does not tell apart.
TEST(LaunchCommand, RunsOnOtherHosts) {
    const TemporaryFolder folder;
    const std::string rsh = folder.path() + "/rsh";
    std::ofstream(rsh) << "#!/bin/sh\nhost=$1; shift\n[ $host != bad ] || exit 3\n"
                       << "exec sh -c \"$*\"\n";
    ::chmod(rsh.c_str(), S_IRWXU);
    const auto port = base::local_port(base::listen_tcp("127.0.0.1", 0).get());
    const Words there{"--rsh=" + rsh, "--master-addr=127.0.0.1",
                      "--master-port=" + std::to_string(port)};
    const auto result = launch({.hosts = {"one:1", "two:2"}, .arguments = there},
                               shell("echo $GROUP_RANK $WORLD_SIZE >" + folder.path() +
                                     "/$RANK; [ $RANK != 2 ] || exit 7; [ $RANK != 0 ] || exec "
                                     "sleep 60"));
    EXPECT_EQ(result.exit_code, 7);
    ASSERT_EQ(result.hosts.size(), 2U);
    EXPECT_EQ(result.hosts[0].host, "one");
    EXPECT_EQ(result.hosts[1].host, "two");
    EXPECT_EQ(result.hosts[0].exit_code + result.hosts[1].exit_code, 14) << "all say the job's";
    for (const auto& [rank, line] : {std::pair{"0", "0 3"}, {"1", "1 3"}, {"2", "1 3"}}) {
        std::string written;
        std::getline(std::ifstream(folder.path() + "/" + rank), written);
        EXPECT_EQ(written, line);
    }
    const auto failed = launch({.hosts = {"one", "bad"}, .arguments = there}, shell("sleep 60"));
    EXPECT_EQ(failed.exit_code, 1);
    EXPECT_THAT(failed.report, HasSubstr("bad: "));
    ASSERT_EQ(failed.hosts.size(), 2U);
    EXPECT_EQ(failed.hosts[1].exit_code, 3);
    EXPECT_TRUE(launch({}, shell("true")).hosts.empty());
}

TEST(LaunchCommand, AFunctionRunsOnNoOtherHost) {
    for (const LaunchOptions& options :
         {LaunchOptions{.hosts = {"h1"}}, LaunchOptions{.arguments = {"--hosts=h1,h2"}},
          LaunchOptions{.arguments = {"--hostfile", "hosts"}}}) {
        EXPECT_THAT(usage_error_of([&] { std::ignore = launch(options, [] {}); }),
                    HasSubstr("launch a command on other hosts"));
    }
}

TEST(LaunchCommand, StopsAJobThatTakesTooLong) {
    const auto result = launch({.nproc_per_node = 2, .timeout = 300ms}, {"sleep", "600"});
    EXPECT_TRUE(result.timed_out);
    EXPECT_EQ(result.exit_code, 128 + SIGTERM);
    EXPECT_THAT(result.report, HasSubstr("still ran after 300 ms and was stopped\n"));
}

TEST(LaunchCommand, ToldOfAProgramThatIsMissing) {
    const auto result = launch({}, {"no-such-program"});
    EXPECT_EQ(result.exit_code, 127);
    EXPECT_THAT(result.report, HasSubstr("no-such-program"));
}

TEST(LaunchCommand, RefusesWhatCannotWork) {
    const auto error = [](const LaunchOptions& options, const Words& command) {
        return usage_error_of([&] { static_cast<void>(launch(options, command)); });
    };
    EXPECT_THAT(error({}, {}), HasSubstr("no command"));
    EXPECT_THAT(error({.nproc_per_node = 0}, {"true"}), HasSubstr("nproc_per_node is 0"));
    EXPECT_THAT(error({.environment = {"NAME"}}, {"true"}),
                HasSubstr("\"NAME\" is not NAME=value"));
    EXPECT_THAT(error({.arguments = {"--no-such-option"}}, {"true"}),
                HasSubstr("ddp-launch refuses: unknown option --no-such-option"));
}

TEST(LaunchCommand, ReapsNoOtherChildAndInheritsNone) {
    const pid_t ended = ::fork();
    if (ended == 0) ::_exit(9);
    const pid_t running = ::fork();
    if (running == 0) {
        for (;;) ::pause();
    }
    EXPECT_TRUE(launch({.nproc_per_node = 2}, shell("setsid sleep 60 & exit 0")).ok());
    int subreaper = -1;
    ::prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    EXPECT_EQ(subreaper, 0);
    EXPECT_EQ(launcher::testing::children_now(::getpid()).size(), 2U);
    int status = 0;
    EXPECT_EQ(::waitpid(ended, &status, 0), ended);
    EXPECT_EQ(WEXITSTATUS(status), 9);
    ::kill(running, SIGKILL);
    EXPECT_EQ(::waitpid(running, &status, 0), running);
}

TEST(LaunchCommand, SeveralThreadsAtTheSameTime) {
    std::vector<int> codes(4, -1);
    {
        std::vector<std::jthread> threads;
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([i, &codes] {
                sigset_t all;  // as threads of a service do
                sigfillset(&all);
                ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
                codes[static_cast<std::size_t>(i)] =
                    launch({.nproc_per_node = 2}, shell("exit " + std::to_string(i))).exit_code;
            });
        }
    }
    EXPECT_EQ(codes, (std::vector<int>{0, 1, 2, 3}));
}

TEST(LaunchCommand, SignalsThatAThreadBlocksAreNotBlockedForTheJob) {
    const TemporaryFolder folder;
    std::jthread([&] {
        sigset_t alarm;
        sigemptyset(&alarm);
        sigaddset(&alarm, SIGALRM);
        ::pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
        EXPECT_TRUE(launch({}, shell("read -r _ _ _ front _ < /proc/$PPID/stat; grep SigBlk "
                                     "/proc/$front/status > " +
                                     folder.path() + "/blocked"))
                        .ok());
    }).join();
    std::ifstream file(folder.path() + "/blocked");
    std::string word;
    file >> word >> word;
    ASSERT_FALSE(word.empty());
    EXPECT_EQ(std::stoull(word, nullptr, 16) >> (SIGALRM - 1) & 1U, 0U) << word;
}

TEST(LaunchCommand, ToldWhenTheLauncherItselfIsKilled) {
    const auto result =
        launch({}, shell("read -r _ _ _ front _ < /proc/$PPID/stat; kill -KILL $front; sleep 60"));
    EXPECT_EQ(result.exit_code, 137);
    EXPECT_THAT(result.report, HasSubstr("ended without a result: SIGKILL (signal 9)"));
}

class FindLauncher : public ::testing::Test {
protected:
    std::string make(const std::string& folder, int mode = 0700) {
        const std::string path = folder_.path() + "/" + folder;
        ::mkdir(path.c_str(), 0700);
        std::ofstream(path + "/ddp-launch") << "#!/bin/sh\n";
        ::chmod((path + "/ddp-launch").c_str(), static_cast<mode_t>(mode));
        return path;
    }
    TemporaryFolder folder_;
};

TEST_F(FindLauncher, GoesFromTheMostSpecificToPath) {
    const std::string a = make("a");
    const std::string b = make("b");
    const std::string c = make("c");
    const std::string none = folder_.path() + "/none";
    const std::string not_executable = make("plain", 0600);
    EXPECT_EQ(find_launcher({a + "/ddp-launch", b + "/ddp-launch", c, c}), a + "/ddp-launch");
    EXPECT_EQ(find_launcher({"", b + "/ddp-launch", c, c}), b + "/ddp-launch");
    EXPECT_EQ(find_launcher({"", none, c, b}), c + "/ddp-launch");
    EXPECT_EQ(find_launcher({"", "", none, none + "::" + not_executable + ":" + b}),
              b + "/ddp-launch");
    std::filesystem::remove_all(folder_.path() + "/a");
    for (const char* each : {"a", "b", "c", "plain"}) {
        std::filesystem::remove_all(folder_.path() + "/" + each);
    }
}

TEST_F(FindLauncher, SaysWhatToDoWhenItIsNowhere) {
    EXPECT_THAT(usage_error_of([] {
                    find_launcher({"", "/x/ddp-launch", "/y", "/z"});
                }),
                HasSubstr("not found: not at /x/ddp-launch, not at /y/ddp-launch, not along PATH"));
    EXPECT_THAT(usage_error_of([] {
                    find_launcher({"/x/ddp-launch", "", "/y", "/z"});
                }),
                HasSubstr("DDP_LAUNCH is /x/ddp-launch, which is no program"));
}

}  // namespace
