// Two drafts are made, one of options and PET_* and one of the scheduler's variables, and joined
// value by value. What the variables are was seen on Slurm 22.05, Open MPI 4.1.4 and MPICH 4.0.2.
#include "launcher/hosts/start/host_env.hpp"

#include "base/net/address.hpp"
#include "base/printable.hpp"
#include "launcher/hosts/start/hostfile.hpp"
#include "launcher/options/endpoint.hpp"
#include "launcher/options/job_step.hpp"
#include "launcher/options/option_values.hpp"

#include <ddp/error.hpp>

#include <array>
#include <charconv>
#include <limits>
#include <sstream>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr Limits any_count{1, std::numeric_limits<int>::max()};
constexpr Limits any_rank{0, std::numeric_limits<int>::max()};
constexpr Limits any_port{0, 65535};

// A value, and the option or variable that it comes from.
template <class T>
struct Found {
    T value;
    std::string from;
};

struct Draft {
    std::optional<Found<NodeRange>> nodes = {};
    std::optional<Found<int>> node_rank = {};
    std::optional<Found<std::string>> head = {};
    std::optional<Found<std::uint16_t>> port = {};
    std::vector<MeetingPlace> successors = {};  // of the head
};

// What a scheduler's variables say.
struct Scheduled : Draft {
    std::string of = {};                  // " of Slurm step 12.0"
    std::vector<std::string> hosts = {};  // by node rank
    int agents = 0;                       // how many it has started; 0: unknown
    // It has started several on a host, or does not tell how many there are: the error, where the
    // options do not say what the job is.
    std::string refusal = {};
    std::string set_head = {};  // how the head is told where it is not known
};

class Variables {
public:
    explicit Variables(const EnvLookup& lookup) : lookup_(lookup) {}

    // An empty variable counts as none, as it does for PET_*.
    std::optional<std::string> text(std::string_view name) const {
        auto value = lookup_(name);
        return value && !value->empty() ? std::move(value) : std::nullopt;
    }
    // Nothing when it is not set. Throws UsageError when it is no such number.
    std::optional<int> number(std::string_view name, Limits limits) const {
        const auto value = text(name);
        if (!value) return std::nullopt;
        return parse_int({"$" + std::string(name), base::printable(*value)}, limits);
    }
    // Of a variable that decides whether there is a job: one that cannot be read does not.
    std::optional<int> count(std::string_view name) const {
        const auto value = text(name);
        int number = 0;
        if (!value) return std::nullopt;
        const char* const end = value->data() + value->size();
        const auto [stop, error] = std::from_chars(value->data(), end, number);
        if (error != std::errc{} || stop != end || number < 1) return std::nullopt;
        return number;
    }

private:
    const EnvLookup& lookup_;
};

std::string variable_is(std::string_view name, int value) {
    return std::string(name) + "=" + std::to_string(value);
}

// As other messages call it: "--nnodes", "$PET_NNODES".
std::string label_of(const std::string& from) { return (from.starts_with('-') ? "" : "$") + from; }

// Options and PET_*.

// An option as the command line has it, else its variable.
std::optional<Found<std::string>> given(const std::optional<std::string>& flag, const char* name,
                                        const char* variable, const Variables& env) {
    if (flag && !flag->empty()) return Found<std::string>{*flag, name};
    if (auto text = env.text(variable)) {
        return Found<std::string>{*std::move(text), variable};
    }
    return std::nullopt;
}

std::uint16_t read_port(const Found<std::string>& text) {
    return static_cast<std::uint16_t>(parse_int({label_of(text.from), text.value}, any_port));
}

