#include "launcher/inspect/inspect_options.hpp"
#include "manual/manual.hpp"

namespace ddp::manual {
namespace {

using launcher::OptionSpec;

constexpr std::string_view text = R"sh(
#compdef ddp-launch
# Completion of ddp-launch for zsh; made from its table of options.

_ddp_launch_program() {
    local what=('files:file:_files' 'commands:command:_command_names -e')
    (( CURRENT > 2 )) || what+=('subcommands:subcommand:(inspect)')
    _alternative $what
}

_ddp_launch() {
    if (( CURRENT > 2 )) && [[ $words[2] == inspect ]]; then
        _arguments -s -S \
@inspect@
            '1:subcommand:(inspect)' '2: :{ true }'
        return
    fi
    local curcontext=$curcontext
    _arguments -s -S -A '-*' \
@options@
        '(-)1: :_ddp_launch_program' \
        '(-)*:: :_normal'
}

_ddp_launch "$@"
)sh";

// In an optspec, where these end its parts.
std::string part(std::string_view words) { return escaped(words, "\\]:", "\\"); }

std::string value_of(const OptionSpec& option) {
    using Kind = ValueWords::Kind;
    const ValueWords words = words_of(option);
    if (words.kind == Kind::flag) return "";
    const std::string value = ":" + part(option.value) + ":";
    switch (words.kind) {
        case Kind::choice:
            return value + "(" + joined(words.choices, " ") + ")";
        case Kind::file:
            return value + "_files";
        case Kind::folder:
            return value + "_files -/";
        case Kind::command:
            return value + "_command_names -e";
        case Kind::host:
            return value + "_hosts";
        default:
            return value + " ";
    }
}

std::string optspec(const OptionSpec& option) {
    const std::string name = std::string("--") + option.name;
    const std::string what = quoted("[" + part(option.description) + "]" + value_of(option));
    const std::string end = option.is_flag() ? "" : "=";
    if (*option.letter == '\0') {
        return "'" + std::string(is_repeatable(option) ? "*" : "") + name + end + "'" + what;
    }
    const std::string letter = std::string("-") + option.letter;
    return "'(" + letter + " " + name + ")'{" + letter + (option.is_flag() ? "" : "+") + "," +
           name + end + "}" + what;
}

}  // namespace

std::string zsh_completion() {
    std::string options;
    for (const OptionSpec* option : offered_options()) {
        options += "        " + optspec(*option) + " \\\n";
    }
    std::string of_inspect;
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        of_inspect +=
            std::string("            '") + option.name + (option.value == nullptr ? "" : "=-") +
            "'" +
            quoted("[" + part(option.description) + "]" +
                   (option.value == nullptr ? "" : std::string("::") + option.value + ": ")) +
            " \\\n";
    }
    return with_part("\n" + with_part(text, "@options@", options), "@inspect@", of_inspect);
}

}  // namespace ddp::manual
