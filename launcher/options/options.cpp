// From words and variables to Options. Program_options sees the launcher's part alone, since it
// would reject or eat words of the worker's; all that is special about an option is in the table.
#include "launcher/options/options.hpp"

#include "launcher/options/option_table.hpp"
#include "launcher/options/option_values.hpp"
#include "launcher/options/split_arguments.hpp"

#include <ddp/error.hpp>

#include <boost/program_options.hpp>

#include <algorithm>
#include <sstream>

namespace ddp::launcher {
namespace {

namespace po = boost::program_options;

// A value that somebody gave, in order of precedence: a later one of the same option wins.
struct Setting {
    const OptionSpec* spec;
    std::string label;  // where it was found
    std::string text;
};

std::string long_name(const OptionSpec& spec) { return std::string("--") + spec.name; }

void add(const OptionSpec& spec, po::options_description& description) {
    const bool has_default =
        !spec.is_flag() && *spec.initial != '\0' && spec.initial != std::string_view("none");
    const std::string text = (spec.apply == nullptr ? "refused: " : "") +
                             std::string(spec.description) +
                             (has_default ? std::string(" (default ") + spec.initial + ")" : "");
    const std::string name =
        spec.name + (*spec.letter != '\0' ? "," + std::string(spec.letter) : "");
    if (spec.is_flag()) {
        description.add_options()(name.c_str(), text.c_str());
    } else {
        auto* semantic = po::value<std::string>();
        semantic->value_name(spec.value);
        description.add_options()(name.c_str(), semantic, text.c_str());
    }
}

po::options_description describe_options(OptionGroup group) {
    po::options_description description(title_of(group), 100);
    for (const OptionSpec& spec : option_table()) {
        if (spec.group == group) add(spec, description);
    }
    return description;
}

po::options_description describe_options() {
    po::options_description all;
    for (int group = 0; group <= static_cast<int>(last_group); ++group) {
        all.add(describe_options(static_cast<OptionGroup>(group)));
    }
    return all;
}

// Only what these may mean, which are "--name=value" and "--flag", as split_arguments() leaves
// them: to describe all options took a twenty-fifth of a job's start.
po::options_description describe_given(const std::vector<std::string>& options) {
    po::options_description description;
    for (const OptionSpec& spec : option_table()) {
        const std::string name = long_name(spec);
        const bool is_given = std::ranges::any_of(options, [&](const std::string& option) {
            return name.starts_with(option.substr(0, option.find('=')));
        });
        if (is_given) add(spec, description);
    }
    return description;
}

std::vector<Setting> settings_of_command_line(const std::vector<std::string>& options) {
    std::vector<Setting> settings;
    if (options.empty()) return settings;
    try {
        const po::options_description description = describe_given(options);
        using Style = po::command_line_style::style_t;
        const auto parsed = po::command_line_parser(options)
                                .options(description)
                                .style(Style::allow_long | Style::long_allow_adjacent)
                                .run();
        for (const auto& option : parsed.options) {
            const OptionSpec& spec = find_option(option.string_key, option.string_key);
            settings.push_back(
                {&spec, long_name(spec), option.value.empty() ? "1" : option.value.front()});
        }
    } catch (const po::error& error) {
        throw UsageError(error.what());
    }
    return settings;
}

std::vector<Setting> settings_of_environment(const EnvLookup& environment) {
    std::vector<Setting> settings;
    for (const OptionSpec& spec : option_table()) {
        for (const std::string& variable : {std::string(spec.variable), spec.pet_variable()}) {
            if (variable.empty()) continue;
            const auto text = environment(variable);
            if (text && !text->empty()) settings.push_back({&spec, "$" + variable, *text});
        }
    }
    return settings;
}

void apply(Options& options, const Setting& setting) {
    const OptionSpec& spec = *setting.spec;
    if (spec.apply != nullptr) return spec.apply(options, {setting.label, setting.text});
    if (spec.is_flag() && setting.text == "0") return;
    const std::string value = spec.is_flag() ? " is" : ": \"" + setting.text + "\" is";
    throw UsageError(setting.label + value + " not supported: " + spec.description);
}

void check_serve_only(const Options& options) {
    const auto refuse = [](const char* other) {
        throw UsageError("--serve-only with " + std::string(other) +
                         ": it coordinates other hosts and has no workers of its own; leave one of "
                         "them out");
    };
    if (!options.program.command.empty()) refuse("a program");
    if (options.nproc_per_node.what != CountOf::not_given) refuse("--nproc-per-node");
    if (options.remote.has_hosts()) refuse("--hosts or --hostfile");
    if (options.hosts.flags.node_rank) refuse("--node-rank");
    if (options.hosts.flags.standalone) refuse("--standalone");
}

void check(const Options& options) {
    if (options.hosts.serve_only) return check_serve_only(options);
    if (options.action != Action::print_config && options.program.command.empty()) {
        throw UsageError(
            "no program to run; use ddp-launch [options] [--] program [args...], "
            "--help lists the options");
    }
    const RemoteOptions& remote = options.remote;
    if (!remote.hosts.empty() && !remote.hostfile.empty()) {
        throw UsageError("--hosts and --hostfile: both say the hosts; write one of them");
    }
    if (!remote.env.empty() && !remote.has_hosts()) {
        throw UsageError(
            "--env: workers of this host have all variables of the launcher; it is for hosts that "
            "--hosts or --hostfile names");
    }
    const WorkerCount& count = options.nproc_per_node;
    if (remote.has_hosts()) return;  // each host has its number
    if (count.what == CountOf::number || count.what == CountOf::not_given) {
        check_local_ranks(options, count.number);
    }
}

bool asks_for(const std::vector<Setting>& settings, std::string_view name) {
    return std::any_of(settings.begin(), settings.end(),
                       [&](const Setting& setting) { return setting.spec->name == name; });
}

std::string source_of(const Setting& setting) {
    return setting.label.starts_with('$') ? setting.label : "command line";
}

std::string config_line(const OptionSpec& spec, const std::string& text,
                        const std::string& source) {
    constexpr std::size_t name_width = 28;
    constexpr std::size_t value_width = 32;
    std::string line = long_name(spec);
    line.resize(std::max(line.size() + 1, name_width), ' ');
    line += spec.is_flag() && text == "1" ? "on" : spec.is_flag() && text == "0" ? "off" : text;
    line.resize(std::max(line.size() + 1, name_width + value_width), ' ');
    return line + source + "\n";
}

}  // namespace

Options parse_options(std::span<char* const> arguments, const EnvLookup& environment) {
    SplitArguments split = split_arguments(arguments);
    const std::vector<Setting> given = settings_of_command_line(split.options);
    Options options;
    options.program.command = std::move(split.command);
    for (const auto& [name, action] :
         {std::pair{"help", Action::help}, {"version", Action::version}}) {
        if (!asks_for(given, name)) continue;
        options.action = action;
        return options;
    }
    const std::vector<Setting> defaults = settings_of_environment(environment);
    for (const Setting& setting : defaults) apply(options, setting);
    for (const Setting& setting : given) apply(options, setting);
    check(options);
    if (options.hosts.serve_only) options.nproc_per_node = {CountOf::number, 0};
    return options;
}

void check_local_ranks(const Options& options, int workers) {
    const auto check = [&](const char* option, int rank) {
        require_rank(option, rank, "local rank", workers);
    };
    for (const auto& [rank, streams] : options.logs.redirects.listed) check("--redirects", rank);
    for (const auto& [rank, streams] : options.logs.tee.listed) check("--tee", rank);
    for (const int rank : options.display.local_ranks_filter.value_or(std::vector<int>{})) {
        check("--local-ranks-filter", rank);
    }
    for (const Wrap& wrap : options.program.wraps) {
        for (const int rank : wrap.local_ranks) check("--wrap", rank);
    }
}

std::string help_text() {
    std::ostringstream text;
    text << "Starts N copies of a program, tells each which rank it is, and stops all when one "
            "fails.\n"
            "\n"
            "usage: ddp-launch [options] [--] program [args...]\n"
            "example: ddp-launch --nproc-per-node=2 ./train --epochs 3\n"
            "         starts ./train --epochs 3 twice, as rank 0 and rank 1 of a world of 2\n"
            "look at a job that runs, or has ended: ddp-launch inspect --help\n"
         << describe_options()
         << "\n"
            "Option names may be written with underscores (--nproc_per_node=2) and shortened as\n"
            "long as one option begins so. PET_NPROC_PER_NODE=2 is a default for that option;\n"
            "torchrun's other options have such variables too. A program that ends in .py is run\n"
            "by --python's interpreter, else $PYTHON_EXEC, else the virtual environment's\n"
            "python3, else that of PATH. All words after the program are the program's;\n"
            "${local_rank} in them becomes the local rank. Exit code: that of the rank that\n"
            "failed first (128 + signal for a signal), 2 for a wrong command line, 126 and 127\n"
            "for a program that cannot run.\n";
    return text.str();
}

std::string config_text(std::span<char* const> arguments, const EnvLookup& environment) {
    std::vector<Setting> settings = settings_of_environment(environment);
    const SplitArguments split = split_arguments(arguments);
    for (Setting& setting : settings_of_command_line(split.options)) {
        settings.push_back(std::move(setting));
    }
    std::string text;
    for (const OptionSpec& spec : option_table()) {
        if (spec.apply == nullptr || spec.group == OptionGroup::other) continue;
        std::vector<const Setting*> found;
        for (const Setting& setting : settings) {
            if (setting.spec == &spec) found.push_back(&setting);
        }
        if (found.empty()) text += config_line(spec, spec.initial, "default");
        if (!spec.adds_up() && found.size() > 1) found.erase(found.begin(), found.end() - 1);
        for (const Setting* setting : found) {
            text += config_line(spec, setting->text, source_of(*setting));
        }
    }
    return text;
}

}  // namespace ddp::launcher
