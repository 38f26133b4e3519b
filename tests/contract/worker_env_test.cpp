// worker_env as a table: what each launcher sets (as Open MPI 4.1.4, MPICH 4.0.2 and Slurm 22.05 of
// Debian 12 were seen to set it) and what is made of it.
#include <ddp/worker_env.hpp>

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace {

using ddp::WorkerEnv;
using ddp::WorkerEnvSource;
using Environment = std::map<std::string, std::string, std::less<>>;

WorkerEnv read(const Environment& environment) {
    return ddp::worker_env([&](std::string_view name) -> std::optional<std::string> {
        const auto found = environment.find(name);
        if (found == environment.end()) return std::nullopt;
        return found->second;
    });
}

Environment with_master(Environment environment) {
    environment["MASTER_ADDR"] = "127.0.0.1";
    environment["MASTER_PORT"] = "29500";
    return environment;
}

void expect_refused(const Environment& environment, const std::string& part_of_message) {
    try {
        read(environment);
        FAIL() << "accepted; expected: " << part_of_message;
    } catch (const ddp::UsageError& error) {
        EXPECT_THAT(error.what(), ::testing::HasSubstr(part_of_message));
    }
}

const Environment torchrun = with_master({{"RANK", "3"},
                                          {"WORLD_SIZE", "4"},
                                          {"LOCAL_RANK", "1"},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"TORCHELASTIC_RESTART_COUNT", "2"}});
