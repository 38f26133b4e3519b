// The table itself. A name that both the job and the inherited environment have appears once.
#include "launcher/plan/worker_variables.hpp"

#include "base/net/address.hpp"
#include "base/random.hpp"
#include "contract/injection.hpp"
#include "launcher/process/exit_status.hpp"

#include <ddp/error.hpp>

#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

using Table = std::map<std::string, std::string, std::less<>>;

Table job_table(const JobVariables& job, int local_rank) {
    const HostPlace& place = job.attempt.place;
    Table table{
        {"RANK", std::to_string(place.first_rank + local_rank)},
        {"WORLD_SIZE", std::to_string(place.world_size)},
        {"LOCAL_RANK", std::to_string(local_rank)},
        {"LOCAL_WORLD_SIZE", std::to_string(job.workers)},
        {"GROUP_RANK", std::to_string(place.group_rank)},
        {"GROUP_WORLD_SIZE", std::to_string(place.group_world_size)},
        {"ROLE_RANK", std::to_string(place.first_role_rank + local_rank)},
        {"ROLE_WORLD_SIZE", std::to_string(place.role_world_size)},
        {"ROLE_NAME", job.role},
        {"MASTER_ADDR", job.master_addr},
        {"MASTER_PORT", std::to_string(job.master_port)},
        {"TORCHELASTIC_RESTART_COUNT", std::to_string(job.attempt.restart_count)},
        {"TORCHELASTIC_MAX_RESTARTS", std::to_string(job.max_restarts)},
        {"TORCHELASTIC_RUN_ID", job.run_id},
        {"TORCHELASTIC_USE_AGENT_STORE", job.agent_store ? "True" : "False"},
        {"TORCHELASTIC_ERROR_FILE", job.attempt.error_files.of(local_rank)},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", job.signals_to_handle},
        {"DDP_CONTROL_FD", job.attempt.control},
        {"DDP_CONTROL_PAGE", std::to_string(local_rank)},
    };
    if (job.agent_store) {
        table["DDP_AGENT_STORE"] = base::host_and_port(job.master_addr, job.master_port);
        // Also when it is empty: the name of an outer job's would lead to that store.
        table["DDP_AGENT_STORE_SOCKET"] = job.attempt.store_socket;
    }
    if (job.any_store_peers) table["DDP_STORE_PEERS"] = "any";
    if (!place.address.empty()) table["DDP_HOST_ADDR"] = place.address;
    if (place.round > 0) table["DDP_ROUND"] = std::to_string(place.round);
    if (job.attempt.held_port >= 0 && local_rank == 0) {
        table["DDP_STORE_FD"] =
            std::to_string(job.attempt.held_port) + ":" + std::to_string(job.master_port);
    }
    if (!job.one_gpu_each.empty()) {
        table["LOCAL_RANK"] = "0";
        table["CUDA_VISIBLE_DEVICES"] = job.one_gpu_each.at(static_cast<std::size_t>(local_rank));
    }
    if (job.oversubscribe_gpu) table["DDP_OVERSUBSCRIBE_GPU"] = "1";
    if (job.break_on_failure) table["DDP_BREAK_ON_FAILURE"] = "1";
    if (!job.inject.empty()) table[contract::injection_variable] = job.inject;
    return table;
}

// NCCL refuses two ranks on a GPU of one host, so each rank is a host of its own: nothing but the
// network is left between them. Rings of simple messages are what then works at all.
constexpr std::array<std::pair<const char*, const char*>, 11> nccl_on_a_shared_gpu{{
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
    {"NCCL_MAX_CTAS", "2"},
}};

bool is_set(std::span<const std::string> environment, std::string_view name) {
    for (const std::string& entry : environment) {
        if (name_of(entry) == name) return true;
    }
    return false;
}

void let_nccl_share_gpus(Table& table, const JobVariables& job, int local_rank,
                         std::span<const std::string> inherited) {
    for (const auto& [name, value] : nccl_on_a_shared_gpu) {
        if (!is_set(inherited, name)) table[name] = value;
    }
    if (!is_set(inherited, "NCCL_HOSTID")) {
        table["NCCL_HOSTID"] = job.run_id + "-r" + std::to_string(local_rank);
    }
}

}  // namespace

std::vector<std::string> worker_environment(const JobVariables& job, int local_rank,
                                            std::span<const std::string> inherited) {
    Table table = job_table(job, local_rank);
    if (!is_set(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING")) {
        table["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1";
    }
    if (limits_threads(job.workers, inherited)) table["OMP_NUM_THREADS"] = "1";
    if (job.oversubscribe_gpu) let_nccl_share_gpus(table, job, local_rank, inherited);
    std::vector<std::string> environment;
    for (const std::string& entry : inherited) {
        const std::string_view name = name_of(entry);
        // Of a job that this one is part of, and the launcher's alone.
        const bool is_not_theirs =
            name == "DDP_ROUND" || name == "DDP_HOST_ADDR" || name == "DDP_JOB_TOKEN_FILE";
        if (!is_not_theirs && !table.contains(name)) environment.push_back(entry);
    }
    for (const auto& [name, value] : table) environment.push_back(name + "=" + value);
    return environment;
}

HostPlace place_of_only_host(int workers) {
    return {.world_size = workers, .role_world_size = workers};
}

bool limits_threads(int workers, std::span<const std::string> inherited) {
    return workers > 1 && !is_set(inherited, "OMP_NUM_THREADS");
}

std::vector<std::string> one_gpu_each(std::vector<std::string> visible, int workers,
                                      const EnvLookup& environment) {
    const auto given = environment("CUDA_VISIBLE_DEVICES");
    if (visible.empty() && !given) {
        for (int rank = 0; rank < workers; ++rank) visible.push_back(std::to_string(rank));
    }
    const auto wanted = static_cast<std::size_t>(workers);
    if (visible.size() < wanted) {
        throw UsageError("--virtual-local-rank: " + std::to_string(workers) +
                         " workers need as many visible GPUs, and there are " +
                         std::to_string(visible.size()) +
                         (given ? " (CUDA_VISIBLE_DEVICES=" + *given + ")" : ""));
    }
    visible.resize(wanted);
    return visible;
}

std::string names_of(std::span<const int> signals) {
    std::string names;
    for (const int signal : signals) names += (names.empty() ? "" : ",") + signal_name(signal);
    return names;
}

std::string make_run_id() {
    std::string id;
    for (int word = 0; word < 2; ++word) {
        std::array<char, 16> text;
        char* const end = text.data() + text.size();
        char* const stop = std::to_chars(text.data(), end, base::random_bits(), 16).ptr;
        id.append(static_cast<std::size_t>(end - stop), '0').append(text.data(), stop);
    }
    return id;
}

std::vector<std::string> own_environment() {
    std::vector<std::string> environment;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        environment.emplace_back(*entry);
    }
    return environment;
}

std::optional<std::string> from_environment(std::string_view name) {
    const char* value = std::getenv(std::string(name).c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace ddp::launcher
