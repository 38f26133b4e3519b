// The host is asked only for what the options need: a plain start looks at no GPU but to give a
// hint, and at no cgroup.
#include "launcher/plan/job_plan.hpp"

#include "launcher/plan/interpreter.hpp"
#include "launcher/plan/visible_gpus.hpp"
#include "launcher/plan/worker_count.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <algorithm>
#include <span>

namespace ddp::launcher {
namespace {

constexpr const char* default_path = "/usr/bin:/bin";

bool wants_gpus(const Options& options, const Host& host) {
    switch (options.nproc_per_node.what) {
        case CountOf::not_given:  // for the hint, where it costs no child
            if (count_device_files(host.gpus.devices) > 0) return true;
            break;
        case CountOf::gpus:
        case CountOf::gpus_else_cpus:
            return true;
        case CountOf::number:
        case CountOf::cpus:
            break;
    }
    return options.program.virtual_local_rank || options.action == Action::dry_run;
}

ProgramSearch search_of(const Options& options, const EnvLookup& environment,
                        const std::string& called_as) {
    const std::string& python = options.program.python;
    const std::string path = environment("PATH").value_or(default_path);
    return {.program = [path](const std::string& name) { return find_program(name, path); },
            .script = find_script,
            .python = python.empty() ? find_interpreter(called_as, environment) : python};
}

JobVariables variables_of(const Options& options, int workers) {
    return {.workers = workers,
            .master_addr = options.rendezvous.master_addr,
            .master_port = options.rendezvous.master_port,
            .agent_store = options.rendezvous.agent_store == AgentStore::on,
            .any_store_peers = options.rendezvous.store_peers == store::StorePeers::any,
            .run_id = options.run_id,
            .role = options.role,
            .max_restarts = options.restart.max_restarts,
            .signals_to_handle = names_of(options.stop.signals_to_handle),
            .oversubscribe_gpu = options.program.oversubscribe_gpu,
            .break_on_failure = options.stop.break_on_failure,
            .inject = options.program.inject,
            .attempt = {.place = place_of_only_host(workers)}};
}

// With words where a start would have the agent's values; numbers get theirs from with_words().
JobVariables variables_for_show(const Options& options, const JobPlan& plan, bool several_hosts) {
    JobVariables variables = plan.variables;
    if (variables.run_id.empty()) variables.run_id = "<random>";
    if (variables.agent_store) variables.attempt.store_socket = "<random>";
    if (!variables.agent_store && variables.master_port == 0) variables.attempt.held_port = 0;
    variables.attempt.error_files = options.logs.dir.empty()
                                        ? error_files_in("<temporary>")
                                        : error_files_in_tree(options.logs.dir + "/<run>", 0);
    variables.attempt.control = "<descriptor>";
    if (several_hosts) {
        variables.attempt.place.address = "<this host's>";
        variables.attempt.place.round = 1;
    }
    return variables;
}

// Of a job of several hosts, the hosts themselves decide on ranks.
std::string with_words_of_hosts(const std::string& entry) {
    const auto with = [&](std::string_view name, std::string_view word) -> std::string {
        return entry.starts_with(name) ? std::string(name) + std::string(word) : "";
    };
    for (const char* name : {"RANK=", "ROLE_RANK="}) {
        const std::string local = with(name, "<this host's first>+");
        if (!local.empty()) return local + entry.substr(std::string_view(name).size());
    }
    for (const char* name : {"WORLD_SIZE=", "ROLE_WORLD_SIZE="}) {
        std::string all = with(name, "<of all hosts>");
        if (!all.empty()) return all;
    }
    const std::string group = with("GROUP_RANK=", "<this host's>");
    return group.empty() ? with("GROUP_WORLD_SIZE=", "<hosts>") : group;
}

std::string with_words(std::string entry) {
    if (entry == "MASTER_PORT=0") return "MASTER_PORT=<free>";
    if (entry == "DDP_STORE_FD=0:0") return "DDP_STORE_FD=<descriptor>:<free>";
    if (entry.starts_with("DDP_AGENT_STORE=") && entry.ends_with(":0")) {
        entry.replace(entry.size() - 1, 1, "<free>");
    }
    return entry;
}

// The words after the program are the program's, also those that were meant for us. Only what no
// program of the user's is likely to take itself is worth a line; "-n 4" is not, of a command such
// as head.
std::string describe_misplaced(const Options& options) {
    if (options.program.command.size() < 2) return {};
    const std::string& program = options.program.command[0];
    const std::string_view word = options.program.command[1];
    const std::size_t equals = std::min(word.find('='), word.size());
    std::string name(word.substr(0, equals));
    std::replace(name.begin(), name.end(), '_', '-');
    const bool of_users = program.find('/') != program.npos || program.ends_with(".py");
    const bool is_short = of_users && (name == "-n" || name == "-np");
    const bool counts = is_short || name == "--nproc-per-node" || name == "--nprocs";
    const bool given = options.nproc_per_node.what != CountOf::not_given;
    const bool other = name == "--nnodes" || name == "--standalone" || name == "--max-restarts";
    if (!other && (!counts || given)) return {};
    std::string shown(word);
    const bool has_value = equals < word.size() || name == "--standalone";
    if (!has_value) {
        if (options.program.command.size() == 2) return {};
        shown += " " + options.program.command[2];
    }
    return shown + " after " + program + " is an argument of " + program +
           "; for the launcher: ddp-launch " + shown + " " + program;
}

std::vector<std::string> notices_for(const Options& options, int workers, std::size_t gpus) {
    std::vector<std::string> notices;
    if (options.nproc_per_node.what == CountOf::not_given && gpus > 1) {
        notices.push_back("1 worker on a host with " + std::to_string(gpus) +
                          " GPUs; --nproc-per-node=gpu starts one for each");
    }
    if (std::string misplaced = describe_misplaced(options); !misplaced.empty()) {
        notices.push_back(std::move(misplaced));
    }
    const bool filters = !options.logs.duplicate_stdout_filters.empty() ||
                         !options.logs.duplicate_stderr_filters.empty();
    const bool tees = options.logs.tee.all != Streams::none || !options.logs.tee.listed.empty();
    if (filters && (options.logs.dir.empty() || !tees)) {
        notices.emplace_back(
            "--duplicate-stdout-filters and --duplicate-stderr-filters choose among lines that "
            "--tee shows, for a file in --log-dir; without both they do nothing");
    }
    if (workers > 1 && limits_threads(workers, own_environment())) {
        notices.emplace_back(
            "OMP_NUM_THREADS=1 for each worker, so that they do not crowd each other; set it to "
            "choose another number");
    }
    if (options.program.oversubscribe_gpu) {
        notices.emplace_back(
            "--oversubscribe-gpu is for tests only: ranks share GPUs and NCCL is slow");
    }
    return notices;
}

}  // namespace

std::string in_shell_quotes(const std::string& word) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%";
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

JobPlan plan_job(const Options& options, const EnvLookup& environment, const Host& host) {
    JobPlan plan;
    if (wants_gpus(options, host)) plan.gpus = visible_gpus(environment, host.gpus);
    const auto gpus = static_cast<int>(plan.gpus.size());
    const int workers = count_workers(options.nproc_per_node, {.cpus = [] { return usable_cpus(); },
                                                               .gpus = [gpus] { return gpus; }});
    check_local_ranks(options, workers);
    plan.variables = variables_of(options, workers);
    if (workers == 0) return plan;
    if (options.program.virtual_local_rank) {
        // As torchrun, which gives out what the variable lists, whatever is there.
        std::vector<std::string> listed =
            plan.gpus.empty() ? listed_gpus(environment, host.gpus) : plan.gpus;
        plan.variables.one_gpu_each = one_gpu_each(std::move(listed), workers, environment);
    }
    WorkerCommands commands =
        worker_commands(options, workers, search_of(options, environment, host.called_as));
    plan.commands = std::move(commands.of_rank);
    plan.missing = std::move(commands.missing);
    plan.notices = notices_for(options, workers, plan.gpus.size());
    return plan;
}

std::string describe_plan(const Options& options, const JobPlan& plan,
                          const std::optional<std::string>& hosts) {
    const std::vector<std::string> inherited = own_environment();
    const JobVariables variables = variables_for_show(options, plan, hosts.has_value());
    std::string text = hosts ? *hosts + "\n" : "";
    for (int rank = 0; rank < plan.workers(); ++rank) {
        const std::string gpu = gpu_of(options, plan.gpus, rank);
        text += std::string(hosts ? "local " : "") + "rank " + std::to_string(rank) + " of " +
                std::to_string(plan.workers()) + (gpu.empty() ? "" : " (" + gpu + ")") + "\n";
        for (const std::string& entry : worker_environment(variables, rank, inherited)) {
            if (std::find(inherited.begin(), inherited.end(), entry) != inherited.end()) continue;
            const std::string of_hosts = hosts ? with_words_of_hosts(entry) : "";
            text += "    " + (of_hosts.empty() ? with_words(entry) : of_hosts) + "\n";
        }
        const WorkerCommand& command = plan.commands[static_cast<std::size_t>(rank)];
        text += "   ";
        for (const std::string& word : command.arguments) text += " " + in_shell_quotes(word);
        text += "\n";
    }
    return text;
}

}  // namespace ddp::launcher
