// Who starts agents of several hosts, and what each is told: variables are those that Slurm 22.05,
// Open MPI 4.1.4 and MPICH 4.0.2 were seen to set.
#include "launcher/hosts/start/host_env.hpp"

#include "launcher/parse_words.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iostream>
#include <random>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::AllOf;
using testing::Environment;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Those of `changes` replace those of `environment`; an empty one is as if it were not set.
Environment with(Environment environment, const Environment& changes) {
    for (const auto& [name, value] : changes) environment[name] = value;
    return environment;
}

std::optional<HostEnv> find_job(const Environment& environment, const HostFlags& flags = {}) {
    return host_env(flags, testing::lookup_in(environment));
}

// "min:max rank head:port" of a job, "alone", or the error.
std::string told(const Environment& environment, const HostFlags& flags = {}) {
    try {
        const auto job = find_job(environment, flags);
        if (!job) return "alone";
        return std::to_string(job->min_hosts) + ":" + std::to_string(job->max_hosts) + " " +
               (job->node_rank ? std::to_string(*job->node_rank) : "any") + " " + job->head + ":" +
               std::to_string(job->port);
    } catch (const UsageError& error) {
        return error.what();
    }
}

// srun -N3 --ntasks-per-node=1, on the second host.
const Environment slurm_step{{"SLURMD_NODENAME", "h2"},
                             {"SLURM_JOB_ID", "12"},
                             {"SLURM_JOB_NODELIST", "h[1-4]"},
                             {"SLURM_JOB_NUM_NODES", "4"},
                             {"SLURM_LAUNCH_NODE_IPADDR", "10.77.0.254"},
                             {"SLURM_LOCALID", "0"},
                             {"SLURM_NNODES", "4"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_PROCID", "1"},
                             {"SLURM_STEP_ID", "0"},
                             {"SLURM_STEP_NODELIST", "h[1-3]"},
                             {"SLURM_STEP_NUM_NODES", "3"},
                             {"SLURM_STEP_NUM_TASKS", "3"},
                             {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}};
// srun -N2 --ntasks-per-node=4
const Environment slurm_tasks = with(slurm_step, {{"SLURM_STEP_NODELIST", "h[1-2]"},
                                                  {"SLURM_STEP_NUM_NODES", "2"},
                                                  {"SLURM_STEP_NUM_TASKS", "8"},
                                                  {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"}});
const Environment slurm_batch_shell{{"SLURM_JOB_ID", "2"},
                                    {"SLURM_JOB_NODELIST", "h[1-2]"},
                                    {"SLURM_JOB_NUM_NODES", "2"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_NNODES", "2"},
                                    {"SLURM_NODEID", "0"},
                                    {"SLURM_NODELIST", "h[1-2]"},
                                    {"SLURM_NPROCS", "2"},
                                    {"SLURM_NTASKS", "2"},
                                    {"SLURM_NTASKS_PER_NODE", "1"},
                                    {"SLURM_PROCID", "0"},
                                    {"SLURM_RESTART_COUNT", "1"},
                                    {"SLURM_TASKS_PER_NODE", "1(x2)"}};
// mpirun --map-by ppr:1:node over two hosts, on the second.
const Environment open_mpi{{"OMPI_COMM_WORLD_RANK", "1"},
                           {"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                           {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                           {"PMIX_NAMESPACE", "783613953"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_HOSTNAME", "node1"}};
const Environment mpich{{"PMI_RANK", "1"},        {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "0"},
                        {"MPI_LOCALNRANKS", "1"}, {"PMI_FD", "8"},   {"HYDI_CONTROL_FD", "7"}};
// Kubeflow's Trainer.
const Environment pet{{"PET_NNODES", "4"},          {"PET_NPROC_PER_NODE", "8"},
                      {"PET_NODE_RANK", "2"},       {"PET_MASTER_ADDR", "train-node-0-0.train"},
                      {"PET_MASTER_PORT", "29500"}, {"JOB_COMPLETION_INDEX", "2"}};
const Environment pod{{"JOB_COMPLETION_INDEX", "2"}, {"HOSTNAME", "train-2"}};

TEST(HostEnv, ASlurmStepOfOneTaskAHostIsAJob) {
    const auto job = find_job(slurm_step);
    ASSERT_TRUE(job);
    EXPECT_EQ(told(slurm_step), "3:3 1 h1:20012");
    EXPECT_EQ(job->hosts, (std::vector<std::string>{"h1", "h2", "h3"}));
    EXPECT_EQ(job->line,
              "3 hosts of Slurm step 12.0 (SLURM_STEP_NUM_NODES), this is host 1 (SLURM_NODEID); "
              "head h1 (SLURM_STEP_NODELIST), port 20012 (job id)");
}

TEST(HostEnv, NodesOfAStepTakeOverWhereFewerThanHalfCannot) {
    const auto successors = [](const char* nodes, const Environment& step) {
        const auto job = find_job(step, {.nnodes = nodes});
        std::string names;
        for (const MeetingPlace& place : job->successors) {
            names += place.host + ":" + std::to_string(place.port) + " ";
        }
        return names;
    };
    EXPECT_EQ(successors("2:3", slurm_step), "h2:20012 h3:20012 ");
    EXPECT_EQ(successors("1:3", slurm_step), "");
    EXPECT_EQ(successors("3", slurm_step), "");
    const Environment of_9 = with(slurm_step, {{"SLURM_STEP_NUM_NODES", "9"},
                                               {"SLURM_STEP_NUM_TASKS", "9"},
                                               {"SLURM_STEP_NODELIST", "h[1-9]"}});
    EXPECT_EQ(successors("5:9", of_9), "h2:20012 h3:20012 h4:20012 ");
    const auto elsewhere = find_job(slurm_step, {.nnodes = "2:3", .master_addr = "h0"});
    EXPECT_TRUE(elsewhere->successors.empty()) << "the user says where";
}

struct ToldRow {
    const char* what;
    Environment environment;
    HostFlags flags;
    const char* expected;
};
using ToldRows = std::vector<ToldRow>;

void expect_told(const ToldRows& rows) {
    for (const ToldRow& row : rows) {
        EXPECT_THAT(told(row.environment, row.flags), StartsWith(row.expected)) << row.what;
    }
}

TEST(HostEnv, ThePortOfASlurmStepIsItsOwnElseOfTheJobsId) {
    expect_told({
        {"two are reserved",
         with(slurm_step, {{"SLURM_STEP_RESV_PORTS", "21001-21002"}}),
         {},
         "3:3 1 h1:21001"},
        {"one", with(slurm_step, {{"SLURM_STEP_RESV_PORTS", "21007"}}), {}, "3:3 1 h1:21007"},
        {"single ones",
         with(slurm_step, {{"SLURM_STEP_RESV_PORTS", "21007,21009-21010"}}),
         {},
         "3:3 1 h1:21007"},
        {"no port",
         with(slurm_step, {{"SLURM_STEP_RESV_PORTS", "none"}}),
         {},
         "$SLURM_STEP_RESV_PORTS: \"none\" is not a whole number from 1 to 65535"},
        {"an id above the range",
         with(slurm_step, {{"SLURM_JOB_ID", "1234567"}}),
         {},
         "3:3 1 h1:34567"},
        {"the last port", with(slurm_step, {{"SLURM_JOB_ID", "19999"}}), {}, "3:3 1 h1:39999"},
        {"the older name",
         with(slurm_step, {{"SLURM_JOB_ID", ""}, {"SLURM_JOBID", "7"}}),
         {},
         "3:3 1 h1:20007"},
        {"no id", with(slurm_step, {{"SLURM_JOB_ID", ""}}), {}, "3:3 1 h1:29500"},
        {"an option", slurm_step, {.master_port = "4000"}, "3:3 1 h1:4000"},
        {"PET_", with(slurm_step, {{"PET_MASTER_PORT", "4001"}}), {}, "3:3 1 h1:4001"},
    });
}

TEST(HostEnv, OnlyAStepOfSlurmCounts) {
    expect_told({
        {"the batch shell", slurm_batch_shell, {}, "alone"},
        {"a step of one task",
         with(slurm_step, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}}),
         {},
         "alone"},
        {"what salloc starts",
         with(slurm_batch_shell, {{"SLURM_STEP_ID", "4294967290"},
                                  {"SLURM_STEP_NUM_NODES", "1"},
                                  {"SLURM_STEP_NUM_TASKS", "1"}}),
         {},
         "alone"},
        {"a step that tells nothing", {{"SLURM_STEP_ID", "0"}}, {}, "alone"},
    });
}

TEST(HostEnv, SeveralTasksOnAHostAreRefused) {
    expect_told({
        {"of Slurm",
         slurm_tasks,
         {},
         "SLURM_STEP_NUM_TASKS=8 of SLURM_STEP_NUM_NODES=2 (srun) says that ddp-launch was started "
         "several times on a host, and each would start all workers there; write srun -N2 "
         "--ntasks-per-node=1 ddp-launch --nproc-per-node=4 PROGRAM, or srun PROGRAM"},
        {"of Slurm, unevenly",
         with(slurm_tasks, {{"SLURM_STEP_NUM_TASKS", "3"}}),
         {},
         "SLURM_STEP_NUM_TASKS=3 of SLURM_STEP_NUM_NODES=2"},
        {"of Slurm, on one host",
         with(slurm_tasks, {{"SLURM_STEP_NUM_NODES", "1"}}),
         {},
         "SLURM_STEP_NUM_TASKS=8 of SLURM_STEP_NUM_NODES=1"},
        {"of Slurm, for a smaller job",
         slurm_tasks,
         {.nnodes = "2", .rdzv_endpoint = "h1:4000", .rdzv_backend = "c10d"},
         "SLURM_STEP_NUM_TASKS=8"},
        {"of Open MPI",
         with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
         {},
         "OMPI_COMM_WORLD_LOCAL_SIZE=2 (Open MPI's mpirun) says that ddp-launch was started "
         "several times on this host, and each would start all workers there; write mpirun "
         "--map-by ppr:1:node ddp-launch --nproc-per-node=2 PROGRAM"},
        {"of MPICH",
         with(mpich, {{"MPI_LOCALNRANKS", "2"}}),
         {},
         "MPI_LOCALNRANKS=2 (an MPI launcher) says that ddp-launch was started several times on "
         "this host, and each would start all workers there; write mpiexec -ppn 1 ddp-launch"},
        {"of who does not tell where",
         {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}},
         {},
         "PMI_SIZE=2 (an MPI launcher) says that ddp-launch was started several times"},
        {"of MVAPICH", {{"MV2_COMM_WORLD_SIZE", "2"}}, {}, "MV2_COMM_WORLD_SIZE=2"},
        {"of PMIx", {{"PMIX_RANK", "1"}}, {}, "PMIX_RANK=1"},
    });
    EXPECT_THAT(told(slurm_tasks), HasSubstr("--standalone if you want several jobs"));
    EXPECT_THAT(told(with(slurm_tasks, {{"SLURM_STEP_NUM_TASKS", "3"}})),
                HasSubstr("--nproc-per-node=N PROGRAM"));
}

TEST(HostEnv, SeveralTasksOnAHostAreAgentsWhereTheOptionsSaySo) {
    expect_told({
        {"each with its place",
         slurm_tasks,
         {.nnodes = "8", .node_rank = "5", .master_addr = "h1", .master_port = "4000"},
         "8:8 5 h1:4000"},
        {"without a port",
         slurm_tasks,
         {.nnodes = "8", .node_rank = "5", .master_addr = "h1"},
         "8:8 5 h1:29500"},
        {"at an endpoint",
         slurm_tasks,
         {.nnodes = "8", .rdzv_endpoint = "h1:4000", .rdzv_backend = "c10d"},
         "8:8 any h1:4000"},
        {"each alone", slurm_tasks, {.nnodes = "1"}, "alone"},
        {"standalone", slurm_tasks, {.standalone = true}, "alone"},
        {"of MPI",
         with(open_mpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
         {.nnodes = "2", .rdzv_endpoint = "h1:4000"},
         "2:2 any h1:4000"},
    });
}

TEST(HostEnv, OptionsComeFirstThenPetThenTheScheduler) {
    expect_told({
        {"options alone",
         {},
         {.nnodes = "2", .node_rank = "1", .master_addr = "h1", .master_port = "4000"},
         "2:2 1 h1:4000"},
        {"PET alone", pet, {}, "4:4 2 train-node-0-0.train:29500"},
        {"options over PET",
         pet,
         {.nnodes = "8", .node_rank = "7", .master_port = "4000"},
         "8:8 7 train-node-0-0.train:4000"},
        {"PET over Slurm",
         with(slurm_step, {{"PET_NODE_RANK", "2"}, {"PET_MASTER_ADDR", "ib1"}}),
         {},
         "3:3 2 ib1:20012"},
        {"an option over Slurm", slurm_step, {.master_addr = "ib1"}, "3:3 1 ib1:20012"},
        {"the number of Slurm's hosts", slurm_step, {.nnodes = "3"}, "3:3 1 h1:20012"},
        {"a range with the number of Slurm's hosts",
         slurm_step,
         {.nnodes = "2:4"},
         "2:4 any h1:20012"},
        {"an endpoint in a step",
         slurm_step,
         {.rdzv_endpoint = "h3", .rdzv_backend = "c10d"},
         "3:3 1 h3:29400"},
        {"one of several jobs in a step",
         slurm_step,
         {.nnodes = "2", .rdzv_endpoint = "h1:4000"},
         "2:2 any h1:4000"},
        {"Slurm over Kubernetes", with(slurm_step, pod), {}, "3:3 1 h1:20012"},
        {"an empty option",
         pet,
         {.nnodes = "", .rdzv_endpoint = ""},
         "4:4 2 train-node-0-0.train:29500"},
        {"an endpoint over an address",
         pet,
         {.rdzv_endpoint = "[fe80::1]:4000"},
         "4:4 2 fe80::1:4000"},
        {"PET_STANDALONE", with(pet, {{"PET_STANDALONE", "1"}}), {}, "alone"},
        {"PET_STANDALONE off", with(pet, {{"PET_STANDALONE", "0"}}), {}, "4:4 2"},
        {"MASTER_ADDR, as PyTorchJob sets it, last",
         {{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "23456"}},
         {.nnodes = "2"},
         "2:2 any m:23456"},
    });
}

TEST(HostEnv, PortsThatNobodyGivesAreTorchruns) {
    expect_told({
        {"of an address", {}, {.nnodes = "2", .master_addr = "h1"}, "2:2 any h1:29500"},
        {"of c10d",
         {},
         {.nnodes = "2", .rdzv_endpoint = "h1", .rdzv_backend = "c10d"},
         "2:2 any h1:29400"},
        {"of c10d by PET",
         {{"PET_RDZV_BACKEND", "c10d"}, {"PET_RDZV_ENDPOINT", "h1"}},
         {.nnodes = "2"},
         "2:2 any h1:29400"},
        {"of static",
         {},
         {.nnodes = "2", .rdzv_endpoint = "h1"},
         "--rdzv-endpoint: \"h1\" is not complete"},
        {"any free one",
         {},
         {.nnodes = "2", .master_addr = "h1", .master_port = "0"},
         "--master-port: 0 is any free port, which other hosts cannot know; write one that is free "
         "on h1"},
    });
}

TEST(HostEnv, AJobThatOneHostWillDoForIsAloneWhereNobodyCouldFindIt) {
    expect_told({
        {"nothing at all", {}, {}, "alone"},
        {"an address without a number of hosts", {}, {.master_addr = "h1"}, "alone"},
        {"one host", {}, {.nnodes = "1", .master_addr = "h1"}, "alone"},
        {"one host by PET", {{"PET_NNODES", "1:1"}, {"PET_NODE_RANK", "0"}}, {}, "alone"},
        {"a range without a head", {}, {.nnodes = "1:4"}, "alone"},
        {"a range at a free port",
         {},
         {.nnodes = "1:4", .rdzv_endpoint = "localhost:0", .rdzv_backend = "c10d"},
         "alone"},
        {"a range with a head",
         {},
         {.nnodes = "1:4", .rdzv_endpoint = "h1:4000"},
         "1:4 any h1:4000"},
        {"a range at a free port, in a step",
         slurm_step,
         {.nnodes = "1:4", .rdzv_endpoint = "localhost:0"},
         "SLURM_STEP_NUM_TASKS=3 (srun)"},
        {"one host in a step of several", slurm_step, {.nnodes = "1"}, "alone"},
        {"a range, in a shell that has MASTER_ADDR",
         {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "x"}},
         {.nnodes = "1:4"},
         "alone"},
        {"one host, in a shell that has MASTER_ADDR",
         {{"MASTER_ADDR", "m"}, {"MASTER_PORT", "x"}},
         {},
         "alone"},
        {"PyTorchJob's and Volcano's counts",
         {{"WORLD_SIZE", "4"}, {"RANK", "1"}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "23456"}},
         {},
         "alone"},
        {"MPI's world of one",
         with(open_mpi, {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}}),
         {},
         "alone"},
        {"PMI's count that is none", {{"PMI_SIZE", "many"}}, {}, "alone"},
    });
}

