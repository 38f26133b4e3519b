// What ddp-launch does before there is a job. Its one line on stderr is written here, by hand: no
// logger, no prefix but the program's name.
#include "launcher/front/command_line.hpp"

#include "contract/exit_code.hpp"
#include "contract/host_link.hpp"
#include "launcher/console/output_rules.hpp"
#include "launcher/front/front.hpp"
#include "launcher/front/job_leash.hpp"
#include "launcher/front/remote_job.hpp"
#include "launcher/front/remote_start.hpp"
#include "launcher/hosts/job_token.hpp"
#include "launcher/hosts/start/host_env.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/inspect/inspector.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/split_arguments.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/plan/job_plan.hpp"
#include "launcher/plan/worker_variables.hpp"

#include <ddp/error.hpp>
#include <ddp/version.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace ddp::launcher {
namespace {

using Kind = contract::LaunchEnd::Kind;

int complain(const std::string& message, int exit_code, const contract::HostLink& host,
             Kind kind = Kind::ended) {
    host.send({.kind = kind, .exit_code = exit_code, .report = message});
    const std::string line = "ddp-launch: " + message + "\n";
    std::fwrite(line.data(), 1, line.size(), stderr);
    return exit_code;
}

int print(const std::string& text) {
    const bool written =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return written ? contract::exit_ok : contract::exit_error;
}

// Whoever starts us with 0, 1 or 2 closed must not find a pipe of ours there.
void open_missing_standard_descriptors() {
    for (;;) {
        const int fd = ::open("/dev/null", O_RDWR);
        if (fd < 0) return;
        if (fd > STDERR_FILENO) {
            ::close(fd);
            return;
        }
    }
}

// On the hosts of --hosts.
int run_on_hosts(const Options& options, std::span<char* const> arguments,
                 const std::string& called_as, contract::HostLink& host) {
    const RemoteJob job = plan_remote_job(options, split_arguments(arguments),
                                          listed_hosts(options), this_host(called_as));
    if (options.action == Action::dry_run) return print(describe_remote_job(job));
    return start_on_hosts(job, host);
}

int run_job(Options options, const std::string& called_as, contract::HostLink& host,
            std::optional<JobToken> token) {
    const bool runs = options.action == Action::run;
    std::optional<HostsJob> hosts =
        settle_hosts(options, from_environment, std::move(token), host.is_starter());
    if (runs && options.run_id.empty()) options.run_id = make_run_id();
    JobPlan plan = plan_job(options, from_environment, {.called_as = called_as});
    if (!plan.missing.problem.empty()) {
        return complain(plan.missing.problem, plan.missing.exit_code, host);
    }
    if (!hosts) {  // its ranks are known
        for (const NamedRank& named : named_ranks(options)) {
            require_rank(named.option, named.rank, "rank", plan.workers());
        }
    }
    if (!runs) {
        const auto line = hosts ? std::optional(hosts->env.line) : std::nullopt;
        return print(describe_plan(options, plan, line));
    }
    if (!hosts) {
        std::string notice = alone_notice(options.hosts.flags, from_environment);
        if (!notice.empty()) plan.notices.push_back(std::move(notice));
    }
    refuse_strangers_folder(temporary_folder(), "TMPDIR");
    if (!options.logs.dir.empty()) refuse_strangers_folder(options.logs.dir, "--log-dir");
    return run_front(options, plan, std::move(hosts), host);
}

// `token`: of who has started this launcher.
int run(const std::string& called_as, std::span<char* const> arguments, contract::HostLink& host,
        std::optional<JobToken> token = std::nullopt) {
    try {
        const Options options = parse_options(arguments, from_environment);
        switch (options.action) {
            case Action::help:
                return print(help_text());
            case Action::version:
                return print(std::string("ddp-launch ") + version() + "\n");
            case Action::run:
            case Action::dry_run:
                if (options.remote.has_hosts()) {
                    return run_on_hosts(options, arguments, called_as, host);
                }
                return run_job(options, called_as, host, std::move(token));
            case Action::print_config:
                return print(config_text(arguments, from_environment));
        }
    } catch (const UsageError& error) {
        return complain(error.what(), contract::exit_usage, host, Kind::wrong_command_line);
    } catch (const std::exception& error) {
        return complain(error.what(), contract::exit_error, host);
    }
    return contract::exit_error;
}

// The part of this host in a job that was started on another.
int run_remote_part(const std::string& called_as) {
    std::variant<RemotePart, int> taken;
    try {
        taken = take_remote_part();
    } catch (const std::exception& error) {
        return complain(error.what(), contract::exit_error, {});
    }
    if (const int* exit_code = std::get_if<int>(&taken)) return *exit_code;
    auto& part = std::get<RemotePart>(taken);
    std::vector<char*> arguments;
    for (std::string& argument : part.arguments) arguments.push_back(argument.data());
    return run(called_as, arguments, part.starter, std::move(part.token));
}

int run_inspect(std::span<char* const> words) {
    try {
        inspect(words);
        return contract::exit_ok;
    } catch (const UsageError& error) {
        return complain(error.what(), contract::exit_usage, {});
    } catch (const std::exception& error) {
        return complain(error.what(), contract::exit_error, {});
    }
}

}  // namespace

int run_command_line(const std::string& called_as, std::span<char* const> arguments) {
    contract::HostLink host = contract::HostLink::take();
    open_missing_standard_descriptors();
    if (!arguments.empty() && std::string_view(arguments[0]) == inspect_command) {
        return run_inspect(arguments.subspan(1));
    }
    if (arguments.size() == 1 && std::string_view(arguments[0]) == from_stdin_option) {
        return run_remote_part(called_as);
    }
    return run(called_as, arguments, host);
}

}  // namespace ddp::launcher
