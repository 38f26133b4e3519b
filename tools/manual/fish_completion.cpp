#include "launcher/inspect/inspect_options.hpp"
#include "manual/manual.hpp"

namespace ddp::manual {
namespace {

using launcher::OptionSpec;

constexpr std::string_view text = R"sh(
# Completion of ddp-launch for fish; made from its table of options.

# Prints the place of the program among the words before the cursor, which is the one behind them
# after a "--". Fails with 1 where the program is still to come, with 2 where an option's value is.
function __ddp_launch_program_at
    set -l names @names@
    set -l valued @valued@
    set -l words (commandline -opc)
    set -l i 2
    while test $i -le (count $words)
        switch $words[$i]
            case --
                math $i + 1
                return 0
            case '--*=*'
            case '--*'
                set -l name (string replace -a _ - -- $words[$i])
                set -l alike (string match -- $name'*' $names)
                if not contains -- $name $names; and test (count $alike) -eq 1
                    set name $alike
                end
                contains -- $name $valued; and set i (math $i + 1)
            case '-*'
                contains -- $words[$i] $valued; and set i (math $i + 1)
            case '*'
                echo $i
                return 0
        end
        set i (math $i + 1)
    end
    test $i -eq (math (count $words) + 1)
    and return 1
    return 2
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

function __ddp_launch_has_module
    set -l words (commandline -opc)
    set -l at (__ddp_launch_program_at); or set at (math (count $words) + 1)
    contains -- -m $words[1..(math $at - 1)]; or contains -- --module $words[1..(math $at - 1)]
end

function __ddp_launch_wants_program
    __ddp_launch_inspects; and return 1
    __ddp_launch_program_at >/dev/null
    test $status -eq 1; and not __ddp_launch_has_module; and not string match -q -- '-*' (commandline -ct)
end

function __ddp_launch_program
    set -l words (commandline -opc)
    set -l own $words[(__ddp_launch_program_at)..-1]
    set -l token (commandline -ct)
    set -l typed (string escape -- $own) $token
    if __ddp_launch_has_module
        __fish_complete_path $token
    else if not string match -q -- '-*' $typed[1]
        set -l line (string join ' ' -- $typed)
        complete --do-complete=$line
    end
end

complete -c ddp-launch -n 'not __ddp_launch_wants_program' -f
complete -c ddp-launch -n __ddp_launch_wants_program -a '(__fish_complete_command)'
complete -c ddp-launch -n 'test (count (commandline -opc)) -eq 1' -a inspect -d 'Look at a job that runs, or has ended'
complete -c ddp-launch -n __ddp_launch_has_program -x -a '(__ddp_launch_program)'
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
    std::vector<std::string> names;
    std::vector<std::string> valued;
    for (const OptionSpec* option : offered_options()) {
        const std::string value = value_of(*option);
        const std::string complete = "complete -c ddp-launch -n __ddp_launch_has_options";
        options += complete + " -l " + option->name;
        if (*option->letter != '\0') options += std::string(" -s ") + option->letter;
        options += value + " -d " + fish_quoted(option->description) + "\n";
        names.push_back(std::string("--") + option->name);
        if (option->is_flag()) continue;
        valued.push_back(names.back());
        if (*option->letter != '\0') valued.push_back(std::string("-") + option->letter);
        if (*option->alias == '\0') continue;
        const std::string alias = option->alias;
        options += complete;
        options.append(" -l ").append(alias).append(" -o ").append(alias).append(value).append(
            "\n");
        valued.push_back("-" + alias);
        valued.push_back("--" + alias);
    }
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        options += std::string("complete -c ddp-launch -n __ddp_launch_inspects -l ") +
                   (option.name + 2) + " -d " + fish_quoted(option.description) + "\n";
    }
    return filled(text, {{"@options@", options},
                         {"@names@", joined(names, " ")},
                         {"@valued@", joined(valued, " ")}});
}

}  // namespace ddp::manual
