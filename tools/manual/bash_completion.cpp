// For bash 4.4 or later, with or without the package bash-completion, which knows how to complete
// the program's own arguments.
#include "launcher/inspect/inspect_options.hpp"
#include "manual/manual.hpp"

namespace ddp::manual {
namespace {

using launcher::OptionSpec;

// Bash cuts words at "=" and ":"; here they are put together again, up to the cursor.
constexpr std::string_view text = R"sh(
# Completion of ddp-launch for bash; made from its table of options.

# Into `takes`: what the option $1, in dashes, takes.
_ddp_launch_takes() {
    case $1 in
@options@
        *) takes='flag' ;;
    esac
}

# Completes a word among files, as a file.
_ddp_launch_files() {
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen "$@" -- "$cur")
}

_ddp_launch_value() {
    case $takes in
        file) _ddp_launch_files -f ;;
        folder) _ddp_launch_files -d ;;
        command) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
        host) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
        anything) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$takes" -- "$cur") ;;
    esac
    [[ -z $prefix ]] || COMPREPLY=("${COMPREPLY[@]/#/$prefix}")
}

# The program, or one of its arguments, when it is COMP_WORDS[$1].
_ddp_launch_program() {
    if (($1 == COMP_CWORD)); then
        _ddp_launch_files -c -f
    elif declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$1"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$1"
    else
        _ddp_launch_files -f
    fi
}

_ddp_launch() {
    local line=${COMP_LINE:0:COMP_POINT} words=() places=() i gap word cur prefix="" takes underscores=""
    COMPREPLY=()
    for ((i = 0; i <= COMP_CWORD; ++i)); do
        gap=${line%%[![:space:]]*}
        line=${line#"$gap"}
        word=${COMP_WORDS[i]}
        ((i < COMP_CWORD)) || word=$line
        line=${line#"$word"}
        if [[ -n $gap || $i == 0 ]]; then
            words+=("$word")
            places+=("$i")
        else
            words[-1]+=$word
        fi
    done
    local last=$((${#words[@]} - 1))
    cur=${words[last]}

    if ((last > 1)) && [[ ${words[1]} == inspect ]]; then
        mapfile -t COMPREPLY < <(compgen -W '@inspect@' -- "$cur")
        return
    fi
    for ((i = 1; i < last; ++i)); do
        word=${words[i]}
        case $word in
            --) _ddp_launch_program "${places[i + 1]}"; return ;;
            --*=*) continue ;;
            --*) _ddp_launch_takes "${word//_/-}" ;;
            -np | -? ) _ddp_launch_takes "$word" ;;
            -*) continue ;;
            *) _ddp_launch_program "${places[i]}"; return ;;
        esac
        [[ $takes != flag ]] || continue
        ((++i))
        if ((i == last)); then
            _ddp_launch_value
            return
        fi
    done
    case $cur in
        --*=*)
            word=${cur%%=*}
            cur=${cur#*=}
            _ddp_launch_takes "${word//_/-}"
            [[ $COMP_WORDBREAKS == *=* ]] || prefix=$word=
            [[ $takes == flag ]] || _ddp_launch_value
            ;;
        -*)
            [[ $cur != --*_* ]] || underscores=yes
            mapfile -t COMPREPLY < <(compgen -W '@names@' -- "${cur//_/-}")
            if [[ -n $underscores ]]; then
                COMPREPLY=("${COMPREPLY[@]//-/_}")
                COMPREPLY=("${COMPREPLY[@]/#__/--}")
            fi
            ;;
        *)
            _ddp_launch_program "$COMP_CWORD"
            ((last > 1)) || [[ inspect != "$cur"* ]] || COMPREPLY+=(inspect)
            ;;
    esac
}

complete -F _ddp_launch ddp-launch
)sh";

std::string kind_of(const ValueWords& words) {
    using Kind = ValueWords::Kind;
    switch (words.kind) {
        case Kind::flag:
            return "'flag'";
        case Kind::anything:
            return "'anything'";
        case Kind::choice:
            return quoted(joined(words.choices, " "));
        case Kind::file:
            return "'file'";
        case Kind::folder:
            return "'folder'";
        case Kind::command:
            return "'command'";
        case Kind::host:
            return "'host'";
    }
    return "'anything'";
}

void replace(std::string& whole, const std::string& mark, const std::string& part) {
    whole.replace(whole.find(mark), mark.size(), part);
}

}  // namespace

std::string bash_completion() {
    std::string cases;
    std::vector<std::string> names;
    for (const OptionSpec* option : offered_options()) {
        const std::string name = std::string("--") + option->name;
        names.push_back(name);
        const ValueWords words = words_of(*option);
        if (words.kind == ValueWords::Kind::flag) continue;
        cases += "        " + name;
        if (*option->alias != '\0') {
            cases += std::string(" | --") + option->alias + " | -" + option->alias;
        }
        if (*option->letter != '\0') cases += std::string(" | -") + option->letter;
        cases += ") takes=" + kind_of(words) + " ;;\n";
    }
    std::vector<std::string> of_inspect{"--help"};
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        of_inspect.emplace_back(option.name);
    }
    std::string whole = with_part(text, "@options@", cases);
    replace(whole, "@names@", joined(names, " "));
    replace(whole, "@inspect@", joined(of_inspect, " "));
    return whole;
}

}  // namespace ddp::manual