// The endpoint takes the place of the master's address and port, as in torchrun.
void read_given_head(const HostFlags& flags, const Variables& env, Draft& draft) {
    const auto endpoint = given(flags.rdzv_endpoint, "--rdzv-endpoint", "PET_RDZV_ENDPOINT", env);
    if (!endpoint) {
        draft.head = given(flags.master_addr, "--master-addr", "PET_MASTER_ADDR", env);
        const auto port = given(flags.master_port, "--master-port", "PET_MASTER_PORT", env);
        if (port) draft.port = {read_port(*port), port->from};
        return;
    }
    const auto backend = given(flags.rdzv_backend, "--rdzv-backend", "PET_RDZV_BACKEND", env);
    const bool is_c10d = backend && backend->value == "c10d";
    const std::string label = label_of(endpoint->from);
    std::istringstream list(endpoint->value);
    for (std::string one; std::getline(list, one, ',');) {
        const GivenValue value{label, one};
        const Endpoint parsed = parse_endpoint(value);
        if (!parsed.port && !is_c10d) {
            fail_value(value, "complete: --rdzv-backend=static needs HOST:PORT there");
        }
        const std::uint16_t port = parsed.port.value_or(default_c10d_port);
        if (draft.head) {
            draft.successors.push_back({parsed.host, port});
        } else {
            draft.head = {parsed.host, endpoint->from};
            draft.port = {port, endpoint->from};
        }
    }
}

Draft read_given(const HostFlags& flags, const Variables& env) {
    Draft draft;
    if (const auto text = given(flags.nnodes, "--nnodes", "PET_NNODES", env)) {
        draft.nodes = {parse_node_range({label_of(text->from), text->value}), text->from};
    }
    if (const auto text = given(flags.node_rank, "--node-rank", "PET_NODE_RANK", env)) {
        draft.node_rank = {parse_int({label_of(text->from), text->value}, any_rank), text->from};
    }
    read_given_head(flags, env, draft);
    return draft;
}

bool is_standalone(const HostFlags& flags, const Variables& env) {
    const auto text = env.text("PET_STANDALONE");
    return flags.standalone || (text && parse_flag({"$PET_STANDALONE", *text}));
}

// Slurm.

// "21001-21002", "21001,21005": the first.
std::optional<Found<std::uint16_t>> slurm_port(const Variables& env) {
    constexpr const char* reserved = "SLURM_STEP_RESV_PORTS";
    if (const auto ports = env.text(reserved)) {
        const std::string first = base::printable(ports->substr(0, ports->find_first_of("-,")));
        const int port = parse_int({"$" + std::string(reserved), first}, {1, 65535});
        return Found<std::uint16_t>{static_cast<std::uint16_t>(port), reserved};
    }
    for (const char* name : {"SLURM_JOB_ID", "SLURM_JOBID"}) {
        const auto job = env.number(name, any_rank);
        if (job) return Found<std::uint16_t>{port_of_slurm_job(*job), "job id"};
    }
    return std::nullopt;
}

std::string slurm_refusal(int nodes, int tasks) {
    const std::string each = tasks % nodes == 0 ? std::to_string(tasks / nodes) : "N";
    return variable_is("SLURM_STEP_NUM_TASKS", tasks) + " of " +
           variable_is("SLURM_STEP_NUM_NODES", nodes) +
           " (srun) says that ddp-launch was started several times on a host, and each would start "
           "all workers there; write srun -N" +
           std::to_string(nodes) + " --ntasks-per-node=1 ddp-launch --nproc-per-node=" + each +
           " PROGRAM, or srun PROGRAM without ddp-launch, or say --standalone if you want several "
           "jobs";
}

void read_slurm_hosts(const Variables& env, int nodes, Scheduled& step) {
    constexpr const char* name = "SLURM_STEP_NODELIST";
    const auto list = env.text(name);
    if (!list) return;
    step.hosts = expand_nodelist({"$" + std::string(name), base::printable(*list)});
    if (step.hosts.size() != static_cast<std::size_t>(nodes)) {
        throw UsageError(std::string("$") + name + " has " + std::to_string(step.hosts.size()) +
                         " hosts, but SLURM_STEP_NUM_NODES is " + std::to_string(nodes) +
                         "; say --nnodes, --node-rank and --master-addr instead");
    }
    step.head = {step.hosts.front(), name};
}

