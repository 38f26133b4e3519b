#include "launcher/inspect/inspect_options.hpp"
#include "manual/manual.hpp"
#include "manual/mdoc.hpp"

#include <cctype>

namespace ddp::manual {
namespace {

using launcher::OptionGroup;
using launcher::OptionSpec;

// Not where the first word is to be typed, as in "on: ...".
std::string title_case(std::string word) {
    const std::string first = word.substr(0, word.find_first_of(" :,;"));
    const bool is_typed = word[first.size()] == ':' || first.find('_') != first.npos ||
                          first == "null" || first == "default";
    if (is_typed) return word;
    word.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(word.front())));
    return word;
}

std::string item(const OptionSpec& option) {
    std::string line = ".It ";
    const std::string value = option.is_flag() ? "" : option.value;
    if (*option.letter != '\0') {
        line += std::string("Fl ") + option.letter + (value.empty() ? "" : " Ar " + value) + " , ";
    }
    line += std::string("Fl Fl ") + option.name + (value.empty() ? "" : " Ns = Ns Ar " + value);
    std::string words = title_case(option.description);
    if (!words.ends_with('.')) words += ".";
    const std::string initial = option.initial;
    if (initial == "random") {
        words += " By default a random one.";
    } else if (!option.is_flag() && !initial.empty() && initial != "none") {
        words += " The default is " + initial + ".";
    }
    return line + "\n" + prose(words);
}

std::string options_by_group() {
    std::string all;
    for (int group = 0; group <= static_cast<int>(launcher::last_group); ++group) {
        all += std::string(".Ss ") + launcher::title_of(static_cast<OptionGroup>(group)) +
               "\n.Bl -tag -width Ds\n";
        for (const OptionSpec* option : offered_options()) {
            if (option->group == static_cast<OptionGroup>(group)) all += item(*option);
        }
        all += ".El\n";
    }
    return all;
}

// Beside PET_...
std::string variables() {
    std::string all;
    for (const OptionSpec* option : offered_options()) {
        if (*option->variable == '\0') continue;
        all += std::string(".It Ev ") + option->variable + "\nThe default of\n.Fl Fl " +
               option->name + " .\n";
    }
    return all;
}

std::string inspect_section() {
    std::string all = prose(launcher::inspect_summary) + ".Bl -tag -width Ds\n";
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        all += std::string(".It Fl Fl ") + (option.name + 2);
        if (option.value != nullptr) all += std::string(" Ns Op = Ns Ar ") + option.value;
        all += "\n" + prose(title_case(option.description) + ".");
    }
    return all + ".El\n";
}

std::string inspect_synopsis() {
    std::string all = ".Nm\n.Cm inspect\n.Op Ar RUN\n";
    for (const launcher::InspectOption& option : launcher::inspect_options()) {
        all += std::string(".Op Fl Fl ") + (option.name + 2);
        if (option.value != nullptr) all += std::string(" Ns Op = Ns Ar ") + option.value;
        all += "\n";
    }
    return all;
}

constexpr std::string_view description = R"(
.Sh DESCRIPTION
.Nm
starts copies of a program, the workers of a job, tells each which rank it is,
and stops all when one fails.
It takes torchrun's command lines and runs any program.
.Pp
All words after
.Ar program
are the program's;
.Li ${local_rank}
in them becomes the local rank.
A program whose name ends in .py is run by the interpreter of
.Fl Fl python ,
else by
.Ev PYTHON_EXEC ,
else by the python3 of the virtual environment in which
.Nm
lies, or of
.Ev VIRTUAL_ENV ,
else by that of
.Ev PATH .
A program that is called inspect is started as ./inspect.
.Pp
Names of options may be written with underscores, and shortened as long as one
option alone begins so.
@options@
)";

constexpr std::string_view end = R"(
.Sh ENVIRONMENT
Each of torchrun's options has a variable, which is its default: that of
.Fl Fl nproc-per-node
is
.Ev PET_NPROC_PER_NODE .
.Bl -tag -width Ds
.It Ev RANK , LOCAL_RANK , WORLD_SIZE , LOCAL_WORLD_SIZE , MASTER_ADDR , MASTER_PORT
Set for the workers, with the others that torchrun sets.
.It Ev OMP_NUM_THREADS
Set to 1 for each of several workers where it is not set.
@variables@
.It Ev DDP_LOG_LEVEL
Which of the launcher's own lines are shown: debug, info, warn, error or off.
.It Ev DDP_JOB_TOKEN_FILE
The file with the token that agents of other hosts need to join.
.El
.Sh EXIT STATUS
.Bl -tag -width Ds
.It 0
Every worker ended with 0.
.It 2
A wrong command line or variable; nothing was started.
.It 126 , 127
The program cannot be run, or is not there; nothing was started.
.It 82
A worker left because of another one, and none is more to blame.
.It 83
A worker could not stop, and was ended by its own watchdog.
.It 128 and more
128 and the number of the signal that the rank that failed first died of, or
that asked the launcher to stop; 141: nobody read its output any more.
.It others
The exit code of the rank that failed first; 1 for what the launcher itself
could not do, and after any failure with
.Fl Fl exit-code Ns =torchrun .
.El
.Sh EXAMPLES
Two workers on this host:
.Pp
.Dl ddp-launch -n 2 ./train --epochs 3
.Pp
What they would get, without starting them:
.Pp
.Dl ddp-launch -n 2 --dry-run ./train
.Pp
Four on each of two hosts, started over ssh:
.Pp
.Dl ddp-launch --hosts=h1:4,h2:4 ./train
.Pp
Who holds up the job that runs here, and where:
.Pp
.Dl ddp-launch inspect --stacks
.Sh SEE ALSO
.Xr ssh 1
)";

}  // namespace

std::string man_page(const std::string& date) {
    const std::string head =
        ".Dd " + date_of(date) +
        "\n.Dt DDP-LAUNCH 1\n.Os\n.Sh NAME\n.Nm ddp-launch\n"
        ".Nd start and supervise the workers of a job\n"
        ".Sh SYNOPSIS\n.Nm\n.Op Ar options\n.Op Fl Fl\n.Ar program\n.Op Ar args ...\n" +
        inspect_synopsis();
    return head + filled(description, {{"@options@", options_by_group()}}) +
           ".Ss Looking at a job: ddp-launch inspect\n" + inspect_section() +
           filled(end, {{"@variables@", variables()}});
}

}  // namespace ddp::manual
