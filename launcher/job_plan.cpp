// The host is asked only for what the options need: a plain start looks at no GPU but to give a
// hint, and at no cgroup.
#include "launcher/job_plan.hpp"

#include "launcher/visible_gpus.hpp"
#include "launcher/worker_count.hpp"
#include "launcher/worker_variables.hpp"

#include <algorithm>
#include <span>

namespace ddp::launcher {
namespace {

constexpr const char* default_path = "/usr/bin:/bin";

bool wants_gpus(const Options& options) {
    switch (options.nproc_per_node.what) {
        case CountOf::not_given:  // for the hint
        case CountOf::gpus:
        case CountOf::gpus_else_cpus:
            return true;
        case CountOf::number:
        case CountOf::cpus:
            break;
    }
    return options.virtual_local_rank || options.action == Action::dry_run;
}

std::string non_empty(std::optional<std::string> text, const char* otherwise) {
    return text && !text->empty() ? *std::move(text) : otherwise;
}

ProgramSearch search_of(const EnvLookup& environment) {
    const std::string path = environment("PATH").value_or(default_path);
    return {.program = [path](const std::string& name) { return find_program(name, path); },
            .script = find_script,
            .python = non_empty(environment("PYTHON_EXEC"), "python3")};
}

std::string in_quotes(const std::string& word) {
    constexpr std::string_view plain =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@%<>";
    if (!word.empty() && word.find_first_not_of(plain) == word.npos) return word;
    std::string quoted = "'";
    for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
    return quoted + "'";
}

JobVariables variables_for_show(const Options& options, const JobPlan& plan) {
    return {.workers = plan.workers(),
            .master_addr = options.master_addr,
            .master_port = options.master_port,
            .agent_store = options.agent_store == AgentStore::on,
            .any_store_peers = options.store_peers == store::StorePeers::any,
            .run_id = options.run_id.empty() ? "<random>" : options.run_id,
            .error_files = error_files_in(options.log_dir.empty() ? "<temporary>"
                                                                  : options.log_dir + "/<run>"),
            .control = "<descriptor>",
            .role = options.role,
            .max_restarts = options.max_restarts,
            .signals_to_handle = names_of(options.signals_to_handle),
            .one_gpu_each = plan.one_gpu_each,
            .oversubscribe_gpu = options.oversubscribe_gpu};
}

}  // namespace

JobPlan plan_job(const Options& options, const EnvLookup& environment) {
    JobPlan plan;
    if (wants_gpus(options)) plan.gpus = visible_gpus(environment);
    const auto gpus = static_cast<int>(plan.gpus.size());
    const int workers = count_workers(options.nproc_per_node, {.cpus = [] { return usable_cpus(); },
                                                               .gpus = [gpus] { return gpus; }});
    check_local_ranks(options, workers);
    if (options.virtual_local_rank) {
        plan.one_gpu_each = one_gpu_each(plan.gpus, workers, environment);
    }
    WorkerCommands commands = worker_commands(options, workers, search_of(environment));
    plan.commands = std::move(commands.of_rank);
    plan.missing = std::move(commands.missing);
    if (options.nproc_per_node.what == CountOf::not_given && gpus > 1) {
        plan.notices.push_back("1 worker on a host with " + std::to_string(gpus) +
                               " GPUs; --nproc-per-node=gpu starts one for each");
    }
    if (workers > 1 && limits_threads(workers, own_environment())) {
        plan.notices.push_back(
            "OMP_NUM_THREADS=1 for each worker, so that they do not crowd each other; set it to "
            "choose another number");
    }
    if (options.oversubscribe_gpu) {
        plan.notices.push_back(
            "--oversubscribe-gpu is for tests only: ranks share GPUs and NCCL is slow");
    }
    return plan;
}

std::string describe_plan(const Options& options, const JobPlan& plan) {
    const std::vector<std::string> inherited = own_environment();
    const JobVariables variables = variables_for_show(options, plan);
    std::string text;
    for (int rank = 0; rank < plan.workers(); ++rank) {
        const std::string gpu = gpu_of(options, plan.gpus, rank);
        text += "rank " + std::to_string(rank) + " of " + std::to_string(plan.workers()) +
                (gpu.empty() ? "" : " (" + gpu + ")") + "\n";
        for (const std::string& entry : worker_environment(variables, rank, inherited)) {
            if (std::find(inherited.begin(), inherited.end(), entry) != inherited.end()) continue;
            text += "    " + (entry == "MASTER_PORT=0" ? "MASTER_PORT=<free>" : entry) + "\n";
        }
        const WorkerCommand& command = plan.commands[static_cast<std::size_t>(rank)];
        text += "   ";
        for (const std::string& word : command.arguments) text += " " + in_quotes(word);
        text += "\n";
    }
    return text;
}

}  // namespace ddp::launcher