// The batch shell has tasks and nodes but no step; a process of mpirun may see the step in which
// mpirun has started its daemons, of some of the hosts.
bool is_slurm_step(const Variables& env) {
    return env.text("SLURM_STEP_ID") && !env.text("OMPI_COMM_WORLD_SIZE") &&
           !env.text("MPI_LOCALNRANKS");
}

std::optional<Scheduled> read_slurm(const Variables& env) {
    if (!is_slurm_step(env)) return std::nullopt;
    const auto nodes = env.count("SLURM_STEP_NUM_NODES");
    const int tasks = env.count("SLURM_STEP_NUM_TASKS").value_or(1);
    if (!nodes || (*nodes == 1 && tasks == 1)) return std::nullopt;
    Scheduled step;
    step.agents = tasks;
    if (tasks > *nodes) {
        step.refusal = slurm_refusal(*nodes, tasks);
        return step;
    }
    step.of = " of Slurm step " + base::printable(env.text("SLURM_JOB_ID").value_or("?") + "." +
                                                  env.text("SLURM_STEP_ID").value_or("?"));
    step.nodes = {{*nodes, *nodes}, "SLURM_STEP_NUM_NODES"};
    if (const auto rank = env.number("SLURM_NODEID", any_rank)) {
        step.node_rank = {*rank, "SLURM_NODEID"};
    }
    step.port = slurm_port(env);
    read_slurm_hosts(env, *nodes, step);
    return step;
}

// Kubernetes.

// Of a pod that calls itself train-2: "train-0", else "<job>-0".
std::string first_pod(const Variables& env, int index) {
    const std::string suffix = "-" + std::to_string(index);
    const std::string own = env.text("HOSTNAME").value_or("");
    const bool is_known = own.size() > suffix.size() && own.ends_with(suffix);
    return is_known ? base::printable(own.substr(0, own.size() - suffix.size())) + "-0" : "<job>-0";
}

std::optional<Scheduled> read_kubernetes(const Variables& env) {
    constexpr const char* name = "JOB_COMPLETION_INDEX";
    const auto index = env.number(name, any_rank);
    if (!index) return std::nullopt;
    Scheduled job;
    job.node_rank = {*index, name};
    job.set_head = "set PET_MASTER_ADDR=" + first_pod(env, *index) +
                   ".<service> in the manifest, with the name of the job's headless Service";
    if (*index == 0) return job;
    job.refusal = variable_is(name, *index) +
                  " says that this is one of several pods of a job, and each would be a whole job "
                  "of its own; set PET_NNODES to the number of pods (the Job's completions) in "
                  "the manifest and " +
                  job.set_head.substr(std::string_view("set ").size()) +
                  ", or say --standalone if you want several jobs";
    return job;
}

// MPI.

struct MpiNames {
    const char* launcher;
    const char* size;
    const char* rank;
    const char* local_size;
    const char* one_a_host;  // the command that starts one process on each host
    const char* set_head;
};
constexpr std::array mpi_launchers{
    MpiNames{"Open MPI's mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun --map-by ppr:1:node",
             "write mpirun -x MASTER_ADDR=HOST or ddp-launch --master-addr=HOST, with rank 0's "
             "host"},
    MpiNames{"an MPI launcher", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "mpiexec -ppn 1",
             "write mpiexec -genv MASTER_ADDR HOST or ddp-launch --master-addr=HOST, with rank "
             "0's host"},
};

std::optional<Scheduled> read_mpi(const Variables& env) {
    for (const MpiNames& names : mpi_launchers) {
        const auto size = env.count(names.size);
        const auto local = env.count(names.local_size);
        if (!size || !local || *size == 1) continue;
        Scheduled job;
        job.agents = *size;
        if (*local > 1) {
            job.refusal = variable_is(names.local_size, *local) + " (" + names.launcher +
                          ") says that ddp-launch was started several times on this host, and "
                          "each would start all workers there; write " +
                          names.one_a_host +
                          " ddp-launch --nproc-per-node=" + std::to_string(*local) +
                          " PROGRAM, or start PROGRAM without ddp-launch, or say --standalone if "
                          "you want several jobs";
            return job;
        }
        job.of = std::string(" of ") + names.launcher;
        job.nodes = {{*size, *size}, names.size};
        if (const auto rank = env.number(names.rank, any_rank)) job.node_rank = {*rank, names.rank};
        job.set_head = names.set_head;
        return job;
    }
    return std::nullopt;
}

