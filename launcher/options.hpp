// The launcher's command line. Its own part ends at the first token that is no option and no
// option's value: that token is the program, and all after it is the worker's, untouched ("--" in
// it too). Options are torchrun's where torchrun has them, with dashes or underscores.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

enum class Action { run, help, version };

// Who serves MASTER_ADDR:MASTER_PORT.
enum class AgentStore {
    on,   // the agent, on 127.0.0.1; TORCHELASTIC_USE_AGENT_STORE=True
    off,  // the program (rank 0); the port is left to it
};

struct Options {
    Action action = Action::run;
    int nproc_per_node = 1;
    bool standalone = false;
    std::string master_addr = "127.0.0.1";
    std::uint16_t master_port = 0;              // 0: a free one is found and held
    std::chrono::seconds shutdown_timeout{30};  // between the signal that asks and SIGKILL
    AgentStore agent_store = AgentStore::on;
    std::vector<std::string> command;  // the program and its arguments; not empty for Action::run
};

// Reads a variable; nothing when it is not set.
using EnvLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Throws UsageError whose text is the one line to show: the option, the value, what is allowed.
Options parse_options(std::span<char* const> arguments, const EnvLookup& environment);

// What --help prints.
std::string help_text();

// The two parts of a command line. The launcher's options come with their names in dashes and as
// "--name=value", ready to be parsed; the command is copied word for word.
struct SplitArguments {
    std::vector<std::string> options;
    std::vector<std::string> command;
};
SplitArguments split_arguments(std::span<char* const> arguments);

}  // namespace ddp::launcher