const Environment open_mpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},       {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_COMM_WORLD_NODE_RANK", "1"},  {"PMIX_RANK", "1"}};
const Environment mpich = {{"PMI_RANK", "1"},
                           {"PMI_SIZE", "2"},
                           {"MPI_LOCALRANKID", "1"},
                           {"MPI_LOCALNRANKS", "2"},
                           {"PMI_FD", "8"}};
const Environment slurm_step = {{"SLURM_STEP_ID", "0"},
                                {"SLURM_PROCID", "1"},
                                {"SLURM_NTASKS", "5"},
                                {"SLURM_STEP_NUM_TASKS", "2"},
                                {"SLURM_LOCALID", "0"},
                                {"SLURM_NODEID", "1"},
                                {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"}};

TEST(WorkerEnv, IsAWorldOfOneWhenNobodyClaimsMore) {
    const WorkerEnv me = read({});
    EXPECT_EQ(me.rank, 0);
    EXPECT_EQ(me.world_size, 1);
    EXPECT_EQ(me.local_world_size, 1);
    EXPECT_FALSE(me.master);
    EXPECT_EQ(me.source, WorkerEnvSource::none);
}

TEST(WorkerEnv, ReadsTorchrunsNames) {
    const WorkerEnv me = read(torchrun);
    EXPECT_EQ(me.rank, 3);
    EXPECT_EQ(me.world_size, 4);
    EXPECT_EQ(me.local_rank, 1);
    EXPECT_EQ(me.local_world_size, 2);
    EXPECT_EQ(me.master->host, "127.0.0.1");
    EXPECT_EQ(me.master->port, 29500);
    EXPECT_TRUE(me.agent_store);
    EXPECT_EQ(me.attempt, 2);
    EXPECT_EQ(me.round, 2);
    EXPECT_EQ(me.source, WorkerEnvSource::torchrun);
}

TEST(WorkerEnv, ARoundsNumberTakesThePlaceOfTheRestarts) {
    Environment environment = torchrun;
    environment["DDP_ROUND"] = "7";
    EXPECT_EQ(read(environment).round, 7);
    environment["DDP_ROUND"] = "0";
    EXPECT_EQ(read(environment).round, 0) << "0 is a number as any other";
    environment["DDP_ROUND"] = "2147483647";
    EXPECT_EQ(read(environment).round, 2147483647);
    environment.erase("TORCHELASTIC_RESTART_COUNT");
    environment["DDP_ROUND"] = "1";
    EXPECT_EQ(read(environment).round, 1);
    EXPECT_EQ(read({{"DDP_ROUND", "3"}}).round, 3) << "also of a world of one";
    for (const char* none : {"-1", "", "x", "1 ", "9223372036854775808"}) {
        environment["DDP_ROUND"] = none;
        expect_refused(environment, std::string("DDP_ROUND=") + none);
    }
}

TEST(WorkerEnv, AMastersIpv6AddressMayBeInBrackets) {
    Environment environment = torchrun;
    for (const char* host : {"fe80::1%eth0", "[fe80::1%eth0]"}) {
        environment["MASTER_ADDR"] = host;
        EXPECT_EQ(read(environment).master->host, "fe80::1%eth0");
    }
}

TEST(WorkerEnv, TakesRanksStartedByHandToBeOnOneHost) {
    const WorkerEnv me = read(with_master({{"RANK", "1"}, {"WORLD_SIZE", "2"}}));
    EXPECT_EQ(me.local_rank, 1);
    EXPECT_EQ(me.local_world_size, 2);
    EXPECT_FALSE(me.agent_store);
}

TEST(WorkerEnv, UsesTheAgentsStoreOnlyForExactlyTrue) {
    Environment environment = torchrun;
    for (const char* other : {"False", "true", "1", ""}) {
        environment["TORCHELASTIC_USE_AGENT_STORE"] = other;
        EXPECT_FALSE(read(environment).agent_store) << other;
    }
}

TEST(WorkerEnv, ReadsOpenMpi) {
    const WorkerEnv me = read(with_master(open_mpi));
    EXPECT_EQ(me.rank, 1);
    EXPECT_EQ(me.world_size, 2);
    EXPECT_EQ(me.local_rank, 1);
    EXPECT_EQ(me.source, WorkerEnvSource::open_mpi);
}

TEST(WorkerEnv, ReadsPmi) {
    const WorkerEnv me = read(with_master(mpich));
    EXPECT_EQ(me.rank, 1);
    EXPECT_EQ(me.local_world_size, 2);
    EXPECT_EQ(me.source, WorkerEnvSource::pmi);
}

TEST(WorkerEnv, ReadsASlurmStep) {
    const WorkerEnv me = read(with_master(slurm_step));
    EXPECT_EQ(me.rank, 1);
    EXPECT_EQ(me.world_size, 2);
    EXPECT_EQ(me.local_rank, 0);
    EXPECT_EQ(me.local_world_size, 1);
    EXPECT_EQ(me.source, WorkerEnvSource::slurm);
}

TEST(WorkerEnv, ReadsAnUnevenSlurmStep) {
    Environment environment = with_master(slurm_step);
    environment["SLURM_STEP_NUM_TASKS"] = "5";
    environment["SLURM_STEP_TASKS_PER_NODE"] = "3,1(x2)";
    environment["SLURM_NODEID"] = "0";
    EXPECT_EQ(read(environment).local_world_size, 3);
    environment["SLURM_NODEID"] = "2";
    EXPECT_EQ(read(environment).local_world_size, 1);
}

TEST(WorkerEnv, TakesOneTaskANodeWhereSlurmsListIsNone) {
    Environment environment = with_master(slurm_step);
    for (const char* list : {"", "many", "99999999999", "99999999999(x2)", "2(x", "2(x2"}) {
        environment["SLURM_STEP_TASKS_PER_NODE"] = list;
        EXPECT_EQ(read(environment).local_world_size, 1) << list;
    }
}

TEST(WorkerEnv, DoesNotTakeABatchShellForRankZero) {
    const WorkerEnv me = read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}});
    EXPECT_EQ(me.source, WorkerEnvSource::none);
    EXPECT_EQ(me.world_size, 1);
}

TEST(WorkerEnv, PrefersTorchrunsNamesInsideAnMpiJob) {
    Environment environment = torchrun;
    environment.insert(open_mpi.begin(), open_mpi.end());
    environment.insert(slurm_step.begin(), slurm_step.end());
    EXPECT_EQ(read(environment).source, WorkerEnvSource::torchrun);
}