TEST(HostEnv, APodKnowsItsPlaceAndIsToldTheRest) {
    const Environment told_all = with(pod, {{"PET_NNODES", "4"}, {"PET_MASTER_ADDR", "train-0.s"}});
    expect_told({
        {"all is told", told_all, {}, "4:4 2 train-0.s:29500"},
        {"places of a range are not the index",
         with(told_all, {{"PET_NNODES", "2:4"}}),
         {},
         "2:4 any train-0.s:29500"},
        {"no head",
         with(told_all, {{"PET_MASTER_ADDR", ""}}),
         {},
         "4 hosts (PET_NNODES), but nobody says where they meet; set "
         "PET_MASTER_ADDR=train-0.<service> in the manifest, with the name of the job's headless "
         "Service"},
        {"no head, which MASTER_ADDR tells",
         with(told_all, {{"PET_MASTER_ADDR", ""}, {"MASTER_ADDR", "m"}, {"MASTER_PORT", "23456"}}),
         {},
         "4:4 2 m:23456"},
        {"no head of a range", with(pod, {{"PET_NNODES", "1:4"}}), {}, "1 to 4 hosts (PET_NNODES)"},
        {"no number",
         pod,
         {},
         "JOB_COMPLETION_INDEX=2 says that this is one of several pods of a job, and each would "
         "be a whole job of its own; set PET_NNODES to the number of pods (the Job's completions) "
         "in the manifest and PET_MASTER_ADDR=train-0.<service> in the manifest"},
        {"no number, of the only pod or the first",
         {{"JOB_COMPLETION_INDEX", "0"}, {"HOSTNAME", "train-0"}},
         {},
         "alone"},
        {"a job of a JobSet",
         with(pod, {{"PET_NNODES", "4"}, {"HOSTNAME", "set-workers-0-2"}}),
         {},
         "4 hosts (PET_NNODES), but nobody says where they meet; set "
         "PET_MASTER_ADDR=set-workers-0-0.<service>"},
        {"a host's name of its own",
         with(pod, {{"PET_NNODES", "4"}, {"HOSTNAME", "x"}}),
         {},
         "4 hosts (PET_NNODES), but nobody says where they meet; set PET_MASTER_ADDR=<job>-0."},
        {"an index outside",
         with(told_all, {{"PET_NNODES", "2"}}),
         {},
         "$JOB_COMPLETION_INDEX: 2 is no place in PET_NNODES=2; places go from 0 to 1"},
        {"shards, each a job", pod, {.nnodes = "1"}, "alone"},
        {"no index",
         with(pod, {{"JOB_COMPLETION_INDEX", "x"}}),
         {},
         "$JOB_COMPLETION_INDEX: \"x\" is not a whole number"},
    });
}

