#include "launcher/front/remote_job.hpp"

#include "base/net/address.hpp"
#include "base/printable.hpp"
#include "launcher/console/line_prefix.hpp"
#include "launcher/front/job_leash.hpp"
#include "launcher/front/slurm_allocation.hpp"
#include "launcher/hosts/job_proof.hpp"
#include "launcher/hosts/start/host_env.hpp"
#include "launcher/options/endpoint.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/plan/program_path.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

// Beside the times that the job itself has for the end of its workers.
constexpr std::chrono::milliseconds spare_time_to_end{10'000};

constexpr std::array<std::string_view, 5> passed_names{"PATH", "LD_LIBRARY_PATH", "PYTHONPATH",
                                                       "PYTHON_EXEC", "VIRTUAL_ENV"};
constexpr std::array<std::string_view, 7> passed_beginnings{"CUDA", "NCCL", "OMP", "TORCH",
                                                            "HF_",  "DDP_", "PET_"};
// Of a worker of another job, or of the host that this launcher is.
constexpr std::array<std::string_view, 17> kept_names{
    JobToken::variable,  "DDP_AGENT_STORE",  "DDP_AGENT_STORE_SOCKET",
    "DDP_CONTROL_FD",    "DDP_CONTROL_PAGE", "DDP_HOST_ADDR",
    "DDP_LAUNCH_HOST",   "DDP_ROUND",        "DDP_STORE_FD",
    "DDP_STORE_PEERS",   "PET_NNODES",       "PET_NODE_RANK",
    "PET_MASTER_ADDR",   "PET_MASTER_PORT",  "PET_STANDALONE",
    "PET_RDZV_ENDPOINT", "PET_RDZV_BACKEND",
};

std::string_view name_of_entry(std::string_view entry) { return entry.substr(0, entry.find('=')); }

bool is_passed(std::string_view name) {
    if (std::ranges::find(kept_names, name) != kept_names.end()) return false;
    // TORCHELASTIC_RUN_ID and the like, of a job that this launcher is a part of.
    if (name.starts_with("TORCHELASTIC_")) return name == "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE";
    return std::ranges::find(passed_names, name) != passed_names.end() ||
           std::ranges::any_of(passed_beginnings, [&](std::string_view beginning) {
               return name.starts_with(beginning);
           });
}

// The logical one where it is the same: below /home, say, and not where that is mounted from.
std::string current_folder() {
    struct stat here {};
    struct stat named {};
    const char* const logical = std::getenv("PWD");
    if (logical != nullptr && logical[0] == '/' && ::stat(".", &here) == 0 &&
        ::stat(logical, &named) == 0 && here.st_dev == named.st_dev &&
        here.st_ino == named.st_ino) {
        return logical;
    }
    std::error_code failed;
    std::string folder = std::filesystem::current_path(failed);
    if (failed) throw SystemError("find the current folder", failed.value());
    return folder;
}

// As it was called, so that the one in a virtual environment is it on the other hosts, too.
std::string own_path(const std::string& called_as, const std::string& folder) {
    namespace fs = std::filesystem;
    const Program found = find_program(called_as, from_environment("PATH").value_or(""));
    if (found.problem.empty()) {
        return (fs::path(folder) / found.path).lexically_normal();
    }
    std::error_code failed;
    const fs::path path = fs::read_symlink("/proc/self/exe", failed);
    if (failed) throw SystemError("find the path of ddp-launch", failed.value());
    return path;
}

std::string list_option(const Options& options) {
    return options.remote.hosts.empty() ? "--hostfile" : "--hosts";
}

void refuse_what_a_list_says(const Options& options) {
    const HostFlags& flags = options.hosts.flags;
    const std::string list = list_option(options);
    const auto refuse = [&](bool is_given, const char* option, const std::string& why) {
        if (is_given) throw UsageError(std::string(option) + ": " + list + " " + why);
    };
    refuse(flags.standalone, "--standalone", "names the job's hosts; leave one of them out");
    refuse(flags.node_rank.has_value(), "--node-rank", "numbers the hosts; leave it out");
    refuse(flags.rdzv_endpoint.has_value(), "--rdzv-endpoint",
           "says where they meet, on the first of them; leave it out, or say --master-addr and "
           "--master-port");
    refuse(flags.rdzv_backend.has_value(), "--rdzv-backend", "needs none; leave it out");
    const StdinFor input = options.input.stdin_for;
    refuse(input == StdinFor::rank || input == StdinFor::all, "--stdin",
           "starts workers that get no input; leave it out");
}

// MIN of --nnodes=MIN:N, else all.
std::size_t least_of(const Options& options, std::size_t listed) {
    const auto& nodes = options.hosts.flags.nnodes;
    if (!nodes) return listed;
    const NodeRange range = parse_node_range({"--nnodes", *nodes});
    const std::string list = "--nnodes: " + list_option(options);
    if (range.min == range.max) {
        throw UsageError(list +
                         " says how many hosts there are; leave it out, or write --nnodes=MIN:" +
                         std::to_string(listed) + " for a job that may go on with fewer");
    }
    if (static_cast<std::size_t>(range.max) != listed) {
        throw UsageError(
            list + " has " + std::to_string(listed) + " hosts, not " + std::to_string(range.max) +
            "; write --nnodes=" + std::to_string(range.min) + ":" + std::to_string(listed));
    }
    return static_cast<std::size_t>(range.min);
}

// Those that the hosts do not get.
bool starts_with_one_of(std::string_view option, std::span<const std::string_view> names) {
    return std::ranges::any_of(names,
                               [&](std::string_view name) { return option.starts_with(name); });
}
constexpr std::array<std::string_view, 6> options_of_starter{
    "--hosts=", "--hostfile=", "--rsh=", "--env=", "--dry-run", "--nnodes="};
constexpr std::array<std::string_view, 2> options_of_meeting{"--master-addr=", "--master-port="};

// Where several hosts meet; of one it may be any free port.
struct Meeting {
    std::string address;
    std::string port;
};

EnvLookup lookup_in(const StartingHost& here) {
    return [&environment = here.environment](std::string_view name) -> std::optional<std::string> {
        for (const std::string& entry : environment) {
            const std::string_view own = name_of_entry(entry);
            if (own == name && own.size() < entry.size()) return entry.substr(own.size() + 1);
        }
        return std::nullopt;
    };
}

// What the user says of it, else on the first host.
Meeting meeting_of(const HostFlags& flags, const StartingHost& here,
                   const std::vector<HostSlots>& hosts,
                   const std::optional<SlurmAllocation>& slurm) {
    const EnvLookup variable = lookup_in(here);
    Meeting meeting{variable("PET_MASTER_ADDR").value_or(""),
                    variable("PET_MASTER_PORT").value_or("")};
    const int usual = slurm ? port_of_slurm_job(slurm->job) : default_static_port;
    if (flags.master_addr || meeting.address.empty()) {
        meeting.address = flags.master_addr.value_or(hosts.front().host);
    }
    if (flags.master_port || meeting.port.empty()) {
        meeting.port = flags.master_port.value_or(std::to_string(usual));
    }
    return meeting;
}

// Where the hosts are the allocation's and the user has not said otherwise: srun starts them.
std::optional<SlurmAllocation> slurm_of(const RemoteOptions& remote,
                                        const std::vector<HostSlots>& hosts,
                                        const StartingHost& here) {
    if (!remote.rsh.empty()) return std::nullopt;
    auto allocation = SlurmAllocation::of(lookup_in(here));
    return allocation && allocation->has_all(hosts) ? std::move(allocation) : std::nullopt;
}

// With words that a shell over there reads, but for srun, which needs none.
std::vector<std::string> command_on(const std::string& host, const RemoteOptions& remote,
                                    bool is_by_slurm, const std::string& launcher) {
    std::vector<std::string> command = is_by_slurm ? SlurmAllocation::shell_for(host) : remote.rsh;
    if (command.empty())
        command = {"ssh", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10"};
    if (!is_by_slurm) command.push_back(host);
    command.push_back(is_by_slurm ? launcher : in_shell_quotes(launcher));
    command.emplace_back(from_stdin_option);
    return command;
}

bool has_successors(const std::vector<HostSlots>& hosts, std::size_t least) {
    return may_name_successors(static_cast<int>(least), static_cast<int>(hosts.size()));
}

// Where the hosts of a job that may lose some meet: on the first of them, and where that is lost on
// others. An address that the user gives is one of the first host.
std::string endpoints_of(const Meeting& meeting, const std::vector<HostSlots>& hosts,
                         std::size_t least) {
    const auto port =
        static_cast<std::uint16_t>(parse_int({"--master-port", meeting.port}, {1, 65535}));
    std::string list = base::host_and_port(meeting.address, port);
    if (!has_successors(hosts, least)) return list;
    std::size_t named = 0;
    for (std::size_t i = 1; i < hosts.size() && named < most_named_successors; ++i) {
        if (hosts[i].host == meeting.address) continue;
        list += "," + base::host_and_port(hosts[i].host, port);
        ++named;
    }
    return list;
}

// Of several of a name the last counts.
std::vector<std::string> options_for(const Options& options, const SplitArguments& given,
                                     const Meeting& meeting, const StartingHost& here,
                                     const std::vector<HostSlots>& hosts, std::size_t least) {
    std::vector<std::string> result;
    if (here.shows_on_terminal && options.display.line_prefix_template.empty()) {
        result.push_back("--log-line-prefix-template=" + std::string(terminal_prefix_template));
    }
    for (const std::string& option : given.options) {
        if (starts_with_one_of(option, options_of_starter)) continue;
        if (hosts.size() > 1 && starts_with_one_of(option, options_of_meeting)) continue;
        result.push_back(option);
    }
    const std::string all = std::to_string(hosts.size());
    if (least < hosts.size()) {
        result.push_back("--nnodes=" + std::to_string(least) + ":" + all);
        result.emplace_back("--rdzv-backend=c10d");
        result.push_back("--rdzv-endpoint=" + endpoints_of(meeting, hosts, least));
        return result;
    }
    result.push_back("--nnodes=" + all);
    if (hosts.size() == 1) return result;
    result.push_back("--master-addr=" + meeting.address);
    result.push_back("--master-port=" + meeting.port);
    return result;
}

std::string line_of_hosts(const Options& options, const std::vector<HostSlots>& hosts,
                          const Meeting& meeting) {
    constexpr std::size_t most_names = 4;
    std::string line = std::to_string(hosts.size()) + (hosts.size() == 1 ? " host" : " hosts") +
                       " (" + list_option(options) + "): ";
    for (std::size_t i = 0; i < std::min(hosts.size(), most_names); ++i) {
        line += (i == 0 ? "" : ", ") + hosts[i].host;
    }
    if (hosts.size() > most_names) line += ", ... " + hosts.back().host;
    return hosts.size() == 1 ? line : line + "; head " + meeting.address + ", port " + meeting.port;
}

// Nobody has asked for one that is made here: a job goes on without where there is no TLS.
std::optional<JobToken> token_for_hosts() {
    if (auto given = job_token(from_environment)) return given;
    return has_tls() ? std::optional(JobToken::make()) : std::nullopt;
}

// "h1,h2,h3" for "h[1-3]", as SLURM_JOB_NODELIST has it; not for "[fe80::1]:4".
std::string as_list(const std::string& hosts) {
    const std::size_t bracket = hosts.find('[');
    if (bracket == hosts.npos || bracket == 0 || hosts[bracket - 1] == ',') return hosts;
    std::string list;
    for (const std::string& name : expand_nodelist({"--hosts", hosts})) {
        list += (list.empty() ? "" : ",") + name;
    }
    return list;
}

}  // namespace

StartingHost this_host(const std::string& called_as) {
    StartingHost here;
    here.folder = current_folder();
    here.launcher = own_path(called_as, here.folder);
    here.environment = own_environment();
    here.shows_on_terminal = ::isatty(STDOUT_FILENO) != 0;
    here.can_show_status = ::isatty(STDERR_FILENO) != 0 && terminal_can_redraw();
    here.greeting = "ddp-launch begins " + make_run_id();
    here.token = token_for_hosts();
    return here;
}

std::vector<HostSlots> listed_hosts(const Options& options) {
    const RemoteOptions& remote = options.remote;
    if (!remote.hosts.empty()) return parse_hosts({"--hosts", as_list(remote.hosts)});
    std::ifstream file(remote.hostfile, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    if (!file) {
        throw UsageError("--hostfile: cannot read " + base::printable(remote.hostfile) +
                         "; it lists the hosts, one a line: h1 slots=4");
    }
    return parse_hostfile(text, remote.hostfile);
}

RemoteJob plan_remote_job(const Options& options, const SplitArguments& given,
                          const std::vector<HostSlots>& hosts, const StartingHost& here) {
    refuse_what_a_list_says(options);
    const auto slurm = slurm_of(options.remote, hosts, here);
    const Meeting meeting = meeting_of(options.hosts.flags, here, hosts, slurm);
    RemoteJob job;
    job.least_hosts = least_of(options, hosts.size());
    job.has_successors = has_successors(hosts, job.least_hosts);
    job.greeting = here.greeting;
    job.shows_status = here.can_show_status && options.display.status == StatusLine::automatic;
    job.line = line_of_hosts(options, hosts, meeting);
    job.time_to_end =
        options.hosts.node_timeout + options.stop.shutdown_timeout + spare_time_to_end;
    job.stop_signals = options.stop.signals_to_handle;
    const auto variables = passed_variables(here.environment, options.remote.env);
    const auto common = options_for(options, given, meeting, here, hosts, job.least_hosts);
    for (std::size_t i = 0; i < hosts.size(); ++i) {
        RemoteJob::Host host{
            .name = hosts[i].host,
            .command = command_on(hosts[i].host, options.remote, slurm.has_value(), here.launcher),
            .part = {}};
        host.part = {.greeting = here.greeting,
                     .shows_status = job.shows_status,
                     .token = here.token,
                     .folder = here.folder,
                     .environment = variables,
                     .options = common,
                     .command = given.command};
        host.part.options.push_back("--node-rank=" + std::to_string(i));
        if (const auto slots = hosts[i].slots) {
            host.part.options.push_back("--nproc-per-node=" + std::to_string(*slots));
        }
        job.hosts.push_back(std::move(host));
    }
    if (encode(job.hosts.back().part).size() > max_starter_frame_bytes) {
        throw UsageError("the command line and the variables that go to the hosts have more than " +
                         std::to_string(max_starter_frame_bytes >> 20) + " MiB");
    }
    return job;
}

std::vector<std::string> passed_variables(std::span<const std::string> environment,
                                          std::span<const std::string> more) {
    std::map<std::string, std::string, std::less<>> all;
    std::map<std::string, std::string, std::less<>> passed;
    for (const std::string& entry : environment) {
        const std::string_view name = name_of_entry(entry);
        if (name.empty() || name.size() == entry.size()) continue;
        all.emplace(name, entry);
        if (is_passed(name)) passed.emplace(name, entry);
    }
    for (const std::string& wanted : more) {
        const std::string name(name_of_entry(wanted));
        const auto own = all.find(name);
        const bool has_value = name.size() < wanted.size();
        if (!has_value && own == all.end()) {
            throw UsageError("--env: " + base::printable(name) +
                             " is not set here; set it, or write --env=" + base::printable(name) +
                             "=VALUE");
        }
        passed.insert_or_assign(name, has_value ? wanted : own->second);
    }
    std::vector<std::string> entries;
    entries.reserve(passed.size());
    for (auto& [name, entry] : passed) entries.push_back(std::move(entry));
    return entries;
}

std::string describe_remote_job(const RemoteJob& job) {
    std::string text;
    for (const RemoteJob::Host& host : job.hosts) {
        text += host.name + "\n   ";
        for (const std::string& word : host.command) text += " " + in_shell_quotes(word);
        text += "\n    in " + host.part.folder + "\n    ddp-launch";
        for (const std::string& option : host.part.options) text += " " + in_shell_quotes(option);
        text += " --";
        for (const std::string& word : host.part.command) text += " " + in_shell_quotes(word);
        text += "\n    with";
        for (const std::string& entry : host.part.environment) {
            text += " " + std::string(name_of_entry(entry));
        }
        text += "\n";
    }
    return text;
}

}  // namespace ddp::launcher