TEST(WorkerEnv, TheJobsNameIsWhatItsLauncherGaveIt) {
    Environment environment = torchrun;
    EXPECT_EQ(read(environment).job, "");
    environment["TORCHELASTIC_RUN_ID"] = "none";  // torchrun's default, for every job
    EXPECT_EQ(read(environment).job, "");
    environment["TORCHELASTIC_RUN_ID"] = "run 7";
    EXPECT_EQ(read(environment).job, "run 7");
    Environment step = with_master(slurm_step);
    step["SLURM_JOB_ID"] = "12";
    EXPECT_EQ(read(step).job, "slurm 12.0");
    // A step whose script gives its tasks torchrun's names; not one task's shell, whose world is
    // another than the step.
    environment["TORCHELASTIC_RUN_ID"] = "none";
    environment.insert(step.begin(), step.end());
    environment["SLURM_STEP_NUM_TASKS"] = environment["WORLD_SIZE"];
    EXPECT_EQ(read(environment).job, "slurm 12.0");
    environment["SLURM_STEP_NUM_TASKS"] = "1";
    EXPECT_EQ(read(environment).job, "");
    Environment mpi = with_master(open_mpi);
    mpi["PMIX_NAMESPACE"] = "783613953";
    EXPECT_EQ(read(mpi).job, "pmix 783613953");
    EXPECT_EQ(read(with_master(mpich)).job, "");
}

TEST(WorkerEnv, AllRanksAreOnOneHostOnlyWhereTheLauncherSaysSo) {
    EXPECT_FALSE(read(torchrun).on_one_host);
    Environment environment = torchrun;
    environment["LOCAL_WORLD_SIZE"] = "4";
    EXPECT_TRUE(read(environment).on_one_host);
    EXPECT_FALSE(read(with_master({{"RANK", "0"}, {"WORLD_SIZE", "2"}})).on_one_host);
    EXPECT_TRUE(read(with_master(mpich)).on_one_host);
}

TEST(WorkerEnv, RefusesARankOutsideItsWorld) {
    expect_refused(with_master({{"RANK", "9"}, {"WORLD_SIZE", "2"}}), "RANK=9");
    expect_refused(with_master({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "ranks 0 to 1");
}

TEST(WorkerEnv, RefusesWhatIsNoNumber) {
    expect_refused(with_master({{"RANK", "one"}, {"WORLD_SIZE", "2"}}), "RANK=one");
    expect_refused(with_master({{"RANK", "0"}, {"WORLD_SIZE", "0"}}), "WORLD_SIZE=0");
    expect_refused(with_master({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), "RANK=-1");
    expect_refused(with_master({{"RANK", "0"}, {"WORLD_SIZE", "2x"}}), "WORLD_SIZE=2x");
    expect_refused(with_master({{"RANK", ""}, {"WORLD_SIZE", "2"}}), "RANK=");
}

TEST(WorkerEnv, RefusesHalfOfTorchrunsNames) {
    expect_refused(with_master({{"RANK", "0"}}), "WORLD_SIZE is not set");
    expect_refused(with_master({{"WORLD_SIZE", "2"}}), "RANK is not set");
}

TEST(WorkerEnv, RefusesSeveralRanksWithoutAWayToMeet) {
    for (const Environment& environment : {open_mpi, mpich, slurm_step}) {
        expect_refused(environment, "MASTER_ADDR is not set");
    }
    Environment no_port = mpich;
    no_port["MASTER_ADDR"] = "127.0.0.1";
    expect_refused(no_port, "MASTER_PORT is not set");
    expect_refused(open_mpi, "Open MPI's mpirun started 2 processes");
    expect_refused(slurm_step, "srun started 2 processes");
}

TEST(WorkerEnv, AcceptsOneMpiRankWithoutAWayToMeet) {
    EXPECT_EQ(read({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}).world_size, 1);
}

TEST(WorkerEnv, RefusesAPortOutOfRange) {
    Environment environment = torchrun;
    for (const char* port : {"0", "65536", "http"}) {
        environment["MASTER_PORT"] = port;
        expect_refused(environment, "MASTER_PORT=");
    }
}

TEST(WorkerEnv, RefusesALocalRankBeyondItsLocalWorld) {
    Environment environment = torchrun;
    environment["LOCAL_RANK"] = "2";
    expect_refused(environment, "LOCAL_WORLD_SIZE=2");
}

}  // namespace