// Both together.

Scheduled read_scheduler(const Variables& env) {
    if (auto step = read_slurm(env)) return *std::move(step);
    if (auto job = read_kubernetes(env)) return *std::move(job);
    if (auto job = read_mpi(env)) return *std::move(job);
    return {};
}

bool allows(const NodeRange& range, int hosts) { return range.min <= hosts && hosts <= range.max; }

std::string text_of(const NodeRange& range) {
    const std::string most = std::to_string(range.max);
    return range.min == range.max ? most : std::to_string(range.min) + " to " + most;
}

// What of the scheduler's counts beside what the user gave.
Scheduled fit(Scheduled scheduled, const Draft& given) {
    const bool is_told = given.nodes && given.head;
    if (!scheduled.refusal.empty()) {
        const bool by_number = scheduled.agents == 0 && given.nodes;
        const bool has_room = given.nodes && given.nodes->value.max >= scheduled.agents;
        if (!by_number && !(is_told && has_room)) throw UsageError(scheduled.refusal);
        return by_number ? std::move(scheduled) : Scheduled{};
    }
    if (!given.nodes || !scheduled.nodes) return scheduled;
    const int hosts = scheduled.nodes->value.max;
    if (allows(given.nodes->value, hosts)) return scheduled;
    if (is_told) return {};  // one of several jobs in the step
    throw UsageError(label_of(given.nodes->from) + ": " + text_of(given.nodes->value) +
                     " hosts, but" + scheduled.of.substr(std::string_view(" of").size()) + " has " +
                     std::to_string(hosts) + " (" + scheduled.nodes->from +
                     "); leave it out, or say --master-addr and --node-rank, too");
}

void check_rank(const Draft& job) {
    const int most = job.nodes ? job.nodes->value.max : 1;
    if (!job.node_rank || job.node_rank->value < most) return;
    const std::string nodes = job.nodes ? job.nodes->from + "=" + text_of(job.nodes->value)
                                        : "a job of 1 host (--nnodes)";
    throw UsageError(label_of(job.node_rank->from) + ": " + std::to_string(job.node_rank->value) +
                     " is no place in " + nodes + "; places go from 0 to " +
                     std::to_string(most - 1));
}

Draft join(const Draft& given, const Scheduled& scheduled) {
    Draft job = given;
    if (!job.nodes) job.nodes = scheduled.nodes;
    const bool is_fixed = job.nodes && job.nodes->value.min == job.nodes->value.max;
    if (!job.node_rank && is_fixed) job.node_rank = scheduled.node_rank;
    if (!job.head) job.head = scheduled.head;
    if (!job.port) job.port = scheduled.port;
    return job;
}

// By the names of torch.distributed, which torchrun's users set as well.
void read_master(const Variables& env, Draft& job) {
    if (job.head) return;
    const auto host = env.text("MASTER_ADDR");
    if (!host) return;
    job.head = {*host, "MASTER_ADDR"};
    if (job.port) return;
    if (const auto port = env.number("MASTER_PORT", any_port)) {
        job.port = {static_cast<std::uint16_t>(*port), "MASTER_PORT"};
    }
}

// "3 hosts of Slurm step 12.0 (SLURM_STEP_NUM_NODES)", "2 to 4 hosts (--nnodes)"
std::string hosts_of(const Draft& job, const Scheduled& scheduled) {
    const bool is_counted = scheduled.nodes && scheduled.nodes->from == job.nodes->from;
    return text_of(job.nodes->value) + " hosts" + (is_counted ? scheduled.of : "") + " (" +
           job.nodes->from + ")";
}