TEST(HostEnv, OneProcessOfMpiAHostIsAJobWhoseHeadIsTold) {
    expect_told({
        {"Open MPI", with(open_mpi, {{"MASTER_ADDR", "h1"}}), {}, "2:2 1 h1:29500"},
        {"MPICH",
         with(mpich, {{"MASTER_ADDR", "h1"}, {"MASTER_PORT", "4000"}}),
         {},
         "2:2 1 h1:4000"},
        {"an option", mpich, {.master_addr = "h2"}, "2:2 1 h2:29500"},
        {"no head, Open MPI",
         open_mpi,
         {},
         "2 hosts of Open MPI's mpirun (OMPI_COMM_WORLD_SIZE), but nobody says where they meet; "
         "write mpirun -x MASTER_ADDR=HOST or ddp-launch --master-addr=HOST, with rank 0's host"},
        {"no head, MPICH",
         mpich,
         {},
         "2 hosts of an MPI launcher (PMI_SIZE), but nobody says where they meet; write mpiexec "
         "-genv MASTER_ADDR HOST"},
        // mpirun and mpiexec start their daemons with srun: the step is of all hosts but the first.
        {"in a step of its daemons",
         with(with(slurm_step, open_mpi), {{"MASTER_ADDR", "h0"}}),
         {},
         "2:2 1 h0:29500"},
        {"in a step of hydra's daemons",
         with(with(slurm_step, mpich), {{"MASTER_ADDR", "h0"}}),
         {},
         "2:2 1 h0:29500"},
        {"srun --mpi=pmi2",
         with(slurm_step, {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}),
         {},
         "3:3 1 h1:20012"},
        {"srun --mpi=pmix", with(slurm_step, {{"PMIX_RANK", "1"}}), {}, "3:3 1 h1:20012"},
    });
}

