// The environment of a worker: torchrun's table, so that programs written for it run unchanged.
// Pure: from the job and the launcher's own environment to the list that is handed to exec.
//
//   RANK LOCAL_RANK ROLE_RANK                      the worker's number: of all, on this host, of
//                                                  all of its role
//   WORLD_SIZE LOCAL_WORLD_SIZE ROLE_WORLD_SIZE    how many there are of each
//   GROUP_RANK GROUP_WORLD_SIZE ROLE_NAME          the host's number, the number of hosts, --role
//   MASTER_ADDR MASTER_PORT                        where the store is
//   DDP_HOST_ADDR                                  where other hosts reach this one; of several
//   DDP_ROUND                                      which start of the workers this is: 1, 2, ...;
//                                                  of several hosts
//   TORCHELASTIC_RESTART_COUNT                     0, then 1 more with each restart
//   TORCHELASTIC_MAX_RESTARTS                      --max-restarts
//   TORCHELASTIC_RUN_ID                            --rdzv-id, else 32 random hex digits
//   TORCHELASTIC_USE_AGENT_STORE                   True: all are clients; False: rank 0 serves
//   TORCHELASTIC_ERROR_FILE                        where the worker says why it failed
//   TORCHELASTIC_SIGNALS_TO_HANDLE                 --signals-to-handle
//   TORCH_NCCL_ASYNC_ERROR_HANDLING                the launcher's, else 1
//   OMP_NUM_THREADS                                the launcher's, else 1 when N > 1
//   CUDA_VISIBLE_DEVICES                           the launcher's
//   DDP_AGENT_STORE                                MASTER_ADDR:MASTER_PORT, if the agent serves
//   DDP_STORE_FD                                   for rank 0, when the port is held for it:
//                                                  <fd>:<port>
//   DDP_AGENT_STORE_SOCKET                         the name of the agent's local socket, on the
//                                                  store's host
//   DDP_STORE_PEERS                                any, with --store-peers=any
//   DDP_BREAK_ON_FAILURE                           1, with --break-on-failure
//   DDP_INJECT                                     --inject
//   DDP_CONTROL_FD, DDP_CONTROL_PAGE               see contract/control_page.hpp
//
// With --virtual-local-rank LOCAL_RANK is 0 and CUDA_VISIBLE_DEVICES the worker's own GPU alone.
// With --oversubscribe-gpu there are DDP_OVERSUBSCRIBE_GPU=1 and, where the launcher has no value,
// the variables with which NCCL takes two ranks on a GPU for two hosts.
#pragma once

#include "launcher/options/options.hpp"
#include "launcher/plan/error_folder.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// A host's place among those of the job, which may change with each start of the workers.
struct HostPlace {
    int group_rank = 0;
    int group_world_size = 1;
    int first_rank = 0;
    int world_size = 1;
    int first_role_rank = 0;  // the same among ranks of its role
    int role_world_size = 1;
    std::string address = {};  // where other hosts reach it; empty: there are none
    int round = 0;             // 1, 2, ...; 0: a job of one host
};

HostPlace place_of_only_host(int workers);

// What the agent alone knows, of one attempt.
struct AttemptVariables {
    int held_port = -1;          // rank 0's descriptor that holds the port; -1: none
    std::string store_socket{};  // the name of the store's local socket; empty: it has none
    ErrorFiles error_files{};
    std::string control{};  // the value of DDP_CONTROL_FD
    int restart_count = 0;
    HostPlace place{};
};

// Of all workers of an attempt: the plan's, but for `attempt` and a port that the agent chooses.
struct JobVariables {
    int workers = 1;  // on this host
    std::string master_addr;
    std::uint16_t master_port = 0;  // 0: the agent chooses one
    bool agent_store = true;
    bool any_store_peers = false;
    std::string run_id;
    std::string role = "default";
    int max_restarts = 0;
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    std::vector<std::string> one_gpu_each = {};  // by local rank; not empty: --virtual-local-rank
    bool oversubscribe_gpu = false;
    bool break_on_failure = false;
    std::string inject = {};  // of --inject; empty: nothing
    AttemptVariables attempt = {};
};

// The job's variables take the place of the inherited ones of the same name; all others pass.
std::vector<std::string> worker_environment(const JobVariables& job, int local_rank,
                                            std::span<const std::string> inherited);

// Whether workers get OMP_NUM_THREADS=1 from us.
bool limits_threads(int workers, std::span<const std::string> inherited);

// The GPU of each worker. Throws UsageError when the visible ones are too few; on a host without
// any, and without CUDA_VISIBLE_DEVICES, workers get their own number, as from torchrun.
std::vector<std::string> one_gpu_each(std::vector<std::string> visible, int workers,
                                      const EnvLookup& environment);

// "SIGTERM,SIGINT"
std::string names_of(std::span<const int> signals);

// 32 random hex digits. Throws SystemError.
std::string make_run_id();

// This process's environment, "NAME=value"; and one variable of it.
std::vector<std::string> own_environment();
std::optional<std::string> from_environment(std::string_view name);

}  // namespace ddp::launcher
