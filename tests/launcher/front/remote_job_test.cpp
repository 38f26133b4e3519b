// What each host of --hosts is told: options, variables, command.
#include "launcher/front/remote_job.hpp"

#include "launcher/parse_words.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::Words;

StartingHost a_host() {
    return {.launcher = "/opt/ddp/bin/ddp-launch",
            .folder = "/work",
            .environment = {"PATH=/bin"},
            .greeting = "ddp-launch begins 0"};
}

RemoteJob plan(Words words, const StartingHost& here = a_host()) {
    const std::vector<char*> arguments = testing::pointers_to(words);
    const Options options = parse_options(arguments, testing::lookup_in({}));
    return plan_remote_job(options, split_arguments(arguments), listed_hosts(options), here);
}

std::string refusal(const Words& words) {
    try {
        plan(words);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "taken";
}

TEST(RemoteJob, HostsOfASlurmAllocationAreStartedBySrun) {
    StartingHost here = a_host();
    const auto command = [&](const Words& words) {
        const RemoteJob job = plan(words, here);
        return job.hosts.back().command;
    };
    const auto is_ssh =
        ElementsAre("ssh", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "n2",
                    "/opt/ddp/bin/ddp-launch", "--from-stdin");
    EXPECT_THAT(command({"--hosts=n1,n2", "./train"}), is_ssh);
    here.environment = {"SLURM_JOB_ID=47", "SLURM_JOB_NODELIST=n[1-3]"};
    EXPECT_THAT(command({"--hosts=n1,n2", "./train"}),
                ElementsAre("env", "-u", "SLURM_GPUS", "-u", "SLURM_GPUS_PER_SOCKET", "-u",
                            "SLURM_GPUS_PER_TASK", "-u", "SLURM_NTASKS_PER_GPU", "-u",
                            "SLURM_CPUS_PER_GPU", "-u", "SLURM_CPUS_PER_TASK", "-u",
                            "SRUN_CPUS_PER_TASK", "-u", "SLURM_TRES_PER_TASK", "srun", "--overlap",
                            "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--cpu-bind=none",
                            "--nodelist=n2", "/opt/ddp/bin/ddp-launch", "--from-stdin"));
    EXPECT_EQ(plan({"--hosts=n[1-3]", "./train"}, here).line,
              "3 hosts (--hosts): n1, n2, n3; head n1, port 20047");
    EXPECT_THAT(command({"--hosts=other,n2", "./train"}), is_ssh) << "not all are Slurm's";
    EXPECT_THAT(command({"--rsh=ssh", "--hosts=n1,n2", "./train"}),
                ElementsAre("ssh", "n2", "/opt/ddp/bin/ddp-launch", "--from-stdin"));
    EXPECT_THAT(refusal({"--hosts=n[1-2],n1", "./train"}), HasSubstr("n1"));
    EXPECT_THAT(refusal({"--hosts=-x[1-2]", "./train"}), HasSubstr("-x1"));
    here.environment = {"SLURM_JOB_ID=", "SLURM_JOB_NODELIST=n[1-3]"};
    EXPECT_THAT(command({"--hosts=n1,n2", "./train"}), is_ssh);
}

TEST(RemoteJob, EachHostGetsItsNumberAndSlots) {
    const RemoteJob job = plan({"--hosts=h1:4,h2", "-n2", "--tty", "./train", "--lr", "1"});
    ASSERT_EQ(job.hosts.size(), 2U);
    EXPECT_EQ(job.line, "2 hosts (--hosts): h1, h2; head h1, port 29500");
    EXPECT_THAT(job.hosts[0].part.options,
                ElementsAre("--nproc-per-node=2", "--tty", "--nnodes=2", "--master-addr=h1",
                            "--master-port=29500", "--node-rank=0", "--nproc-per-node=4"));
    EXPECT_THAT(job.hosts[1].part.options,
                ElementsAre("--nproc-per-node=2", "--tty", "--nnodes=2", "--master-addr=h1",
                            "--master-port=29500", "--node-rank=1"));
    EXPECT_THAT(job.hosts[1].part.command, ElementsAre("./train", "--lr", "1"));
    EXPECT_EQ(job.hosts[1].part.folder, "/work");
    EXPECT_EQ(job.hosts[1].part.greeting, "ddp-launch begins 0");
}

TEST(RemoteJob, TheCommandIsRshTheHostAndTwoWords) {
    EXPECT_THAT(plan({"--hosts=h1", "x"}).hosts[0].command,
                ElementsAre("ssh", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10",
                            "h1", "/opt/ddp/bin/ddp-launch", "--from-stdin"));
    StartingHost here = a_host();
    here.launcher = "/my folder/it's/ddp-launch";
    EXPECT_THAT(
        plan({"--hosts=[fe80::1%eth0]:2", "--rsh=ssh -p '2 2'", "x"}, here).hosts[0].command,
        ElementsAre("ssh", "-p", "2 2", "fe80::1%eth0", "'/my folder/it'\\''s/ddp-launch'",
                    "--from-stdin"));
}

TEST(RemoteJob, TheMeetingPlaceIsWhatTheUserSays) {
    EXPECT_THAT(
        plan({"--hosts=h1,h2", "--master-addr=10.0.0.1", "--master-port=7", "x"})
            .hosts[1]
            .part.options,
        ElementsAre("--nnodes=2", "--master-addr=10.0.0.1", "--master-port=7", "--node-rank=1"));
    StartingHost here = a_host();
    here.environment = {"PET_MASTER_PORT=8", "PET_MASTER_ADDR="};
    EXPECT_THAT(plan({"--hosts=h1,h2", "x"}, here).hosts[0].part.options,
                IsSupersetOf({"--master-addr=h1", "--master-port=8"}));
}

TEST(RemoteJob, ThatMayLoseHostsMeetsOnSeveral) {
    const auto options = [](const Words& words) { return plan(words).hosts[1].part.options; };
    EXPECT_THAT(options({"--hosts=h1,h2,h3", "--nnodes=2:3", "x"}),
                ElementsAre("--nnodes=2:3", "--rdzv-backend=c10d",
                            "--rdzv-endpoint=h1:29500,h2:29500,h3:29500", "--node-rank=1"));
    EXPECT_THAT(options({"--hosts=h1,[fe80::2]", "--nnodes=1:2", "--master-port=7", "x"}),
                Contains("--rdzv-endpoint=h1:7"))
        << "one of two could not go on";
    EXPECT_THAT(options({"--hosts=[fd77::1],[fd77::2],h3", "--nnodes=2:3", "--master-port=7", "x"}),
                Contains("--rdzv-endpoint=[fd77::1]:7,[fd77::2]:7,h3:7"));
    EXPECT_THAT(options({"--hosts=h1,h2,h3", "--nnodes=2:3", "--master-addr=10.0.0.1", "x"}),
                Contains("--rdzv-endpoint=10.0.0.1:29500,h2:29500,h3:29500"));
    EXPECT_THAT(options({"--hosts=h[1-9]", "--nnodes=5:9", "x"}),
                Contains("--rdzv-endpoint=h1:29500,h2:29500,h3:29500,h4:29500"));
    EXPECT_EQ(plan({"--hosts=h1,h2,h3", "--nnodes=2:3", "x"}).least_hosts, 2U);
    EXPECT_EQ(plan({"--hosts=h1,h2,h3", "x"}).least_hosts, 3U);
}

TEST(RemoteJob, OfOneHostMeetsAtAnyFreePort) {
    EXPECT_THAT(plan({"--hosts=h7:2", "x"}).hosts[0].part.options,
                ElementsAre("--nnodes=1", "--node-rank=0", "--nproc-per-node=2"));
}

TEST(RemoteJob, OnATerminalLinesNameTheirRanks) {
    StartingHost here = a_host();
    here.shows_on_terminal = true;
    const std::string wanted = "--log-line-prefix-template=[${rank}] ";
    EXPECT_THAT(plan({"--hosts=h1,h2", "x"}, here).hosts[0].part.options, Contains(wanted));
    EXPECT_THAT(
        plan({"--hosts=h1,h2", "--log-line-prefix-template=>", "x"}, here).hosts[0].part.options,
        Not(Contains(wanted)));
    EXPECT_THAT(plan({"--hosts=h1,h2", "x"}).hosts[0].part.options, Not(Contains(wanted)));
}

TEST(RemoteJob, WhatContradictsAListOfHostsIsRefused) {
    EXPECT_THAT(refusal({"--hosts=h1", "--nnodes=2", "x"}), HasSubstr("--nnodes: --hosts"));
    EXPECT_THAT(refusal({"--hosts=h1,h2", "--nnodes=1:3", "x"}),
                HasSubstr("--nnodes: --hosts has 2 hosts, not 3; write --nnodes=1:2"));
    EXPECT_THAT(refusal({"--hosts=h1,h2,h3", "--nnodes=2:3", "--master-port=0", "x"}),
                HasSubstr("--master-port"));
    EXPECT_THAT(refusal({"--hosts=h1", "--node-rank=0", "x"}), HasSubstr("--node-rank: --hosts"));
    EXPECT_THAT(refusal({"--hosts=h1", "--standalone", "x"}), HasSubstr("--standalone: --hosts"));
    EXPECT_THAT(refusal({"--hosts=h1", "--rdzv-endpoint=h1:1", "x"}), HasSubstr("--rdzv-endpoint"));
    EXPECT_THAT(refusal({"--hosts=h1", "--rdzv-backend=c10d", "x"}), HasSubstr("--rdzv-backend"));
    EXPECT_THAT(refusal({"--hosts=h1", "--stdin=all", "x"}), HasSubstr("--stdin"));
    EXPECT_THAT(refusal({"--hosts=h1:2,h1", "x"}), HasSubstr("h1 comes a second time"));
    EXPECT_THAT(refusal({"--hostfile=/nowhere", "x"}), HasSubstr("cannot read /nowhere"));
    EXPECT_EQ(refusal({"--hosts=h1:4", "--tee=3:3", "--stdin=none", "x"}), "taken");
}

TEST(RemoteJob, TooLongForAFrameIsRefused) {
    EXPECT_THAT(refusal({"--hosts=h1", "x", std::string(std::size_t{5} << 20, 'a')}),
                HasSubstr("more than 4 MiB"));
}

TEST(PassedVariables, AreThoseOfProgramsAndLibraries) {
    const std::vector<std::string> environment{"PATH=/bin",
                                               "LD_LIBRARY_PATH=/lib",
                                               "PYTHONPATH=/py",
                                               "CUDA_VISIBLE_DEVICES=0",
                                               "NCCL_DEBUG=INFO",
                                               "OMP_NUM_THREADS=2",
                                               "TORCH_LOGS=x",
                                               "HF_HOME=/hf",
                                               "DDP_LOG_LEVEL=info",
                                               "HOME=/root",
                                               "RANK=3",
                                               "WORLD_SIZE=4",
                                               "HFX=1",
                                               "PET_MAX_RESTARTS=1",
                                               "VIRTUAL_ENV=/venv",
                                               "no entry",
                                               "=1",
                                               "DDP_ROUND=1",
                                               "DDP_HOST_ADDR=x",
                                               "DDP_AGENT_STORE=x",
                                               "DDP_CONTROL_FD=5",
                                               "DDP_CONTROL_PAGE=1",
                                               "DDP_STORE_FD=3:4",
                                               "DDP_LAUNCH_HOST=4:5",
                                               "MASTER_PORT=1",
                                               "PET_NNODES=2",
                                               "DDP_AGENT_STORE_SOCKET=x",
                                               "TORCHELASTIC_RUN_ID=x",
                                               "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=>"};
    EXPECT_THAT(passed_variables(environment, {}),
                ElementsAre("CUDA_VISIBLE_DEVICES=0", "DDP_LOG_LEVEL=info", "HF_HOME=/hf",
                            "LD_LIBRARY_PATH=/lib", "NCCL_DEBUG=INFO", "OMP_NUM_THREADS=2",
                            "PATH=/bin", "PET_MAX_RESTARTS=1", "PYTHONPATH=/py",
                            "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=>", "TORCH_LOGS=x",
                            "VIRTUAL_ENV=/venv"));
}

TEST(PassedVariables, AndThoseThatTheUserNames) {
    const std::vector<std::string> environment{"PATH=/bin", "HOME=/root", "EMPTY="};
    const std::vector<std::string> more{"HOME", "PATH=/sbin", "NEW=a=b", "EMPTY", "NEW=c"};
    EXPECT_THAT(passed_variables(environment, more),
                ElementsAre("EMPTY=", "HOME=/root", "NEW=c", "PATH=/sbin"));
    const std::vector<std::string> absent{"ABSENT"};
    EXPECT_THROW(passed_variables(environment, absent), UsageError);
}

TEST(RemoteJob, ADryRunShowsNoValueOfAVariable) {
    StartingHost here = a_host();
    here.environment = {"HF_TOKEN=secret"};
    const std::string text = describe_remote_job(plan({"--hosts=h1,h2", "./train", "a b"}, here));
    EXPECT_THAT(text, HasSubstr("h2\n    ssh -x -o BatchMode=yes -o ServerAliveInterval=10 h2 "
                                "/opt/ddp/bin/ddp-launch"));
    EXPECT_THAT(text, HasSubstr("--node-rank=1 -- ./train 'a b'\n"));
    EXPECT_THAT(text, HasSubstr("with HF_TOKEN\n"));
    EXPECT_THAT(text, Not(HasSubstr("secret")));
}

}  // namespace
}  // namespace ddp::launcher
