// What a worker finds: its variables, its descriptors, its group, fresh signals.
#include "base/net/socket.hpp"
#include "launcher/launch_fixture.hpp"

#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <sstream>

namespace ddp::launcher::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class LaunchWorker : public LaunchTest {};

TEST_F(LaunchWorker, ItHasItsDescriptorsAndNoOther) {
    const LaunchResult result = launch(plain({"--nproc-per-node=3"}, {"show_surroundings"}));
    EXPECT_EQ(result.exit_code, 0);
    int nulls = 0;
    int regions = 0;
    std::set<std::string> pipes;  // each its own
    for (const std::string& line : lines_of(result.out)) {
        if (!line.starts_with("fd ")) continue;
        const std::string target = line.substr(line.find("-> ") + 3);
        if (line.starts_with("fd 0 ")) {
            EXPECT_EQ(target, "/dev/null");
            ++nulls;
        } else if (line.starts_with("fd 1 ") || line.starts_with("fd 2 ")) {
            EXPECT_TRUE(target.starts_with("pipe:")) << line;
            EXPECT_TRUE(pipes.insert(target).second) << "shared: " << line;
        } else {
            EXPECT_EQ(target, "/memfd:ddp-control (deleted)") << line;
            ++regions;
        }
    }
    EXPECT_EQ(nulls, 3);
    EXPECT_EQ(regions, 3);
    EXPECT_EQ(pipes.size(), 6U);
}

TEST_F(LaunchWorker, ItHasItsVariables) {
    const LaunchResult result =
        launch(plain({"--nproc-per-node=2"},
                     {"print_env", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
                      "OMP_NUM_THREADS", "TORCHELASTIC_USE_AGENT_STORE", "SHELL_HAS_IT"}),
               {.environment = {"SHELL_HAS_IT=yes", "RANK=outer", "OMP_NUM_THREADS=3"}});
    EXPECT_EQ(result.exit_code, 0);
    for (const char* rank : {"0", "1"}) {
        EXPECT_THAT(result.out,
                    HasSubstr(std::string("RANK=") + rank + "\nWORLD_SIZE=2\nLOCAL_RANK=" + rank +
                              "\nMASTER_ADDR=127.0.0.1\nOMP_NUM_THREADS=3\n"
                              "TORCHELASTIC_USE_AGENT_STORE=True\nSHELL_HAS_IT=yes\n"));
    }
}

TEST_F(LaunchWorker, TheFolderOfItsErrorFileIsPrivate) {
    const LaunchResult result =
        launch({"bash", "-c", "umask 0; stat -c %a \"$(dirname \"$TORCHELASTIC_ERROR_FILE\")\""});
    EXPECT_EQ(result.out, "700\n");
}

// The value of the first "NAME=" in what workers printed.
std::string printed_value(const std::string& out, const std::string& name) {
    const std::size_t start = out.find(name + "=") + name.size() + 1;
    return out.substr(start, out.find('\n', start) - start);
}

TEST_F(LaunchWorker, TheAgentServesTheStoreWhereTheVariablesSay) {
    Launch job(folder_, {"bash", "-c", "echo MASTER_PORT=$MASTER_PORT; exec sleep 99"});
    ASSERT_TRUE(job.wait_for_output("\n"));
    const int port = std::stoi(printed_value(job.out(), "MASTER_PORT"));
    const MasterAddress address{"127.0.0.1", static_cast<std::uint16_t>(port)};
    const auto store = connect_tcp_store(address, patience);
    store->set("key", "value");
    EXPECT_EQ(store->get("key"), "value");
    EXPECT_EQ(store->add("count", 2), 2);
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchWorker, WithoutTheAgentsStoreThePortIsRankZerosToServe) {
    Launch job(folder_, {"--agent-store=off", "bash", "-c",
                         "echo MASTER_PORT=$MASTER_PORT; echo $TORCHELASTIC_USE_AGENT_STORE; exec "
                         "sleep 99"});
    ASSERT_TRUE(job.wait_for_output("False\n"));
    const int port = std::stoi(printed_value(job.out(), "MASTER_PORT"));
    EXPECT_TRUE(base::listen_tcp("127.0.0.1", static_cast<std::uint16_t>(port)));
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

// The addresses of sockets that listen on a port, as the kernel writes them.
std::vector<std::string> listening_addresses(int port) {
    std::array<char, 5> wanted{};
    std::snprintf(wanted.data(), wanted.size(), "%04X", port);
    std::vector<std::string> found;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream file(table);
        std::string number;
        std::string local;
        std::string remote;
        std::string state;
        for (std::string line; std::getline(file, line);) {
            std::istringstream(line) >> number >> local >> remote >> state;
            const std::size_t colon = local.find(':');
            const bool listens = state == "0A";
            if (listens && local.substr(colon + 1) == wanted.data()) {
                found.push_back(local.substr(0, colon));
            }
        }
    }
    return found;
}

TEST_F(LaunchWorker, RankZerosStoreListensOnThisHostAlone) {
    Launch job(folder_, {"--agent-store=off", "--nproc-per-node=2", "bash", "-c",
                         std::string("echo MASTER_PORT=$MASTER_PORT; exec ") +
                             DDP_TEST_FAILING_WORKER + " join"});
    ASSERT_TRUE(job.wait_for_output("ready\n", 2)) << job.wait(std::chrono::seconds{0}).err;
    const int port = std::stoi(printed_value(job.out(), "MASTER_PORT"));
    EXPECT_EQ(listening_addresses(port), std::vector<std::string>{"0100007F"});
    job.signal(SIGTERM);
    EXPECT_EQ(job.wait().exit_code, 143);
}

TEST_F(LaunchWorker, TheAbortWordTellsTheOthersWhoFailed) {
    const LaunchResult result = launch({"--nproc-per-node=2", "bash", "-c",
                                        std::string("if [ $RANK = 1 ]; then exit 7; fi; exec ") +
                                            DDP_TEST_WORKER + " wait_for_abort"});
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(result.out, "abort word 2\n");
    EXPECT_THAT(result.err, HasSubstr("left     rank 0 (because of rank 1, exit code 82)"));
}

TEST_F(LaunchWorker, ItHasFreshSignalsAGroupAndAParentDeathSignal) {
    const LaunchResult result = launch(plain({}, {"show_surroundings"}));
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, Not(HasSubstr("blocked ")));
    EXPECT_THAT(result.out, Not(HasSubstr("changed ")));
    EXPECT_THAT(result.out, HasSubstr("group leader yes\n"));
    // Else sched_yield would not give a core from one rank to the next.
    EXPECT_THAT(result.out, HasSubstr("parent's session yes\n"));
    EXPECT_THAT(result.out, HasSubstr("death signal " + std::to_string(SIGKILL) + "\n"));
}

}  // namespace
}  // namespace ddp::launcher::testing
