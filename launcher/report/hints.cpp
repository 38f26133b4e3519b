// By how the process ended (two switches) and by what it wrote (a table). The texts searched for
// are those of glibc, CUDA, NCCL and Python; a match is by part of a line.
#include "launcher/report/hints.hpp"

#include "contract/exit_code.hpp"

#include <array>
#include <csignal>
#include <optional>
#include <string_view>

namespace ddp::launcher {
namespace {

constexpr std::size_t max_hints = 3;

bool holds(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

// What stands between two texts, on one line; nothing when it is not there or absurdly long.
std::optional<std::string> between(std::string_view text, std::string_view before,
                                   std::string_view after) {
    constexpr std::size_t longest = 200;
    const std::size_t found = text.find(before);
    if (found == text.npos) return std::nullopt;
    const std::size_t start = found + before.size();
    const std::size_t end = text.find(after, start);
    if (end == text.npos || end == start || end - start > longest) return std::nullopt;
    const std::string_view part = text.substr(start, end - start);
    if (holds(part, "\n")) return std::nullopt;
    return std::string(part);
}

std::string oom_hint(OomEvidence evidence) {
    switch (evidence) {
        case OomEvidence::cgroup:
            return "the kernel's OOM killer ended it: its cgroup's count of OOM kills rose; give "
                   "the job more memory or let it use less";
        case OomEvidence::host:
            return "probably the kernel's OOM killer ended it: this host's count of OOM kills rose "
                   "while the job ran; see dmesg";
        case OomEvidence::none:
            return "nobody here sent it and no OOM kill was counted; look at who else kills: a "
                   "scheduler's time or memory limit, systemd-oomd, earlyoom, a person";
        case OomEvidence::unknown:
            return "maybe the kernel's OOM killer, which cannot be seen from here; see dmesg, or "
                   "the host's memory graphs";
    }
    return {};
}

std::optional<std::string> hint_for_signal(int signal, OomEvidence oom) {
    switch (signal) {
        case SIGKILL:
            return oom_hint(oom);
        case SIGILL:
            return "SIGILL: built for another CPU? compare the build's -march with lscpu";
        case SIGBUS:
            return "SIGBUS: a full /dev/shm or disk under memory that is mapped from it? see "
                   "df /dev/shm and df of the data's folder";
        case SIGSEGV:
        case SIGFPE:
            return "for a stack trace: --wrap='RANK:gdb -batch -ex run -ex bt --args', or ulimit "
                   "-c "
                   "unlimited before the launch for a core file; --break-on-failure holds a "
                   "program "
                   "that uses ddp there for gdb";
        case SIGXCPU:
            return "the limit on CPU time was reached: ulimit -t";
        case SIGXFSZ:
            return "the limit on file size was reached: ulimit -f";
        case SIGPIPE:
            return "it wrote to a pipe or socket that nobody reads any more";
    }
    return std::nullopt;
}

std::optional<std::string> hint_for_code(int code, std::string_view text) {
    switch (code) {
        case contract::exit_because_of_peer:
            return "82: it left because of another rank, whom its error file would name; its log "
                   "says "
                   "more";
        case contract::exit_could_not_abort:
            return "83: its own watchdog ended it, since a collective could not be aborted; an "
                   "earlier line of its log names the operation";
        case contract::exit_not_executable:
            return "126: what it was to run is no executable file (mode, or another machine's?)";
        case contract::exit_not_found:
            if (holds(text, "error while loading shared libraries")) return std::nullopt;
            return "127: a program was not found along PATH; the launcher found the first one, so "
                   "look at what it starts";
    }
    if (code > contract::exit_signal_base && code <= contract::exit_signal_base + 64) {
        return std::to_string(code) + " is what shells return for " +
               signal_name(code - contract::exit_signal_base) +
               " of a program that they ran; exec it to have the signal seen";
    }
    return std::nullopt;
}

std::optional<std::string> missing_library_hint(std::string_view text) {
    const auto library = between(text, "error while loading shared libraries: ", ":");
    if (!library) return std::nullopt;
    return "the shared library " + *library +
           " is not found: install its package, or name its folder in LD_LIBRARY_PATH (ldd "
           "PROGRAM shows what is missing)";
}

std::optional<std::string> missing_module_hint(std::string_view text) {
    const auto module = between(text, "No module named '", "'");
    if (!module || !holds(text, "ModuleNotFoundError")) return std::nullopt;
    return "Python does not find the module " + *module +
           ": another environment than the one it is installed in? PYTHON_EXEC names the "
           "interpreter, PYTHONPATH its folders";
}

struct TextHint {
    std::string_view part;
    std::string_view hint;
};

constexpr std::array text_hints{
    TextHint{"CUDA out of memory",
             "the GPU's memory is full: a smaller batch, or somebody else on it (nvidia-smi)"},
    TextHint{"CUDA error: out of memory",
             "the GPU's memory is full: a smaller batch, or somebody else on it (nvidia-smi)"},
    TextHint{"invalid device ordinal",
             "there are fewer visible GPUs than ranks: --nproc-per-node=gpu starts one rank a GPU; "
             "see CUDA_VISIBLE_DEVICES"},
    TextHint{"no CUDA-capable device is detected",
             "no GPU is visible: see CUDA_VISIBLE_DEVICES and nvidia-smi"},
    TextHint{"CUDA driver version is insufficient",
             "the driver is older than the CUDA runtime that the program was built with; "
             "nvidia-smi names the newest that it runs"},
    TextHint{"Duplicate GPU detected",
             "two ranks chose the same GPU: each must take cuda:LOCAL_RANK"},
    TextHint{"an illegal memory access was encountered",
             "a kernel read or wrote where it must not: CUDA_LAUNCH_BLOCKING=1 shows which, and "
             "--wrap='RANK:compute-sanitizer' where"},
    TextHint{"unhandled system error",
             "NCCL_DEBUG=INFO says which system call of NCCL's failed (often a network interface: "
             "NCCL_SOCKET_IFNAME, or a small /dev/shm)"},
    TextHint{"unhandled cuda error", "NCCL_DEBUG=INFO says which CUDA call of NCCL's failed"},
    TextHint{"Watchdog caught collective operation timeout",
             "a rank did not reach the collective: the others wait for whoever is missing in "
             "their lines above"},
    TextHint{"enforce fail at ./gloo/transport/tcp/pair.cc",
             "Gloo got a message of another size than this rank's call expects: the ranks' "
             "collectives differ, in operation, count or element type, or one was left out; the "
             "others' tracebacks show where each of them was"},
    TextHint{"Address already in use",
             "a port that the program opens itself is taken: leave MASTER_PORT to the launcher, or "
             "choose a free one (ss -ltnp shows by whom)"},
    TextHint{"EADDRINUSE",
             "a port that the program opens itself is taken: leave MASTER_PORT to the launcher, or "
             "choose a free one (ss -ltnp shows by whom)"},
    TextHint{"unrecognized arguments: --local",
             "the script takes no --local_rank: leave out --pass-local-rank, it reads LOCAL_RANK"},
    TextHint{"Too many open files", "the limit on open files was reached: ulimit -n"},
    TextHint{"No space left on device", "a disk or /dev/shm is full: see df"},
    TextHint{"std::bad_alloc", "memory could not be had: see ulimit -v and the host's free memory"},
    TextHint{"GLIBC_", "built on a newer system than this one: build it here, or on an older one"},
    TextHint{"CXXABI_",
             "built with a newer libstdc++ than this host's: LD_LIBRARY_PATH may name "
             "the right one"},
};

// The options in a hint are to be copied as they are.
std::string for_rank(std::string hint, int rank) {
    constexpr std::string_view placeholder = "='RANK:";
    const std::size_t found = hint.find(placeholder);
    if (found == hint.npos) return hint;
    return hint.replace(found, placeholder.size(), "='" + std::to_string(rank) + ":");
}

// "GLIBC_2.38" alone is no failure.
bool applies(const TextHint& hint, std::string_view text) {
    if (!holds(text, hint.part)) return false;
    const bool is_version = hint.part.ends_with('_');
    return !is_version || holds(text, "' not found");
}

}  // namespace

std::vector<std::string> hints_for(const HintFacts& facts) {
    std::vector<std::string> hints;
    const auto add = [&](const std::optional<std::string>& text) {
        if (!text || hints.size() == max_hints) return;
        const std::string hint = for_rank(*text, facts.rank);
        for (const std::string& known : hints) {
            if (known == hint) return;
        }
        hints.push_back(hint);
    };
    add(missing_library_hint(facts.text));
    add(missing_module_hint(facts.text));
    for (const TextHint& hint : text_hints) {
        if (applies(hint, facts.text)) add(std::string(hint.hint));
    }
    add(facts.status.signal != 0 ? hint_for_signal(facts.status.signal, facts.oom)
                                 : hint_for_code(facts.status.code, facts.text));
    return hints;
}

}  // namespace ddp::launcher
