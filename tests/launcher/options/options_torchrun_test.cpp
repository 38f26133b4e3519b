// Options that torchrun's own tests and users' scripts give, and that mean nothing or little here.
#include "launcher/options/options.hpp"

#include "launcher/parse_words.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using testing::Environment;
using testing::error_of;
using ::testing::HasSubstr;
using testing::parse;
using testing::Words;

TEST(TorchrunOptions, EveryStartMethodIsTaken) {
    for (const char* method : {"spawn", "fork", "forkserver"}) {
        const Words words{std::string("--start-method=") + method, "x"};
        EXPECT_EQ(error_of(words), "no error") << method;
        EXPECT_EQ(error_of({"x"}, {{"PET_START_METHOD", method}}), "no error") << method;
    }
    EXPECT_THAT(error_of({"--start-method=thread", "x"}), HasSubstr("spawn or fork or forkserver"));
}

TEST(TorchrunOptions, DefaultsOfEntryPointsAreTakenAndOthersAreNot) {
    EXPECT_EQ(error_of({"--logs_specs=default", "--event_log_handler", "null", "x"}), "no error");
    EXPECT_THAT(error_of({"--logs-specs=mine", "x"}), HasSubstr("Python entry points"));
    EXPECT_THAT(error_of({"--event-log-handler=console", "x"}), HasSubstr("Python entry points"));
}

TEST(TorchrunOptions, AScriptOfAnyNameIsPythonsWithRunPath) {
    EXPECT_EQ(parse({"--run-path", "train"}).program.kind, ProgramKind::script);
    EXPECT_EQ(parse({"--no-python", "--run-path", "train"}).program.kind, ProgramKind::script);
    EXPECT_EQ(parse({"--run-path", "--no-python", "train"}).program.kind, ProgramKind::script);
    EXPECT_EQ(parse({"x"}, {{"PET_RUN_PATH", "1"}}).program.kind, ProgramKind::script);
    EXPECT_EQ(parse({"x"}, {{"PET_RUN_PATH", "0"}}).program.kind, ProgramKind::automatic);
}

TEST(TorchrunOptions, AJobThatOneHostWillDoForRunsOnIt) {
    EXPECT_EQ(parse({"--nnodes=1:2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:0", "x"})
                  .rendezvous.master_addr,
              "127.0.0.1");
    EXPECT_EQ(parse({"--nnodes=1:2", "x"}).rendezvous.master_addr, "127.0.0.1");
}

TEST(TorchrunOptions, WhatIsSaidOfHostsIsKeptAsItWasSaid) {
    const HostFlags flags =
        parse({"--nnodes=1:2", "--rdzv_backend=c10d", "--rdzv_endpoint=192.0.2.1:1", "x"},
              {{"PET_NODE_RANK", "1"}})
            .hosts.flags;
    EXPECT_EQ(flags.nnodes, "1:2");
    EXPECT_EQ(flags.rdzv_backend, "c10d");
    EXPECT_EQ(flags.rdzv_endpoint, "192.0.2.1:1");
    EXPECT_EQ(flags.node_rank, std::nullopt) << "a variable is read with its name";
}

TEST(TorchrunOptions, TimesOfTheRendezvousCount) {
    using namespace std::chrono_literals;
    const HostOptions hosts = parse({"--rdzv-conf=join_timeout=1.5,last_call_timeout=2,is_host=1",
                                     "--node-timeout=3", "x"})
                                  .hosts;
    EXPECT_EQ(hosts.join_timeout, 1500ms);
    EXPECT_EQ(hosts.last_call, 2s);
    EXPECT_EQ(hosts.node_timeout, 3s);
    EXPECT_EQ(parse({"--rdzv-conf=timeout=7", "x"}).hosts.join_timeout, 7s);
    EXPECT_EQ(parse({"x"}).hosts.join_timeout, std::nullopt);
}

TEST(TorchrunOptions, ATokenIsRequiredWhereThatIsSaid) {
    EXPECT_EQ(parse({"x"}).hosts.authentication, Authentication::automatic);
    EXPECT_EQ(parse({"--auth=auto", "x"}).hosts.authentication, Authentication::automatic);
    EXPECT_EQ(parse({"--auth=required", "x"}).hosts.authentication, Authentication::required);
}

// Each task would be a whole job of its own.
TEST(TorchrunOptions, AJobOfSeveralHostsIsRefusedInAStepOfSeveralTasks) {
    const Environment step{
        {"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_STEP_NUM_NODES", "1"}};
    EXPECT_THAT(error_of({"--nnodes=1:2", "x"}, step), HasSubstr("SLURM_STEP_NUM_TASKS=2"));
    EXPECT_EQ(error_of({"--nnodes=1", "x"}, step), "no error");
    EXPECT_EQ(error_of({"--nnodes=1:2", "--standalone", "x"}, step), "no error");
}

TEST(TorchrunOptions, RendezvousSettingsMayStandInQuotes) {
    for (const char* conf :
         {"join_timeout=5,timeout=5", "'join_timeout=5,timeout=5'", "\"join_timeout=5\""}) {
        EXPECT_EQ(error_of({std::string("--rdzv-conf=") + conf, "x"}), "no error") << conf;
    }
    for (const char* conf : {"'timeout=5", "timeout=5'", "'timeout=5\"", "''timeout=5''", "'"}) {
        EXPECT_THAT(error_of({std::string("--rdzv-conf=") + conf, "x"}), HasSubstr("--rdzv-conf"))
            << conf;
    }
}

TEST(TorchrunOptions, WordsOfOtherLaunchersAreAnsweredWithOurs) {
    for (const char* word :
         {"--nprocs=2", "--num_processes=2", "--num-gpus=2", "--ntasks", "--nprocs"}) {
        EXPECT_THAT(error_of({word, "x"}), HasSubstr("did you mean --nproc-per-node?")) << word;
    }
    EXPECT_THAT(error_of({"--main_process_port=1", "x"}), HasSubstr("did you mean --master-port?"));
}

TEST(TorchrunOptions, TheHelpShowsAnExample) {
    EXPECT_THAT(help_text(), HasSubstr("example: ddp-launch --nproc-per-node=2 ./train"));
}

}  // namespace
}  // namespace ddp::launcher
