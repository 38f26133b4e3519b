#include "launch/launch_job.hpp"

#include "launch/find_launcher.hpp"

#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace ddp::launching {
namespace {

std::vector<std::string> arguments_for(const LaunchOptions& options,
                                       const std::vector<std::string>& command) {
    std::vector<std::string> words{
        "--nproc-per-node=" + std::to_string(options.nproc_per_node),
        "--max-restarts=" + std::to_string(options.max_restarts),
        "--shutdown-timeout=" + std::to_string(options.shutdown_timeout.count())};
    std::string hosts;
    for (const std::string& host : options.hosts) hosts += (hosts.empty() ? "" : ",") + host;
    if (!hosts.empty()) words.push_back("--hosts=" + hosts);
    if (!options.log_dir.empty()) words.push_back("--log-dir=" + options.log_dir);
    words.insert(words.end(), options.arguments.begin(), options.arguments.end());
    words.emplace_back("--");
    words.insert(words.end(), command.begin(), command.end());
    return words;
}

bool names_hosts(const LaunchOptions& options) {
    return !options.hosts.empty() ||
           std::ranges::any_of(options.arguments, [](const std::string& argument) {
               return argument.starts_with("--hosts") || argument.starts_with("--hostfile");
           });
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

// This program, the file that is run now, with these words.
std::vector<std::string> own_command(const std::vector<std::string>& arguments) {
    std::string program = own_program();
    if (program.ends_with(" (deleted)")) program = "/proc/" + std::to_string(::getpid()) + "/exe";
    std::vector<std::string> words{std::move(program)};
    for (const std::string& word : arguments) words.push_back(escaped(word));
    return words;
}

}  // namespace

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

std::vector<std::string> own_arguments() {
    std::ifstream file("/proc/self/cmdline", std::ios::binary);
    std::vector<std::string> words;
    for (std::string word; std::getline(file, word, '\0');) words.push_back(std::move(word));
    if (!words.empty()) words.erase(words.begin());
    return words;
}

LauncherResult run_command(const LaunchOptions& options, const std::vector<std::string>& command,
                           std::vector<std::string> environment,
                           contract::FailurePolicy failure_policy) {
    environment.insert(environment.end(), options.environment.begin(), options.environment.end());
    return run_launcher({.path = find_launcher(launcher_search(options.launcher)),
                         .arguments = arguments_for(options, command),
                         .environment = std::move(environment),
                         .failure_policy = failure_policy},
                        options);
}

std::optional<LauncherResult> run_body(const LaunchOptions& options, const OwnCall& call) {
    if (names_hosts(options)) {
        throw UsageError(
            "launch: a function runs on this host alone, whose program it is; launch a command on "
            "other hosts");
    }
    if (inside_body()) {
        throw UsageError(
            "launch: a function inside the function of another launch(); launch a "
            "command there, or both from main");
    }
    const Call noted = note_call(call.name);
    switch (noted.kind) {
        case CallKind::skip:
            return std::nullopt;
        case CallKind::body:
            std::exit(run_worker(call.body));
        case CallKind::start:
            break;
    }
    LaunchOptions own = options;
    own.arguments.emplace_back("--no-python");  // whatever this program is called
    const auto command = own_command(call.arguments ? *call.arguments : own_arguments());
    return run_command(own, command, {std::string(worker_call_variable) + "=" + noted.variable},
                       call.failure_policy);
}

}  // namespace ddp::launching
