#include "launcher/inspect/inspect_options.hpp"
#include "manual/manual.hpp"

namespace ddp::manual {
namespace {

using launcher::OptionSpec;

constexpr std::string_view text = R"sh(
# Completion of ddp-launch for fish; made from its table of options.

# Prints the place of the program among the words before the cursor, which is the one behind them
# after a "--"; fails where the program is still to come.
function __ddp_launch_program_at
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch (string replace -a _ - -- $words[$i])
            case --
                math $i + 1
                return 0
@takes@
                set i (math $i + 1)
            case '-*'
            case '*'
                echo $i
                return 0
        end
        set i (math $i + 1)
    end
    return 1
end

function __ddp_launch_inspects
    set -l words (commandline -opc)
    test (count $words) -ge 2; and test $words[2] = inspect
end

function __ddp_launch_has_options
    not __ddp_launch_inspects; and not __ddp_launch_program_at >/dev/null
end

function __ddp_launch_has_program
    not __ddp_launch_inspects; and __ddp_launch_program_at >/dev/null
end

function __ddp_launch_program
    set -l words (commandline -opc)
    set -l own $words[(__ddp_launch_program_at)..-1]
    complete -C (string join ' ' -- (string escape -- $own) (commandline -ct))
end

complete -c ddp-launch -n __ddp_launch_has_options -a '(__fish_complete_command)'
complete -c ddp-launch -n 'test (count (commandline -opc)) -eq 1' -a inspect -d 'Look at a job that runs, or has ended'
complete -c ddp-launch -n __ddp_launch_has_program -x -a '(__ddp_launch_program)'
complete -c ddp-launch -n __ddp_launch_inspects -f
@options@
)sh";

// Fish knows two escapes within quotes.
std::string fish_quoted(std::string_view words) { return "'" + escaped(words, "\\'", "\\") + "'"; }

std::string value_of(const OptionSpec& option) {
    using Kind = ValueWords::Kind;
    const ValueWords words = words_of(option);
    switch (words.kind) {
        case Kind::flag:
            return "";
        case Kind::anything:
            return " -x";
        case Kind::choice:
            return " -x -a '" + joined(words.choices, " ") + "'";
        case Kind::file:
            return " -r -F";
        case Kind::folder:
            return " -x -a '(__fish_complete_directories (commandline -ct))'";
        case Kind::command:
            return " -x -a '(__fish_complete_command)'";
        case Kind::host:
            return " -x -a '(__fish_print_hostnames)'";
    }
    return "";
}

}  // namespace

std::string fish_completion() {
    std::string options;
    std::vector<std::string> takes{"            case"};
    for (const OptionSpec* option : offered_options()) {
        options +=
            std::string("complete -c ddp-launch -n __ddp_launch_has_options -l ") + option->name;
        if (*option->letter != '\0') options += std::string(" -s ") + option->letter;
        options += value_of(*option) + " -d " + fish_quoted(option->description) + "\n";
        if (option->is_flag()) continue;
        takes.push_back(std::string("--") + option->name);
        if (*option->letter != '\0') takes.push_back(std::string("-") + option->letter);
        if (*option->alias == '\0') continue;
        takes.push_back(std::string("-") + option->alias);
        takes.push_back(std::string("--") + option->alias);
    }
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        options += std::string("complete -c ddp-launch -n __ddp_launch_inspects -l ") +
                   (option.name + 2) + " -d " + fish_quoted(option.description) + "\n";
    }
    return with_part("\n" + with_part(text, "@takes@", joined(takes, " ") + "\n"), "@options@",
                     options);
}

}  // namespace ddp::manual