TEST(HostEnv, WhatContradictsItselfIsRefused) {
    expect_told({
        {"fewer than the step",
         slurm_step,
         {.nnodes = "2"},
         "--nnodes: 2 hosts, but Slurm step 12.0 has 3 (SLURM_STEP_NUM_NODES); leave it out"},
        {"more than the step",
         with(slurm_step, {{"PET_NNODES", "4:8"}}),
         {},
         "$PET_NNODES: 4 to 8 hosts, but Slurm step 12.0 has 3"},
        {"a list of other hosts",
         with(slurm_step, {{"SLURM_STEP_NODELIST", "h[1-2]"}}),
         {},
         "$SLURM_STEP_NODELIST has 2 hosts, but SLURM_STEP_NUM_NODES is 3"},
        {"no list",
         with(slurm_step, {{"SLURM_STEP_NODELIST", ""}}),
         {},
         "3 hosts of Slurm step 12.0 (SLURM_STEP_NUM_NODES), but nobody says where they meet; "
         "write --master-addr=HOST"},
        {"what is no list",
         with(slurm_step, {{"SLURM_STEP_NODELIST", "h[1-"}}),
         {},
         "$SLURM_STEP_NODELIST: \"h[1-\" is not a list"},
        {"a place outside",
         {},
         {.nnodes = "2", .node_rank = "2", .master_addr = "h1"},
         "--node-rank: 2 is no place in --nnodes=2; places go from 0 to 1"},
        {"a place outside one host",
         {},
         {.nnodes = "1", .node_rank = "1"},
         "--node-rank: 1 is no place in --nnodes=1"},
        {"a place without a number of hosts",
         {{"PET_NODE_RANK", "1"}},
         {},
         "$PET_NODE_RANK: 1 is no place in a job of 1 host (--nnodes)"},
        {"a place outside the step",
         with(slurm_step, {{"SLURM_NODEID", "3"}}),
         {},
         "$SLURM_NODEID: 3 is no place in SLURM_STEP_NUM_NODES=3"},
        {"several hosts without a head",
         {},
         {.nnodes = "2", .node_rank = "0"},
         "2 hosts (--nnodes), but nobody says where they meet; write --master-addr=HOST"},
        {"no number of hosts", {{"PET_NNODES", "2:1"}}, {}, "$PET_NNODES: \"2:1\" is not N or"},
        {"no place", {}, {.nnodes = "2", .node_rank = "-1"}, "--node-rank: \"-1\" is not"},
        {"no port", {{"PET_MASTER_PORT", "65536"}}, {.nnodes = "2"}, "$PET_MASTER_PORT: \"65536\""},
        {"no flag", {{"PET_STANDALONE", "true"}}, {}, "$PET_STANDALONE: \"true\" is not 0 or 1"},
    });
}

