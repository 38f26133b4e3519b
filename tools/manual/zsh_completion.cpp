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
    local -a names=(@names@) valued=(@valued@) alike
    local i=2 word is_module= has_program=
    # Options get the names that _arguments knows.
    while (( i < CURRENT )); do
        word=$words[i]
        case $word in
            (--) (( ++i )); has_program=yes; break ;;
            (--*=*) ;;
            (-np|--np) words[i]=--nproc-per-node; (( ++i )) ;;
            (-*)
                if [[ $word == --* ]]; then
                    word=${word//_/-}
                    alike=(${(M)names:#${(b)word}*})
                    (( ${names[(Ie)$word]} || $#alike != 1 )) || word=$alike[1]
                    words[i]=$word
                fi
                [[ $word != (-m|--module) ]] || is_module=yes
                (( ! ${valued[(Ie)$word]} )) || (( ++i ))
                ;;
            (*) has_program=yes; break ;;
        esac
        (( ++i ))
    done
    if [[ -n $has_program ]] && (( i < CURRENT )); then
        shift $(( i - 1 )) words
        (( CURRENT -= i - 1 ))
        if [[ -n $is_module ]]; then _files; else _normal; fi
        return
    fi
    if (( i == CURRENT )) && [[ -n $has_program || $words[i] != -* ]]; then
        [[ -n $is_module ]] || _ddp_launch_program
        return
    fi
    local curcontext=$curcontext
    _arguments -s -S -M 'm:_=- r:|[_-]=* r:|=*' \
@options@
        '*: :{ true }'
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
        return "'" + std::string(option.adds_up() ? "*" : "") + name + end + "'" + what;
    }
    const std::string letter = std::string("-") + option.letter;
    return "'(" + letter + " " + name + ")'{" + letter + (option.is_flag() ? "" : "+") + "," +
           name + end + "}" + what;
}

}  // namespace

std::string zsh_completion() {
    std::string options;
    std::vector<std::string> names;
    std::vector<std::string> valued;
    for (const OptionSpec* option : offered_options()) {
        options += "        " + optspec(*option) + " \\\n";
        names.push_back(std::string("--") + option->name);
        if (option->is_flag()) continue;
        valued.push_back(names.back());
        if (*option->letter != '\0') valued.push_back(std::string("-") + option->letter);
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
    return filled(text, {{"@options@", options},
                         {"@inspect@", of_inspect},
                         {"@names@", joined(names, " ")},
                         {"@valued@", joined(valued, " ")}});
}

}  // namespace ddp::manual
