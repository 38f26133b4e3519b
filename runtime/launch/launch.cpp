// The two forms of launch(): both come down to a command line of ddp-launch.
#include <ddp/launch.hpp>

#include "launch/find_launcher.hpp"
#include "launch/launcher_process.hpp"
#include "launch/worker_call.hpp"

#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>

#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <utility>

namespace ddp {
namespace {

using launching::CallKind;

void check(const LaunchOptions& options) {
    if (options.nproc_per_node < 1) {
        throw UsageError("launch: nproc_per_node is " + std::to_string(options.nproc_per_node) +
                         "; at least 1");
    }
    for (const std::string& entry : options.environment) {
        if (entry.find('=') == entry.npos || entry.starts_with('=')) {
            throw UsageError("launch: environment: \"" + entry + "\" is not NAME=value");
        }
    }
}

std::vector<std::string> arguments_for(const LaunchOptions& options,
                                       const std::vector<std::string>& command) {
    std::vector<std::string> words{
        "--nproc-per-node=" + std::to_string(options.nproc_per_node),
        "--max-restarts=" + std::to_string(options.max_restarts),
        "--shutdown-timeout=" + std::to_string(options.shutdown_timeout.count())};
    if (!options.log_dir.empty()) words.push_back("--log-dir=" + options.log_dir);
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
}

// ddp-launch fills in the local rank where a word names it; this program had the word as it is.
std::string escaped(const std::string& word) {
    if (word.find("$local_rank") == word.npos && word.find("${local_rank}") == word.npos) {
        return word;
    }
    std::string result;
    for (const char c : word) result += c == '$' ? std::string("$$") : std::string(1, c);
    return result;
}

// This program's words, the first one the file that is run now.
std::vector<std::string> own_command() {
    std::string program = launching::own_program();
    if (program.ends_with(" (deleted)")) program = "/proc/" + std::to_string(::getpid()) + "/exe";
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(file, word, '\0');) words.push_back(escaped(word));
    if (words.empty()) words.emplace_back();
    words.front() = std::move(program);
    return words;
}

LaunchResult start(const LaunchOptions& options, const std::vector<std::string>& command,
                   std::vector<std::string> environment) {
    environment.insert(environment.end(), options.environment.begin(), options.environment.end());
    return launching::run_launcher(
        {.path = launching::find_launcher(launching::launcher_places(options.launcher)),
         .arguments = arguments_for(options, command),
         .environment = std::move(environment)},
        options);
}

}  // namespace

LaunchResult launch(const LaunchOptions& options, const std::vector<std::string>& command,
                    std::source_location where) {
    if (command.empty() || command.front().empty()) throw UsageError("launch: no command");
    check(options);
    if (launching::note_call(where).kind != CallKind::start) return {};
    return start(options, command, {});
}

LaunchResult launch(const LaunchOptions& options, const std::function<void()>& body,
                    std::source_location where) {
    if (!body) throw UsageError("launch: no function");
    check(options);
    if (launching::inside_body()) {
        throw UsageError(
            "launch: a function inside the function of another launch(); launch a "
            "command there, or both from main");
    }
    const launching::Call call = launching::note_call(where);
    switch (call.kind) {
        case CallKind::skip:
            return {};
        case CallKind::body:
            std::exit(run_worker(body));
        case CallKind::start:
            break;
    }
    LaunchOptions own = options;
    own.arguments.emplace_back("--no-python");  // whatever this program is called
    return start(own, own_command(),
                 {std::string(launching::worker_call_variable) + "=" + call.variable});
}

}  // namespace ddp
