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

# Into `takes`: what the option $1, in dashes, takes; of a long one also by a beginning that no other has.
_ddp_launch_takes() {
    local option=$1 name found=""
    if [[ $option == --* ]]; then
        for name in @names@; do
            [[ $name != "$option" ]] || { found=$name; break; }
            [[ $name != "$option"* ]] || found+=$name
        done
        option=${found:-$option}
    fi
    case $option in
@options@
        *) takes='flag' ;;
    esac
}

_ddp_launch_value() {
    compopt +o default +o bashdefault 2>/dev/null
    case $takes in
        file) is_file=yes; mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
        folder) is_file=yes; mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
        command) mapfile -t COMPREPLY < <(compgen -c -- "$cur") ;;
        host) mapfile -t COMPREPLY < <(compgen -A hostname -- "$cur") ;;
        anything) ;;
        *) mapfile -t COMPREPLY < <(compgen -W "$takes" -- "$cur") ;;
    esac
}

# Readline puts each reply in place of what is behind the last "=" or ":" before the cursor, or of the whole word, as
# COMP_WORDBREAKS has it: $1 is the word, $2 what it replaces of that.
_ddp_launch_fit() {
    local before=${1%"$cur"} kept=${1%"$2"} i
    [[ -z $is_file ]] || compopt -o filenames 2>/dev/null
    [[ $before != "$kept" && $1 != *[\"\']* ]] || return 0
    if [[ -n $is_file ]]; then
        for ((i = 0; i < ${#COMPREPLY[@]}; ++i)); do
            [[ ! -d ${COMPREPLY[i]} ]] || COMPREPLY[i]+=/
        done
        [[ ${COMPREPLY[0]-} != */ ]] || compopt -o nospace 2>/dev/null
    fi
    COMPREPLY=("${COMPREPLY[@]/#/"$before"}")
    COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}

# Completes the launcher's own words; or puts into `at` where the program is, where that has been typed.
_ddp_launch_own() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words=() places=() i gap word cur own takes is_file="" is_module="" ends=""
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
    own=$word
    [[ $own != [=:] || $COMP_WORDBREAKS != *"$own"* ]] || own=""

    if ((last > 1)) && [[ ${words[1]} == inspect ]]; then
        mapfile -t COMPREPLY < <(compgen -W '@inspect@' -- "$cur")
        compopt +o default +o bashdefault 2>/dev/null
        return
    fi
    for ((i = 1; i < last; ++i)); do
        word=${words[i]}
        case $word in
            --) ((++i)); ends=yes; break ;;
            --*=*) continue ;;
            --*) _ddp_launch_takes "${word//_/-}" ;;
            -np | -?) _ddp_launch_takes "$word" ;;
            -*) continue ;;
            *) break ;;
        esac
        [[ $word != -m && $word != --module ]] || is_module=yes
        [[ $takes != flag ]] || continue
        ((++i))
        if ((i == last)); then
            _ddp_launch_value
            _ddp_launch_fit "$cur" "$own"
            return
        fi
    done
    if ((i < last)); then
        [[ -n $is_module ]] || at=${places[i]}
        return
    fi
    word=$cur
    case $ends$cur in
        --*=*)
            cur=${cur#*=}
            word=${word%%=*}
            _ddp_launch_takes "${word//_/-}"
            [[ $takes == flag ]] || _ddp_launch_value
            word=$word=$cur
            ;;
        -*)
            mapfile -t COMPREPLY < <(compgen -W '@names@' -- "${cur//_/-}")
            if [[ $cur == --*_* ]]; then
                COMPREPLY=("${COMPREPLY[@]//-/_}")
                COMPREPLY=("${COMPREPLY[@]/#__/--}")
            fi
            return
            ;;
        *)
            compopt +o default +o bashdefault 2>/dev/null
            [[ -z $is_module ]] || return
            is_file=yes
            mapfile -t COMPREPLY < <(compgen -c -f -- "$cur")
            ((last > 1)) || [[ inspect != "$cur"* ]] || COMPREPLY+=(inspect)
            ;;
    esac
    _ddp_launch_fit "$word" "$own"
}

# What is not completed here is bash's own affair.
_ddp_launch() {
    local at=""
    COMPREPLY=()
    _ddp_launch_own
    [[ -n $at ]] || return 0
    if declare -F _comp_command_offset >/dev/null; then
        _comp_command_offset "$at"
    elif declare -F _command_offset >/dev/null; then
        _command_offset "$at"
    fi
}

complete -o bashdefault -o default -F _ddp_launch ddp-launch
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
    std::vector<std::string> of_inspect;
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        of_inspect.emplace_back(option.name);
    }
    return filled(text, {{"@options@", cases},
                         {"@names@", joined(names, " ")},
                         {"@inspect@", joined(of_inspect, " ")}});
}

}  // namespace ddp::manual
