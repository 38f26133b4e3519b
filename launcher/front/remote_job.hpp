// A job that is started on other hosts, before anything is: which command is run for each of them,
// and which part of the job it gets. Pure but for this_host() and the reading of a hostfile.
// Invariant: what a host is told does not depend on the others but for its number.
#pragma once

#include "launcher/hosts/start/hostfile.hpp"
#include "launcher/hosts/start/job_description.hpp"
#include "launcher/options/options.hpp"
#include "launcher/options/split_arguments.hpp"

#include <chrono>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

struct RemoteJob {
    struct Host {
        std::string name;
        std::vector<std::string> command;  // that runs ddp-launch there: --rsh, the host, two words
        JobDescription part;
    };
    std::vector<Host> hosts;  // by node rank
    // With fewer it ends. Where that is not all of them, it goes on without hosts that are lost.
    std::size_t least_hosts = 1;
    bool has_successors = false;  // of the first host
    std::string greeting;         // of every part
    bool shows_status = false;
    std::string line;  // for the user: "3 hosts (--hosts): h1, h2, h3; head h1, port 29500"
    // What may pass from the end of one host's part to that of another's.
    std::chrono::milliseconds time_to_end{0};
    std::vector<int> stop_signals;
};

// What of this host goes into it.
struct StartingHost {
    std::string launcher;  // ddp-launch, by an absolute path
    std::string folder;
    std::vector<std::string> environment;  // "NAME=value"
    bool shows_on_terminal = false;
    bool can_show_status = false;
    std::string greeting;
    std::optional<JobToken> token = {};  // of the job
};
// `called_as`: argv[0]. The token is that of DDP_JOB_TOKEN_FILE, else a new one, or none where this
// host has no TLS. Throws SystemError where the current folder is none, UsageError as JobToken.
StartingHost this_host(const std::string& called_as);

// Of --hosts or --hostfile. Throws UsageError.
std::vector<HostSlots> listed_hosts(const Options& options);

// `given`: the words that `options` were read from. Throws UsageError for options that contradict a
// list of hosts, for a variable that is not set, and for a job that no frame can hold.
RemoteJob plan_remote_job(const Options& options, const SplitArguments& given,
                          const std::vector<HostSlots>& hosts, const StartingHost& here);

// The entries of an environment that a job takes along: PATH, LD_LIBRARY_PATH, PYTHONPATH, what
// chooses a Python, and all that begin with CUDA, NCCL, OMP, TORCH, HF_, DDP_ or PET_, but for
// those that tell a worker its place in its job, or a launcher its host's. `more`: --env; a later
// one of a name counts. Throws UsageError for a name there that is not set.
std::vector<std::string> passed_variables(std::span<const std::string> environment,
                                          std::span<const std::string> more);

// What --dry-run prints: each host's command, options and folder, and the names of variables, whose
// values may be secrets.
std::string describe_remote_job(const RemoteJob& job);

}  // namespace ddp::launcher