TEST(HostEnv, TheLineSaysWhereEachValueComesFrom) {
    const auto line = [](const Environment& environment, const HostFlags& flags) {
        const auto job = find_job(environment, flags);
        return job ? job->line : "alone";
    };
    EXPECT_EQ(line(pet, {}),
              "4 hosts (PET_NNODES), this is host 2 (PET_NODE_RANK); head train-node-0-0.train "
              "(PET_MASTER_ADDR), port 29500 (PET_MASTER_PORT)");
    EXPECT_EQ(line({}, {.nnodes = "2:4", .rdzv_endpoint = "h1:4000"}),
              "2 to 4 hosts (--nnodes); head h1, port 4000 (--rdzv-endpoint)");
    EXPECT_EQ(line({}, {.nnodes = "2", .master_addr = "h\n1"}),
              "2 hosts (--nnodes); head h?1 (--master-addr), port 29500 (default)");
    EXPECT_EQ(line(slurm_step, {.nnodes = "3", .master_port = "4000"}),
              "3 hosts (--nnodes), this is host 1 (SLURM_NODEID); head h1 (SLURM_STEP_NODELIST), "
              "port 4000 (--master-port)");
    EXPECT_EQ(line(with(open_mpi, {{"MASTER_ADDR", "h1"}}), {}),
              "2 hosts of Open MPI's mpirun (OMPI_COMM_WORLD_SIZE), this is host 1 "
              "(OMPI_COMM_WORLD_RANK); head h1 (MASTER_ADDR), port 29500 (default)");
}

