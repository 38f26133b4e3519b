// torchrun's table, and what wins over what.
#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <map>
#include <vector>

namespace ddp::launcher {
namespace {

using Table = std::map<std::string, std::string>;

const JobVariables job{.workers = 3,
                       .master_addr = "127.0.0.1",
                       .master_port = 29400,
                       .agent_store = true,
                       .run_id = "cafe",
                       .attempt = {.error_files = error_files_in("/tmp/errors"),
                                   .control = "5:abc",
                                   .place = place_of_only_host(3)}};

Table table_of(const JobVariables& variables, int local_rank,
               const std::vector<std::string>& inherited) {
    Table table;
    for (const std::string& entry : worker_environment(variables, local_rank, inherited)) {
        const std::size_t equals = entry.find('=');
        const bool is_new = table.emplace(entry.substr(0, equals), entry.substr(equals + 1)).second;
        EXPECT_TRUE(is_new) << "twice: " << entry;
    }
    return table;
}

TEST(WorkerVariables, TheTableIsTorchruns) {
    const Table expected{{"RANK", "2"},
                         {"WORLD_SIZE", "3"},
                         {"LOCAL_RANK", "2"},
                         {"LOCAL_WORLD_SIZE", "3"},
                         {"GROUP_RANK", "0"},
                         {"GROUP_WORLD_SIZE", "1"},
                         {"ROLE_RANK", "2"},
                         {"ROLE_WORLD_SIZE", "3"},
                         {"ROLE_NAME", "default"},
                         {"MASTER_ADDR", "127.0.0.1"},
                         {"MASTER_PORT", "29400"},
                         {"TORCHELASTIC_RESTART_COUNT", "0"},
                         {"TORCHELASTIC_MAX_RESTARTS", "0"},
                         {"TORCHELASTIC_RUN_ID", "cafe"},
                         {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                         {"TORCHELASTIC_ERROR_FILE", "/tmp/errors/rank_2.json"},
                         {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
                         {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
                         {"OMP_NUM_THREADS", "1"},
                         {"DDP_AGENT_STORE", "127.0.0.1:29400"},
                         {"DDP_AGENT_STORE_SOCKET", ""},
                         {"DDP_CONTROL_FD", "5:abc"},
                         {"DDP_CONTROL_PAGE", "2"}};
    EXPECT_EQ(table_of(job, 2, {}), expected);
}

TEST(WorkerVariables, OfSeveralHostsEachHasItsPlace) {
    JobVariables on_second = job;
    on_second.attempt.place = {.group_rank = 1,
                               .group_world_size = 3,
                               .first_rank = 8,
                               .world_size = 20,
                               .first_role_rank = 4,
                               .role_world_size = 12,
                               .address = "10.77.0.2",
                               .round = 5};
    on_second.attempt.restart_count = 2;
    const Table table = table_of(on_second, 2, {"DDP_ROUND=9", "DDP_HOST_ADDR=outer"});
    for (const auto& [name, value] : Table{{"RANK", "10"},
                                           {"WORLD_SIZE", "20"},
                                           {"LOCAL_RANK", "2"},
                                           {"LOCAL_WORLD_SIZE", "3"},
                                           {"GROUP_RANK", "1"},
                                           {"GROUP_WORLD_SIZE", "3"},
                                           {"ROLE_RANK", "6"},
                                           {"ROLE_WORLD_SIZE", "12"},
                                           {"DDP_HOST_ADDR", "10.77.0.2"},
                                           {"DDP_ROUND", "5"},
                                           {"TORCHELASTIC_RESTART_COUNT", "2"}}) {
        EXPECT_EQ(table.at(name), value) << name;
    }
}

TEST(WorkerVariables, AJobOfOneHostInsideAnotherHasNoneOfItsPlace) {
    const Table table = table_of(job, 0, {"DDP_ROUND=9", "DDP_HOST_ADDR=10.77.0.2"});
    EXPECT_FALSE(table.contains("DDP_ROUND"));
    EXPECT_FALSE(table.contains("DDP_HOST_ADDR"));
}

TEST(WorkerVariables, HaveNothingOfTheJobsToken) {
    EXPECT_FALSE(table_of(job, 0, {"DDP_JOB_TOKEN_FILE=/t"}).contains("DDP_JOB_TOKEN_FILE"));
}

TEST(WorkerVariables, TheStoresNameIsThereWhenItHasOne) {
    JobVariables named = job;
    named.attempt.store_socket = "ddp-store-1";
    EXPECT_EQ(table_of(named, 0, {}).at("DDP_AGENT_STORE_SOCKET"), "ddp-store-1");
    const Table inner = table_of(job, 0, {"DDP_AGENT_STORE_SOCKET=ddp-store-of-an-outer-job"});
    EXPECT_EQ(inner.at("DDP_AGENT_STORE_SOCKET"), "");
    named.agent_store = false;
    named.attempt.store_socket.clear();
    EXPECT_FALSE(table_of(named, 0, {}).contains("DDP_AGENT_STORE_SOCKET"));
}

TEST(WorkerVariables, InheritedVariablesPassAndOursWin) {
    const Table table = table_of(job, 0,
                                 {"HOME=/root", "RANK=17", "EMPTY=", "OMPI_COMM_WORLD_RANK=4",
                                  "DDP_CONTROL_FD=9:outer", "DDP_CONTROL_PAGE=7", "TEXT=a=b"});
    EXPECT_EQ(table.at("HOME"), "/root");
    EXPECT_EQ(table.at("EMPTY"), "");
    EXPECT_EQ(table.at("TEXT"), "a=b");
    EXPECT_EQ(table.at("OMPI_COMM_WORLD_RANK"), "4");
    EXPECT_EQ(table.at("RANK"), "0");
    EXPECT_EQ(table.at("DDP_CONTROL_FD"), "5:abc");
    EXPECT_EQ(table.at("DDP_CONTROL_PAGE"), "0");
}

TEST(WorkerVariables, TheLaunchersThreadsAndNcclSettingsAreKept) {
    const Table table =
        table_of(job, 0, {"OMP_NUM_THREADS=8", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"});
    EXPECT_EQ(table.at("OMP_NUM_THREADS"), "8");
    EXPECT_EQ(table.at("TORCH_NCCL_ASYNC_ERROR_HANDLING"), "3");
}

TEST(WorkerVariables, OnASharedGpuNcclTakesEachRankForAHost) {
    Table expected = table_of(job, 2, {});
    expected.insert({{"DDP_OVERSUBSCRIBE_GPU", "1"},
                     {"NCCL_HOSTID", "cafe-r2"},
                     {"NCCL_NET", "Socket"},
                     {"NCCL_IB_DISABLE", "1"},
                     {"NCCL_SOCKET_IFNAME", "lo"},
                     {"NCCL_P2P_DISABLE", "1"},
                     {"NCCL_SHM_DISABLE", "1"},
                     {"NCCL_NVLS_ENABLE", "0"},
                     {"NCCL_MNNVL_ENABLE", "0"},
                     {"NCCL_RAS_ENABLE", "0"},
                     {"NCCL_ALGO", "Ring"},
                     {"NCCL_PROTO", "Simple"},
                     {"NCCL_MAX_CTAS", "2"}});
    JobVariables shared = job;
    shared.oversubscribe_gpu = true;
    EXPECT_EQ(table_of(shared, 2, {}), expected);
}

TEST(WorkerVariables, OnASharedGpuTheLaunchersNcclSettingsAreKept) {
    JobVariables shared = job;
    shared.oversubscribe_gpu = true;
    const Table table = table_of(
        shared, 1, {"NCCL_HOSTID=mine", "NCCL_PROTO=LL", "NCCL_NET=", "DDP_OVERSUBSCRIBE_GPU=0"});
    EXPECT_EQ(table.at("NCCL_HOSTID"), "mine");
    EXPECT_EQ(table.at("NCCL_PROTO"), "LL");
    EXPECT_EQ(table.at("NCCL_NET"), "");
    EXPECT_EQ(table.at("NCCL_ALGO"), "Ring");
    EXPECT_EQ(table.at("DDP_OVERSUBSCRIBE_GPU"), "1");
}

TEST(WorkerVariables, ASingleWorkerMayUseAllThreads) {
    JobVariables alone = job;
    alone.workers = 1;
    EXPECT_FALSE(table_of(alone, 0, {}).contains("OMP_NUM_THREADS"));
}

TEST(WorkerVariables, RoleRestartsAndSignalsAreTheJobs) {
    JobVariables third = job;
    third.role = "trainer";
    third.attempt.restart_count = 2;
    third.max_restarts = 5;
    third.signals_to_handle = names_of(std::vector<int>{SIGTERM, SIGUSR1});
    const Table table = table_of(third, 1, {"ROLE_NAME=outer"});
    EXPECT_EQ(table.at("ROLE_NAME"), "trainer");
    EXPECT_EQ(table.at("TORCHELASTIC_RESTART_COUNT"), "2");
    EXPECT_EQ(table.at("TORCHELASTIC_MAX_RESTARTS"), "5");
    EXPECT_EQ(table.at("TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGTERM,SIGUSR1");
}

TEST(WorkerVariables, VisibleDevicesAreTheParentsWordForWord) {
    EXPECT_EQ(table_of(job, 1, {"CUDA_VISIBLE_DEVICES=1, 3"}).at("CUDA_VISIBLE_DEVICES"), "1, 3");
    EXPECT_EQ(table_of(job, 1, {"CUDA_VISIBLE_DEVICES="}).at("CUDA_VISIBLE_DEVICES"), "");
    EXPECT_FALSE(table_of(job, 1, {}).contains("CUDA_VISIBLE_DEVICES"));
}

TEST(WorkerVariables, AVirtualLocalRankIsZeroWithOneDevice) {
    JobVariables apart = job;
    apart.one_gpu_each = {"1", "3", "GPU-a"};
    const Table table = table_of(apart, 2, {"CUDA_VISIBLE_DEVICES=1,3,GPU-a"});
    EXPECT_EQ(table.at("LOCAL_RANK"), "0");
    EXPECT_EQ(table.at("RANK"), "2");
    EXPECT_EQ(table.at("LOCAL_WORLD_SIZE"), "3");
    EXPECT_EQ(table.at("CUDA_VISIBLE_DEVICES"), "GPU-a");
}

TEST(WorkerVariables, OneGpuEachTakesTheFirstAndRefusesTooFew) {
    using List = std::vector<std::string>;
    const auto none = [](std::string_view) { return std::nullopt; };
    const auto given = [](std::string_view) { return std::optional<std::string>("1,3"); };
    EXPECT_EQ(one_gpu_each({"1", "3"}, 2, given), (List{"1", "3"}));
    EXPECT_EQ(one_gpu_each({"0", "1", "2"}, 2, none), (List{"0", "1"}));
    EXPECT_EQ(one_gpu_each({}, 2, none), (List{"0", "1"}));
    EXPECT_THROW(one_gpu_each({"1", "3"}, 3, given), UsageError);
    EXPECT_THROW(one_gpu_each({"0"}, 2, none), UsageError);
    EXPECT_THROW(one_gpu_each({}, 1, given), UsageError);
}

TEST(WorkerVariables, WithoutTheAgentsStoreRankZeroServes) {
    JobVariables own_store = job;
    own_store.agent_store = false;
    EXPECT_EQ(table_of(own_store, 0, {}).at("TORCHELASTIC_USE_AGENT_STORE"), "False");
}

TEST(WorkerVariables, RunIdsAreHexDigitsAndDiffer) {
    const std::string id = make_run_id();
    EXPECT_EQ(id.size(), 32U);
    EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
    EXPECT_NE(id, make_run_id());
}

}  // namespace
}  // namespace ddp::launcher
