// The other end of --hosts: a ddp-launch --from-stdin that a starter runs on this host over ssh.
// The starter sends the description of this host's part on stdin, and then holds that open: it is
// the leash. A process of its own, the keeper, reads it and passes signals on to the front.
// Invariant: when stdin ends, or the keeper does, however that happens, the front learns of it and
// kills its workers.
#pragma once

#include "contract/host_link.hpp"
#include "launcher/hosts/job_token.hpp"

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace ddp::launcher {

// The only word of the command line; for no user, so that it is in no table of options.
inline constexpr const char* from_stdin_option = "--from-stdin";

struct RemotePart {
    std::vector<std::string> arguments;  // of ddp-launch
    contract::HostLink starter;
    std::optional<JobToken> token = {};  // of the job
};

// Waits for the description, takes its folder and variables, and forks. It returns twice: in the
// child with what is to be run, and in the keeper, when that has ended, with its exit code. Throws
// Error when there is no such description, or the folder is not here. Call it single-threaded.
std::variant<RemotePart, int> take_remote_part();

}  // namespace ddp::launcher
