// How jobs end, as a table: what the workers do, what the launcher returns, and how it names it.
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Case {
    Launch::Words arguments;
    int exit_code;
    std::string said;  // part of what is on stderr; empty: nothing is
};

class LaunchExitCode : public LaunchTest {
protected:
    void check(const Case& one) {
        const LaunchResult result = launch(one.arguments);
        std::string command;
        for (const std::string& word : one.arguments) command += word + " ";
        EXPECT_EQ(result.exit_code, one.exit_code) << command << result.err;
        if (one.said.empty()) {
            EXPECT_THAT(result.err, IsEmpty()) << command;
        } else {
            EXPECT_THAT(result.err, HasSubstr(one.said)) << command;
        }
    }
    static Launch::Words script(const std::string& text, const Launch::Words& options = {},
                                const std::string& flag = "") {
        Launch::Words words = options;
        words.insert(words.end(), {"bash", "-c", "ulimit -c 0; FLAG=" + flag + "; " + text});
        return words;
    }

    TemporaryFolder flags_;
    int flags_used_ = 0;
};

TEST_F(LaunchExitCode, OfAWorkerIsReturnedAndNamed) {
    check({plain({}, {"exit_with", "0"}), 0, ""});
    for (const int code :
         {1, 2, 3, 7, 64, 81, 82, 83, 84, 125, 126, 127, 128, 129, 137, 200, 255}) {
        check({plain({}, {"exit_with", std::to_string(code)}), code,
               "failed: exit code " + std::to_string(code) + "\n"});
    }
}

TEST_F(LaunchExitCode, OfASignalIs128AndItsNumberAndItIsNamed) {
    struct Named {
        int signal;
        const char* name;
    };
    for (const Named& one :
         {Named{SIGHUP, "SIGHUP"}, Named{SIGINT, "SIGINT"}, Named{SIGQUIT, "SIGQUIT"},
          Named{SIGILL, "SIGILL"}, Named{SIGTRAP, "SIGTRAP"}, Named{SIGABRT, "SIGABRT"},
          Named{SIGBUS, "SIGBUS"}, Named{SIGFPE, "SIGFPE"}, Named{SIGKILL, "SIGKILL"},
          Named{SIGUSR1, "SIGUSR1"}, Named{SIGSEGV, "SIGSEGV"}, Named{SIGUSR2, "SIGUSR2"},
          Named{SIGPIPE, "SIGPIPE"}, Named{SIGALRM, "SIGALRM"}, Named{SIGTERM, "SIGTERM"},
          Named{SIGXCPU, "SIGXCPU"}, Named{SIGXFSZ, "SIGXFSZ"}, Named{SIGSYS, "SIGSYS"}}) {
        check({plain({}, {"raise_signal", std::to_string(one.signal)}), 128 + one.signal,
               std::string("failed: ") + one.name + " (signal " + std::to_string(one.signal) +
                   ")\n"});
    }
}

TEST_F(LaunchExitCode, OfWhatCannotRunIsAShells) {
    check({{"./no_such_program"}, 127, "no_such_program"});
    check({{"no_such_program_anywhere"}, 127, "no_such_program_anywhere"});
    check({{"/dev/null"}, 126, "/dev/null"});
    check({{"/"}, 126, "/"});
    check({script("exec /no/such/program"), 127, "failed: exit code 127\n"});
    check({script("exec /dev/null"), 126, "failed: exit code 126\n"});
}

// Rank 0 does `first`; rank 1 waits for that to be done and does `then`.
TEST_F(LaunchExitCode, IsTheCulpritsAmongSeveral) {
    const Launch::Words two{"--nproc-per-node=2", "--shutdown-timeout=1"};
    check({plain(two, {"rank=1", "exit_with", "9"}), 9, "stopped  rank 0 (SIGTERM, took "});
    check({plain(two, {"rank=0", "raise_signal", "9"}), 137, "stopped  rank 1 (SIGTERM, took "});
    check({script("exit 82", two), 82, "failed: exit code 82"});
    const auto in_turn = [&](const std::string& first, const std::string& then) {
        const std::string flag = flags_.path() + "/" + std::to_string(++flags_used_);
        return script("if [ $RANK = 0 ]; then " + first + "; fi; until [ -e " + flag +
                          " ]; do :; done; " + then,
                      two, flag);
    };
    const std::string names_rank_1 =
        R"(echo '{"message": {"message": "gone", "extraInfo": {"peer": 1}}}' > )"
        "$TORCHELASTIC_ERROR_FILE; ";
    check({in_turn(names_rank_1 + "touch $FLAG; exit 82", "exit 83"), 83,
           "left     rank 0 (because of rank 1, exit code 82)"});
    check({in_turn("touch $FLAG; exit 0", "exit 4"), 4, "fine     rank 0 (exit code 0)"});
    check({in_turn("trap 'exit 0' TERM; touch $FLAG; while :; do sleep 0.01; done", "exit 6"), 6,
           "stopped  rank 0 (exit code 0 after SIGTERM, took "});
    check({in_turn("trap 'exit 3' TERM; touch $FLAG; while :; do sleep 0.01; done", "exit 6"), 6,
           "stopped  rank 0 (exit code 3 after SIGTERM, took "});
    check({in_turn("trap '' TERM; touch $FLAG; while :; do sleep 0.01; done", "exit 6"), 6,
           "stopped  rank 0 (SIGKILL, took "});
    check({in_turn("touch $FLAG; kill -STOP $$", "kill -ABRT $$"), 134, "SIGABRT (signal 6)"});
}

TEST_F(LaunchExitCode, IsOneForWhateverFailedWhenTorchrunsIsAskedFor) {
    const Launch::Words like{"--exit-code=torchrun"};
    check({plain(like, {"exit_with", "0"}), 0, ""});
    check({plain(like, {"exit_with", "9"}), 1, "failed: exit code 9\n"});
    check({plain(like, {"raise_signal", "11"}), 1, "failed: SIGSEGV (signal 11)\n"});
    Launch job(folder_, plain(like, {"wait_forever"}));
    ASSERT_TRUE(job.wait_for_output("ready"));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143) << "a stop by the user is none";
}

}  // namespace
}  // namespace ddp::launcher::testing