[[noreturn]] void fail_head(const Draft& job, const Scheduled& scheduled) {
    throw UsageError(hosts_of(job, scheduled) + ", but nobody says where they meet; " +
                     (scheduled.set_head.empty()
                          ? "write --master-addr=HOST, with the host of node rank 0, or "
                            "--rdzv-backend=c10d --rdzv-endpoint=HOST:PORT"
                          : scheduled.set_head));
}

std::string line_of(const Draft& job, const Found<std::uint16_t>& port,
                    const Scheduled& scheduled) {
    std::string line = hosts_of(job, scheduled);
    if (job.node_rank) {
        line += ", this is host " + std::to_string(job.node_rank->value) + " (" +
                job.node_rank->from + ")";
    }
    line += "; head " + base::printable(job.head->value);
    if (job.head->from != port.from) line += " (" + job.head->from + ")";
    line += ", port " + std::to_string(port.value) + " (" + port.from + ")";
    for (const MeetingPlace& place : job.successors) {
        line += (&place == &job.successors.front() ? "; may take over: " : ", ") +
                base::host_and_port(base::printable(place.host), place.port);
    }
    return line;
}

// Behind the scheduler's head.
std::vector<MeetingPlace> successors_among(const std::vector<std::string>& hosts,
                                           std::uint16_t port) {
    std::vector<MeetingPlace> successors;
    for (std::size_t i = 1; i < hosts.size() && i <= most_named_successors; ++i) {
        successors.push_back({hosts[i], port});
    }
    return successors;
}

HostEnv result_of(const Draft& job, const Found<std::uint16_t>& port, const Scheduled& scheduled) {
    if (port.value == 0) {
        throw UsageError(label_of(port.from) +
                         ": 0 is any free port, which other hosts cannot know; write one that is "
                         "free on " +
                         base::printable(job.head->value));
    }
    HostEnv result;
    result.min_hosts = job.nodes->value.min;
    result.max_hosts = job.nodes->value.max;
    if (job.node_rank) result.node_rank = job.node_rank->value;
    result.head = job.head->value;
    result.port = port.value;
    result.successors = job.successors;
    if (scheduled.hosts.size() == static_cast<std::size_t>(result.max_hosts)) {
        result.hosts = scheduled.hosts;
    }
    result.line = line_of(job, port, scheduled);
    return result;
}

}  // namespace

std::optional<HostEnv> host_env(const HostFlags& flags, const EnvLookup& environment) {
    const Variables env(environment);
    if (is_standalone(flags, env)) return std::nullopt;
    const Draft given = read_given(flags, env);
    if (given.nodes && given.nodes->value.max == 1) {
        check_rank(given);
        return std::nullopt;
    }
    const bool is_whole = given.nodes && given.node_rank && given.head && given.port;
    const Scheduled scheduled = is_whole ? Scheduled{} : fit(read_scheduler(env), given);
    Draft job = join(given, scheduled);
    check_rank(job);
    const bool is_nowhere = !job.head || (job.port && job.port->value == 0);
    const bool one_is_there = scheduled.set_head.empty();
    if (!job.nodes || (job.nodes->value.min == 1 && one_is_there && is_nowhere)) {
        refuse_step_of_several(environment);
        return std::nullopt;
    }
    read_master(env, job);
    if (!job.head) fail_head(job, scheduled);
    const auto port = job.port.value_or(Found<std::uint16_t>{default_static_port, "default"});
    if (!given.head && scheduled.head &&
        may_name_successors(job.nodes->value.min, job.nodes->value.max)) {
        job.successors = successors_among(scheduled.hosts, port.value);
    }
    return result_of(job, port, scheduled);
}

std::string alone_notice(const HostFlags& flags, const EnvLookup& environment) {
    const Variables env(environment);
    if (is_standalone(flags, env)) return {};
    const Draft given = read_given(flags, env);
    if (!given.nodes || given.nodes->value.max == 1) return {};
    return label_of(given.nodes->from) + ": of " + text_of(given.nodes->value) +
           " hosts this one runs the job alone; others could join it if --rdzv-endpoint named a "
           "host and a port";
}

}  // namespace ddp::launcher
