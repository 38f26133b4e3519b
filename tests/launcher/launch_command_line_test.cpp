// ddp-launch answers a wrong command line with exactly one line and without starting anything.
#include "base/net/socket.hpp"
#include "launcher/launch_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class LaunchCommandLine : public LaunchTest {
protected:
    void expect_refusal(const Launch::Words& arguments, int exit_code, const std::string& part) {
        const LaunchResult result = launch(arguments);
        EXPECT_EQ(result.exit_code, exit_code) << part;
        EXPECT_EQ(result.out, "") << part;
        EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
        EXPECT_THAT(result.err, StartsWith("ddp-launch: "));
        EXPECT_THAT(result.err, HasSubstr(part));
    }
    std::string make_file(const std::string& name, const std::string& text, mode_t mode) {
        const std::string path = folder_.path() + "/" + name;
        std::ofstream(path) << text;
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }
    void remove_file(const std::string& name) {
        std::filesystem::remove(folder_.path() + "/" + name);
    }
};

TEST_F(LaunchCommandLine, AWrongOptionIsOneLineAndExitCode2) {
    expect_refusal({}, 2, "no program to run");
    expect_refusal({"--nproc_per_node=0", DDP_TEST_WORKER}, 2, "\"0\"");
    expect_refusal({"--nproc_per_node=-1", DDP_TEST_WORKER}, 2, "\"-1\"");
    expect_refusal({"--nproc_per_node=two", DDP_TEST_WORKER}, 2, "\"two\"");
    expect_refusal({"--nproc_per_noed=2", DDP_TEST_WORKER}, 2, "did you mean --nproc-per-node?");
    expect_refusal({"--master-addr=192.0.2.1", DDP_TEST_WORKER}, 2, "--agent-store=off");
}

TEST_F(LaunchCommandLine, AProgramThatIsNotThereIsExitCode127) {
    expect_refusal({"./nowhere"}, 127, "\"./nowhere\" not found");
    make_file("train", "#!/bin/sh\n", 0755);
    expect_refusal({"train"}, 127, "did you mean ./train?");
    expect_refusal({"./trian"}, 127, "did you mean ./train?");
    remove_file("train");
}

TEST_F(LaunchCommandLine, AProgramThatCannotRunIsExitCode126) {
    make_file("script", "#!/bin/sh\n", 0644);
    expect_refusal({"./script"}, 126, "chmod +x ./script");
    remove_file("script");
    make_file("text", "no program at all\n", 0755);
    expect_refusal({"--nproc-per-node=2", "./text"}, 126, "no #! line");
    remove_file("text");
    expect_refusal({"./"}, 126, "is a folder");
}

TEST_F(LaunchCommandLine, AScriptWhoseInterpreterIsMissingIsNamed) {
    make_file("script", "#!/nowhere/python\n", 0755);
    expect_refusal({"./script"}, 127, "cannot run ./script");
    remove_file("script");
}

TEST_F(LaunchCommandLine, APortInUseIsOneLineAndNothingIsStarted) {
    const base::UniqueFd taken = base::listen_tcp("127.0.0.1", 0);
    const std::string port = std::to_string(base::local_port(taken.get()));
    expect_refusal(plain({"--master-port", port}, {"exit_with", "0"}), 2,
                   "port " + port +
                       " on 127.0.0.1 is in use (ss -ltnp shows by whom); leave out --master-port");
}

TEST_F(LaunchCommandLine, AFolderForErrorFilesThatCannotBeMadeIsOneLine) {
    const LaunchResult result =
        launch(plain({}, {"print_bytes", "10"}), {.environment = {"TMPDIR=/nowhere"}});
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(lines_of(result.err).size(), 1U) << result.err;
    EXPECT_THAT(result.err, HasSubstr("TMPDIR"));
}

TEST_F(LaunchCommandLine, HelpAndVersionGoToStdout) {
    const LaunchResult help = launch({"--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr("--nproc-per-node"));
    EXPECT_EQ(help.err, "");
    const LaunchResult version = launch({"--version"});
    EXPECT_EQ(version.exit_code, 0);
    EXPECT_THAT(version.out, StartsWith("ddp-launch "));
}

TEST_F(LaunchCommandLine, TheWorkersWordsArriveUntouched) {
    const LaunchResult result =
        launch(plain({"--nproc_per_node", "1", "--"},
                     {"print_arguments", "--lr", "0.1", "--", "", "--help", "a b"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, "[--lr]\n[0.1]\n[--]\n[]\n[--help]\n[a b]\n");
}

}  // namespace
}  // namespace ddp::launcher::testing
