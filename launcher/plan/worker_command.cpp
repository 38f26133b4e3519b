// torchrun substitutes in the arguments that follow the executable: for Python that is the script's
// name too, for a program it is not the program's.
#include "launcher/plan/worker_command.hpp"

#include <algorithm>
#include <map>

namespace ddp::launcher {
namespace {

bool is_name_start(char c) { return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_name_char(char c) { return is_name_start(c) || (c >= '0' && c <= '9'); }

std::size_t end_of_name(std::string_view text, std::size_t start) {
    if (start >= text.size() || !is_name_start(text[start])) return start;
    while (start < text.size() && is_name_char(text[start])) ++start;
    return start;
}

bool runs_under_python(const Options& options) {
    switch (options.program.kind) {
        case ProgramKind::module:
        case ProgramKind::script:
            return true;
        case ProgramKind::executable:
            return false;
        case ProgramKind::automatic:
            return options.program.command.front().ends_with(".py");
    }
    return false;
}

bool applies(const Wrap& wrap, int local_rank) {
    const auto& ranks = wrap.local_ranks;
    return ranks.empty() || std::find(ranks.begin(), ranks.end(), local_rank) != ranks.end();
}

// Finds each name once, however many workers use it.
class Paths {
public:
    explicit Paths(const ProgramSearch& search) : search_(search) {}

    std::string of(const std::string& name) {
        const auto known = found_.find(name);
        if (known != found_.end()) return known->second;
        Program program = search_.program(name);
        if (!program.problem.empty() && missing_.problem.empty()) missing_ = program;
        return found_.emplace(name, std::move(program.path)).first->second;
    }
    void require_script(const std::string& name) {
        Program script = search_.script(name);
        if (!script.problem.empty() && missing_.problem.empty()) missing_ = std::move(script);
    }
    void add_hint(const std::string& hint) {
        if (!missing_.problem.empty()) missing_.problem += hint;
    }
    const Program& missing() const { return missing_; }

private:
    const ProgramSearch& search_;
    std::map<std::string, std::string> found_;
    Program missing_;
};

// An argument that does not name the local rank is not ours to touch: a shell's $$ stays.
std::string expand(const std::string& argument, int local_rank) {
    const bool named = argument.find("$local_rank") != argument.npos ||
                       argument.find("${local_rank}") != argument.npos;
    return named ? substitute_local_rank(argument, local_rank) : argument;
}

// The words before the worker's own arguments.
std::vector<std::string> start_of_command(const Options& options, const ProgramSearch& search,
                                          int local_rank) {
    const std::string& program = options.program.command.front();
    if (!runs_under_python(options)) return {program};
    std::vector<std::string> words{search.python, "-u"};
    if (options.program.kind == ProgramKind::module) words.emplace_back("-m");
    words.push_back(expand(program, local_rank));
    return words;
}

}  // namespace

std::string substitute_local_rank(std::string_view text, int local_rank) {
    constexpr std::string_view name = "local_rank";
    std::string result;
    std::size_t at = 0;
    while (at < text.size()) {
        if (text[at] != '$') {
            result += text[at++];
            continue;
        }
        if (text.substr(at, 2) == "$$") {
            result += '$';
            at += 2;
            continue;
        }
        const bool braced = text.substr(at, 2) == "${";
        const std::size_t start = at + (braced ? 2 : 1);
        const std::size_t end = end_of_name(text, start);
        const bool closed = !braced || (end < text.size() && text[end] == '}');
        if (closed && text.substr(start, end - start) == name) {
            result += std::to_string(local_rank);
            at = end + (braced ? 1 : 0);
        } else {
            result += text[at++];
        }
    }
    return result;
}

WorkerCommands worker_commands(const Options& options, int workers, const ProgramSearch& search) {
    Paths paths(search);
    const bool python = runs_under_python(options);
    paths.of(python ? search.python : options.program.command.front());
    if (python) paths.add_hint("; PYTHON_EXEC or --python may name the interpreter");
    WorkerCommands result;
    for (int rank = 0; rank < workers; ++rank) {
        std::vector<std::string> words = start_of_command(options, search, rank);
        if (python && options.program.kind != ProgramKind::module) {
            paths.require_script(words.back());
        }
        if (options.program.pass_local_rank)
            words.push_back("--local_rank=" + std::to_string(rank));
        for (std::size_t at = 1; at < options.program.command.size(); ++at) {
            words.push_back(expand(options.program.command[at], rank));
        }
        // The last given is the innermost: nearest to the program, as the words stand.
        for (auto wrap = options.program.wraps.rbegin(); wrap != options.program.wraps.rend();
             ++wrap) {
            if (!applies(*wrap, rank)) continue;
            words.front() = paths.of(words.front());  // not every wrapper looks along PATH
            words.insert(words.begin(), wrap->command.begin(), wrap->command.end());
        }
        result.of_rank.push_back({paths.of(words.front()), words});
        if (!paths.missing().problem.empty()) break;
    }
    result.missing = paths.missing();
    return result;
}

}  // namespace ddp::launcher
