// One convention after the other; the first that claims this process wins. Facts about what each
// launcher sets (and sets misleadingly) are in the fixtures of tests/contract.
#include <ddp/worker_env.hpp>

#include "base/net/address.hpp"

#include <ddp/error.hpp>

#include <charconv>
#include <cstdlib>
#include <initializer_list>
#include <limits>

namespace ddp {
namespace {

class Reader {
public:
    explicit Reader(const EnvLookup& lookup) : lookup_(lookup) {}

    bool has(std::string_view name) const { return lookup_(name).has_value(); }

    int number(std::string_view name, int low, int high) const {
        const std::optional<std::string> text = lookup_(name);
        if (!text) {
            throw UsageError("environment: " + std::string(name) +
                             " is not set, but other variables of its launcher are; set it, or "
                             "start the program with ddp-launch");
        }
        int value = 0;
        const char* const end = text->data() + text->size();
        const auto parsed = std::from_chars(text->data(), end, value);
        if (parsed.ec != std::errc{} || parsed.ptr != end || value < low || value > high) {
            throw UsageError("environment: " + std::string(name) + "=" + *text +
                             " is not a number from " + std::to_string(low) + " to " +
                             std::to_string(high));
        }
        return value;
    }
    int number_or(std::string_view name, int low, int high, int otherwise) const {
        return has(name) ? number(name, low, high) : otherwise;
    }
    std::optional<std::string> text(std::string_view name) const { return lookup_(name); }

private:
    const EnvLookup& lookup_;
};

constexpr int no_limit = std::numeric_limits<int>::max();

// The four names by which a launcher tells a process its rank.
struct EnvConvention {
    WorkerEnvSource source;
    const char* rank;
    const char* world_size;
    const char* local_rank;
    const char* local_world_size;  // nullptr: it does not tell
};

constexpr EnvConvention torchrun{WorkerEnvSource::torchrun, "RANK", "WORLD_SIZE", "LOCAL_RANK",
                                 "LOCAL_WORLD_SIZE"};
constexpr EnvConvention open_mpi{WorkerEnvSource::open_mpi, "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                                 "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr EnvConvention pmi{WorkerEnvSource::pmi, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                            "MPI_LOCALNRANKS"};
constexpr EnvConvention slurm{WorkerEnvSource::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                              "SLURM_LOCALID", nullptr};

int at_least_one(int value) { return value < 1 ? 1 : value; }

WorkerEnv read(const Reader& env, const EnvConvention& convention) {
    WorkerEnv me;
    me.source = convention.source;
    me.world_size = env.number(convention.world_size, 1, no_limit);
    me.rank = env.number(convention.rank, 0, no_limit);
    if (me.rank >= me.world_size) {
        throw UsageError(
            "environment: " + std::string(convention.rank) + "=" + std::to_string(me.rank) +
            " is outside the world: " + convention.world_size + "=" +
            std::to_string(me.world_size) + " has ranks 0 to " + std::to_string(me.world_size - 1));
    }
    // Who does not say where its ranks are is taken to have them all on this host.
    const bool tells_local = env.has(convention.local_rank);
    me.local_rank = tells_local
                        ? env.number(convention.local_rank, 0, at_least_one(me.world_size) - 1)
                        : me.rank;
    const int otherwise =
        tells_local && convention.local_world_size == nullptr ? me.local_rank + 1 : me.world_size;
    me.local_world_size = convention.local_world_size == nullptr
                              ? otherwise
                              : env.number_or(convention.local_world_size, me.local_rank + 1,
                                              me.world_size, otherwise);
    return me;
}

// "2(x2),1": the tasks of each node of a step in turn; this node's, or nothing when it does not
// parse.
std::optional<int> slurm_tasks_on_node(std::string_view list, int node) {
    while (!list.empty()) {
        const std::string_view item = list.substr(0, list.find(','));
        list.remove_prefix(item.size() == list.size() ? item.size() : item.size() + 1);
        int tasks = 0;
        int repeat = 1;
        const char* const end = item.data() + item.size();
        const auto parsed = std::from_chars(item.data(), end, tasks);
        if (parsed.ec != std::errc{}) return std::nullopt;
        if (parsed.ptr != end) {
            if (end - parsed.ptr < 4 || parsed.ptr[0] != '(' || parsed.ptr[1] != 'x' ||
                std::from_chars(parsed.ptr + 2, end, repeat).ptr != end - 1) {
                return std::nullopt;
            }
        }
        if (node < repeat) return tasks;
        node -= repeat;
    }
    return std::nullopt;
}

WorkerEnv read_slurm(const Reader& env) {
    WorkerEnv me = read(env, slurm);
    const std::optional<std::string> list = env.text("SLURM_STEP_TASKS_PER_NODE");
    const int node = env.number_or("SLURM_NODEID", 0, no_limit, 0);
    if (const auto tasks = list ? slurm_tasks_on_node(*list, node) : std::nullopt) {
        me.local_world_size = *tasks;
    }
    return me;
}

const char* launcher_name(WorkerEnvSource source) {
    switch (source) {
        case WorkerEnvSource::torchrun:
            return "the environment (WORLD_SIZE)";
        case WorkerEnvSource::open_mpi:
            return "Open MPI's mpirun";
        case WorkerEnvSource::pmi:
            return "an MPI launcher (PMI_SIZE)";
        case WorkerEnvSource::slurm:
            return "srun";
        case WorkerEnvSource::none:
            return "nobody";
    }
    return "nobody";
}

void read_master(const Reader& env, WorkerEnv& me) {
    const std::optional<std::string> host = env.text("MASTER_ADDR");
    const bool has_port = env.has("MASTER_PORT");
    if (host && !host->empty() && has_port) {
        me.master = MasterAddress{base::without_brackets(*host),
                                  static_cast<std::uint16_t>(env.number("MASTER_PORT", 1, 65535))};
    } else if (me.world_size > 1) {
        throw UsageError("environment: " + std::string(launcher_name(me.source)) + " started " +
                         std::to_string(me.world_size) + " processes, but " +
                         (host && !host->empty() ? "MASTER_PORT" : "MASTER_ADDR") +
                         " is not set, so they cannot meet; set MASTER_ADDR to rank 0's host and "
                         "MASTER_PORT to a free port there, or start the program with ddp-launch");
    }
}

std::string name_of_step(const Reader& env) {
    return "slurm " + env.text("SLURM_JOB_ID").value_or("") + "." +
           env.text("SLURM_STEP_ID").value_or("");
}

// Of a step's script that gives its tasks torchrun's names. Another world, such as one of those
// that a shell of one task starts, may have others of its size beside it in the step.
bool is_whole_step(const Reader& env, int world_size) {
    return world_size > 1 && env.has("SLURM_STEP_ID") &&
           env.text("SLURM_STEP_NUM_TASKS") == std::to_string(world_size);
}

std::string name_of_job(const Reader& env, const WorkerEnv& me) {
    std::string run_id = env.text("TORCHELASTIC_RUN_ID").value_or("");
    if (!run_id.empty() && run_id != "none") return run_id;  // torchrun's default for all jobs
    switch (me.source) {
        case WorkerEnvSource::slurm:
            return name_of_step(env);
        case WorkerEnvSource::open_mpi:
        case WorkerEnvSource::pmi:
            if (const auto name = env.text("PMIX_NAMESPACE")) return "pmix " + *name;
            break;
        case WorkerEnvSource::torchrun:
            if (is_whole_step(env, me.world_size)) return name_of_step(env);
            break;
        case WorkerEnvSource::none:
            break;
    }
    return {};
}

// Where it does not, all are taken to be on this host, which may be wrong.
bool tells_local_world(const Reader& env, WorkerEnvSource source) {
    switch (source) {
        case WorkerEnvSource::torchrun:
            return env.has(torchrun.local_world_size);
        case WorkerEnvSource::open_mpi:
            return env.has(open_mpi.local_world_size);
        case WorkerEnvSource::pmi:
            return env.has(pmi.local_world_size);
        case WorkerEnvSource::slurm:
            return env.has("SLURM_STEP_TASKS_PER_NODE");
        case WorkerEnvSource::none:
            break;
    }
    return false;
}

}  // namespace

WorkerEnv worker_env(const EnvLookup& lookup) {
    const Reader env(lookup);
    WorkerEnv me;
    if (env.has("RANK") || env.has("WORLD_SIZE")) {
        me = read(env, torchrun);
    } else if (env.has(open_mpi.rank)) {
        me = read(env, open_mpi);
    } else if (env.has(pmi.rank)) {
        me = read(env, pmi);
    } else if (env.has("SLURM_STEP_ID") && env.has(slurm.rank)) {
        me = read_slurm(env);
    }
    read_master(env, me);
    me.agent_store = env.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    me.job = name_of_job(env, me);
    me.on_one_host = me.local_world_size == me.world_size && tells_local_world(env, me.source);
    me.attempt = env.number_or("TORCHELASTIC_RESTART_COUNT", 0, no_limit, 0);
    me.round = env.number_or("DDP_ROUND", 0, no_limit, me.attempt);
    return me;
}

WorkerEnv worker_env() {
    return worker_env([](std::string_view name) -> std::optional<std::string> {
        const char* value = std::getenv(std::string(name).c_str());
        if (value == nullptr) return std::nullopt;
        return value;
    });
}

}  // namespace ddp
