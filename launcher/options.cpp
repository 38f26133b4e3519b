// The option table is the one source: splitting, parsing and the help text all read it.
// Program_options sees the launcher's part alone, since it would reject or eat words of the
// worker's.
#include "launcher/options.hpp"

#include "launcher/did_you_mean.hpp"

#include <ddp/error.hpp>

#include <boost/program_options.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <sstream>

namespace ddp::launcher {
namespace {

namespace po = boost::program_options;

struct OptionSpec {
    const char* name;   // in dashes
    const char* value;  // what the help calls its value; null: a flag
    const char* description;
};

constexpr int max_workers = 4096;
constexpr int max_shutdown_timeout_s = 1'000'000;
constexpr const char* shutdown_timeout_variable = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";

constexpr std::array option_table{
    OptionSpec{"nproc-per-node", "N", "workers to start, 1 or more (default 1)"},
    OptionSpec{"standalone", nullptr, "a job of this host alone: any free port, whatever is given"},
    OptionSpec{"master-addr", "HOST", "MASTER_ADDR of the workers (default 127.0.0.1)"},
    OptionSpec{"master-port", "PORT", "MASTER_PORT of the workers (default: a free one, held)"},
    OptionSpec{"shutdown-timeout", "SECONDS",
               "time between the signal that asks workers to stop and SIGKILL (default: "
               "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT, else 30)"},
    OptionSpec{"agent-store", "on|off",
               "on: the launcher serves the workers' store; off: rank 0 does (default on)"},
    OptionSpec{"max-restarts", "N", "times to restart all workers after a failure (default 0)"},
    OptionSpec{"restart-delay", "SECONDS",
               "pause before the first restart, doubled each time (default 0)"},
    OptionSpec{"same-failure-window", "SECONDS",
               "no restart when the same rank fails the same way again within so long (default 0: "
               "always restart)"},
    OptionSpec{"contain", "base|pidns",
               "pidns: the agent is PID 1 of a PID namespace (default base)"},
    OptionSpec{"help", nullptr, "show this text"},
    OptionSpec{"version", nullptr, "show the version"},
};

std::string with_dashes(std::string_view name) {
    std::string result(name);
    std::replace(result.begin(), result.end(), '_', '-');
    return result;
}

[[noreturn]] void fail_unknown(std::string_view token) {
    std::vector<std::string> names;
    for (const OptionSpec& spec : option_table) names.emplace_back(std::string("--") + spec.name);
    const auto near = did_you_mean(with_dashes(token), names);
    throw UsageError("unknown option " + std::string(token) +
                     (near ? "; did you mean " + *near + "?" : "; --help lists the options"));
}

const OptionSpec& find_spec(std::string_view token, std::string_view name) {
    const std::string dashed = with_dashes(name);
    const auto found = std::find_if(option_table.begin(), option_table.end(),
                                    [&](const OptionSpec& spec) { return spec.name == dashed; });
    if (found == option_table.end()) fail_unknown(token);
    return *found;
}

[[noreturn]] void fail_value(std::string_view option, std::string_view value,
                             std::string_view allowed) {
    throw UsageError(std::string(option) + ": \"" + std::string(value) + "\" is not " +
                     std::string(allowed));
}

int parse_int(std::string_view option, const std::string& value, int low, int high) {
    int number = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc{} || stop != end || number < low || number > high) {
        fail_value(option, value,
                   "a whole number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    return number;
}

AgentStore parse_agent_store(const std::string& value) {
    if (value == "on") return AgentStore::on;
    if (value == "off") return AgentStore::off;
    fail_value("--agent-store", value, "on or off");
}

po::options_description describe_options() {
    po::options_description description("options", 100);
    for (const OptionSpec& spec : option_table) {
        if (spec.value != nullptr) {
            auto* semantic = po::value<std::string>();
            semantic->value_name(spec.value);
            description.add_options()(spec.name, semantic, spec.description);
        } else {
            description.add_options()(spec.name, spec.description);
        }
    }
    return description;
}

// The last one of repeated options counts, as in torchrun.
void apply(Options& options, const std::string& name, const std::string& value) {
    if (name == "nproc-per-node") {
        options.nproc_per_node = {CountOf::number,
                                  parse_int("--nproc-per-node", value, 1, max_workers)};
    } else if (name == "standalone") {
        options.standalone = true;
    } else if (name == "master-addr") {
        options.master_addr = value;
    } else if (name == "master-port") {
        options.master_port =
            static_cast<std::uint16_t>(parse_int("--master-port", value, 0, 65535));
    } else if (name == "shutdown-timeout") {
        options.shutdown_timeout =
            std::chrono::seconds(parse_int("--shutdown-timeout", value, 0, max_shutdown_timeout_s));
    } else if (name == "max-restarts") {
        options.max_restarts = parse_int("--max-restarts", value, 0, 1'000'000);
    } else if (name == "restart-delay") {
        options.restart_delay = std::chrono::seconds(parse_int("--restart-delay", value, 0, 300));
    } else if (name == "same-failure-window") {
        options.same_failure_window = std::chrono::seconds(
            parse_int("--same-failure-window", value, 0, max_shutdown_timeout_s));
    } else if (name == "contain") {
        if (value != "base" && value != "pidns") fail_value("--contain", value, "base or pidns");
        options.contain = value == "base" ? Containment::base : Containment::pidns;
    } else if (name == "agent-store") {
        options.agent_store = parse_agent_store(value);
    } else if (name == "version") {
        if (options.action == Action::run) options.action = Action::version;
    } else if (name == "help") {
        options.action = Action::help;
    }
}

void check(Options& options) {
    if (options.action != Action::run) return;
    if (options.command.empty()) {
        throw UsageError(
            "no program to run; use ddp-launch [options] [--] program [args...], "
            "--help lists the options");
    }
    if (options.standalone) {
        options.master_addr = "127.0.0.1";
        options.master_port = 0;
    }
    if (options.agent_store == AgentStore::on && options.master_addr != "127.0.0.1" &&
        options.master_addr != "localhost") {
        throw UsageError("--master-addr: \"" + options.master_addr +
                         "\": the launcher's store serves 127.0.0.1 only; leave the option out, "
                         "or use --agent-store=off if rank 0 serves there");
    }
}

}  // namespace

SplitArguments split_arguments(std::span<char* const> arguments) {
    SplitArguments split;
    std::size_t next = 0;
    while (next < arguments.size()) {
        const std::string_view token = arguments[next];
        if (token == "--") {
            ++next;
            break;
        }
        if (token.size() < 2 || token.front() != '-') break;  // the program
        ++next;
        if (token == "-h") {
            split.options.emplace_back("--help");
            continue;
        }
        if (token[1] != '-') fail_unknown(token);
        const std::size_t equals = token.find('=');
        const std::string_view name = token.substr(0, equals).substr(2);
        const OptionSpec& spec = find_spec(token.substr(0, equals), name);
        const std::string option = std::string("--") + spec.name;
        if (spec.value == nullptr) {
            if (equals != token.npos) throw UsageError(option + " takes no value");
            split.options.push_back(option);
            continue;
        }
        if (equals == token.npos && next == arguments.size()) {
            throw UsageError(option + " needs a value: " + spec.value);
        }
        const std::string value(equals == token.npos ? std::string_view(arguments[next++])
                                                     : token.substr(equals + 1));
        if (value.empty()) throw UsageError(option + ": \"\" is no value; it needs " + spec.value);
        split.options.push_back(option + "=" + value);
    }
    split.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
    return split;
}

Options parse_options(std::span<char* const> arguments, const EnvLookup& environment) {
    SplitArguments split = split_arguments(arguments);
    Options options;
    if (const auto timeout = environment(shutdown_timeout_variable); timeout && !timeout->empty()) {
        options.shutdown_timeout = std::chrono::seconds(parse_int(
            std::string("$") + shutdown_timeout_variable, *timeout, 0, max_shutdown_timeout_s));
    }
    try {
        const po::options_description description = describe_options();
        using Style = po::command_line_style::style_t;
        const auto parsed = po::command_line_parser(split.options)
                                .options(description)
                                .style(Style::allow_long | Style::long_allow_adjacent)
                                .run();
        for (const auto& option : parsed.options) {
            apply(options, option.string_key, option.value.empty() ? "" : option.value.front());
        }
    } catch (const po::error& error) {
        throw UsageError(error.what());
    }
    options.command = std::move(split.command);
    check(options);
    return options;
}

std::string help_text() {
    std::ostringstream text;
    text << "Starts N copies of a program, tells each which rank it is, and stops all when one "
            "fails.\n"
            "\n"
            "usage: ddp-launch [options] [--] program [args...]\n"
            "\n"
         << describe_options()
         << "\n"
            "Underscores do for dashes in option names (--nproc_per_node=2). All words after the\n"
            "program are the program's. Exit code: that of the rank that failed first (128 + "
            "signal\n"
            "for a signal), 2 for a wrong command line, 126 and 127 for a program that cannot "
            "run.\n";
    return text.str();
}

}  // namespace ddp::launcher
