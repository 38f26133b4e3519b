// The values that options take.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace ddp::launcher {

enum class Containment {
    base,   // a session, subreapers, parent death signals
    pidns,  // and a PID namespace, whose PID 1 is the agent
};

enum class ExitCode {
    root_cause,  // the culprit's; 128 + signal
    torchrun,    // 1 for whatever failed
};

// torchrun's --rdzv-backend, as far as it has a meaning on one host.
enum class RendezvousBackend {
    fixed,  // "static": at the master's address
    c10d,   // at the endpoint's
};

// --auth: whether the agents of a job of several hosts must have its token.
enum class Authentication {
    automatic,  // where this host has one
    required,
};

// --metrics: where a job's metrics are served.
struct MetricsAddress {
    std::string path = {};  // of a Unix socket; empty: over TCP
    std::string host = {};
    std::uint16_t port = 0;  // 0: a free one
};

enum class StatusLine { automatic, off };  // automatic: on a terminal

// --on-hang: what becomes of a verdict (verdict/hang_judge.hpp).
enum class OnHang : std::uint8_t {
    ignore,  // nobody looks
    say,
    stop,  // the job, too, as a failure does
};

// --on-closed-stdout: what becomes of the job when nobody reads what it shows.
enum class ClosedStdout { stop, go_on };

// --stdin: which workers get the launcher's input.
enum class StdinFor {
    automatic,  // a single worker, unless a terminal is not ours to read
    rank,
    all,  // each a copy
    none,
};

// Who serves MASTER_ADDR:MASTER_PORT.
enum class AgentStore {
    on,   // the agent, on 127.0.0.1; TORCHELASTIC_USE_AGENT_STORE=True
    off,  // the program (rank 0); the port is left to it
};

// --nproc-per-node: a number, or what is to be counted on this host.
enum class CountOf { not_given, number, cpus, gpus, gpus_else_cpus };
struct WorkerCount {
    CountOf what = CountOf::not_given;
    int number = 1;  // of not_given and number; count_workers() finds the others
};
inline constexpr int max_workers = 4096;

// How the program is started.
enum class ProgramKind {
    automatic,   // Python for a name that ends in .py, else itself
    executable,  // --no-python: itself, whatever its name
    script,      // --run-path: Python, whatever its name
    module,      // --module: python -m
};

// A set of a worker's output streams, as torchrun numbers them.
enum class Streams : std::uint8_t { none = 0, out = 1, err = 2, both = 3 };

// A value for each local rank: the same for all, or listed ("0:3,12:1"; none where not listed).
struct StreamsOfRanks {
    Streams all = Streams::none;
    std::map<int, Streams> listed;

    Streams of(int local_rank) const {
        const auto found = listed.find(local_rank);
        return found != listed.end() ? found->second : all;
    }
};

// Hosts on which this launcher starts the job, and how; without hosts it starts its own part alone.
struct RemoteOptions {
    std::string hosts;               // --hosts as given; hosts/start/hostfile.hpp reads it
    std::string hostfile;            // a path
    std::vector<std::string> rsh{};  // empty: ssh, or srun where Slurm has given the hosts
    std::vector<std::string> env;    // "NAME" or "NAME=value": passed beside those that always are

    bool has_hosts() const { return !hosts.empty() || !hostfile.empty(); }
};

// --wrap=RANKS:COMMAND: these local ranks run under the command.
struct Wrap {
    std::vector<int> local_ranks;  // empty: all
    std::vector<std::string> command;
};

}  // namespace ddp::launcher