TEST(HostEnv, NamesAreThoseOfAllHostsOrNone) {
    EXPECT_EQ(find_job(slurm_step, {.nnodes = "3"})->hosts.size(), 3U);
    EXPECT_TRUE(find_job(slurm_step, {.nnodes = "2:4"})->hosts.empty());
    EXPECT_TRUE(find_job(pet)->hosts.empty());
}

TEST(HostEnv, AllHostsOfAStepAreToldTheSameJob) {
    for (int node = 0; node < 3; ++node) {
        const std::string text = std::to_string(node);
        EXPECT_EQ(told(with(slurm_step, {{"SLURM_NODEID", text}, {"SLURM_PROCID", text}})),
                  "3:3 " + text + " h1:20012");
    }
}

TEST(HostEnv, RandomVariablesAreReadOrRefused) {
    const auto seed = std::random_device{}();
    std::cout << "seed " << seed << "\n";
    std::mt19937 random(seed);
    const std::vector<std::string> names{"PET_NNODES",
                                         "PET_NODE_RANK",
                                         "PET_MASTER_ADDR",
                                         "PET_MASTER_PORT",
                                         "PET_RDZV_ENDPOINT",
                                         "PET_RDZV_BACKEND",
                                         "PET_STANDALONE",
                                         "SLURM_STEP_ID",
                                         "SLURM_STEP_NUM_NODES",
                                         "SLURM_STEP_NUM_TASKS",
                                         "SLURM_NODEID",
                                         "SLURM_STEP_NODELIST",
                                         "SLURM_STEP_RESV_PORTS",
                                         "SLURM_JOB_ID",
                                         "JOB_COMPLETION_INDEX",
                                         "HOSTNAME",
                                         "OMPI_COMM_WORLD_SIZE",
                                         "OMPI_COMM_WORLD_LOCAL_SIZE",
                                         "OMPI_COMM_WORLD_RANK",
                                         "PMI_SIZE",
                                         "PMI_RANK",
                                         "MPI_LOCALNRANKS",
                                         "MASTER_ADDR",
                                         "MASTER_PORT"};
    const std::vector<std::string> values{
        "0",  "1",      "1",    "2",      "2",   "3",   "4",    "-1",          "",
        "h1", "h[1-2]", "c10d", "h1:400", "1:4", "2:4", "h[1-", "99999999999", "21001-21002"};
    std::size_t jobs = 0;
    for (int round = 0; round < 10'000; ++round) {
        Environment environment;
        for (const std::string& name : names) {
            if (random() % 3 != 0) continue;
            std::string value = values[random() % values.size()];
            if (random() % 20 == 0) value += static_cast<char>(random());
            environment[name] = value;
        }
        HostFlags flags;
        if (random() % 4 == 0) flags.nnodes = values[random() % values.size()];
        if (random() % 4 == 0) flags.rdzv_endpoint = values[random() % values.size()];
        try {
            const auto job = find_job(environment, flags);
            if (!job) continue;
            ++jobs;
            EXPECT_GE(job->max_hosts, 2);
            EXPECT_LE(job->min_hosts, job->max_hosts);
            EXPECT_LT(job->node_rank.value_or(0), job->max_hosts);
            EXPECT_FALSE(job->head.empty());
            EXPECT_GT(job->port, 0);
            EXPECT_FALSE(job->line.empty());
        } catch (const UsageError&) {
        }
    }
    EXPECT_GT(jobs, 20U) << "no environment was a job";
}

}  // namespace
}  // namespace ddp::launcher
