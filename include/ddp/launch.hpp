// Starts a job of several worker processes from a program of one's own, as ddp-launch does from a
// shell: a command, or a function of this very program. Compare torch.multiprocessing.spawn and
// torch.distributed.launcher.api.elastic_launch.
//
//     int main(int argc, char** argv) {
//         const auto result = ddp::launch({.nproc_per_node = 4}, [&] {
//             auto group = ddp::init_process_group();
//             train(group, argv[1]);
//         });
//         return result.exit_code;
//     }
//
// Link the CMake target ddp::launcher: it brings the runtime, and where ddp-launch is.
#pragma once

#include <ddp/call_site.hpp>
#include <ddp/export.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

// Where ddp-launch is.
#ifndef DDP_LAUNCH_PATH  // defined by the CMake target ddp::launcher
#define DDP_LAUNCH_PATH ""
#endif

namespace ddp {

struct LaunchOptions {
    int nproc_per_node = 1;  // workers, of each host
    // Other hosts, "h1" or with workers of its own "h1:4", by node rank: they run the job, this
    // process starts them over ssh, or by srun within a Slurm allocation (docs/hosts.md). Empty:
    // this host alone. Of a command only.
    std::vector<std::string> hosts = {};
    int max_restarts = 0;  // how often all workers are started again after a failure
    // Between the signal that asks workers to stop and SIGKILL.
    std::chrono::seconds shutdown_timeout{30};
    // A job that still runs by then is stopped as by SIGTERM; 0: it may take as long as it wants.
    std::chrono::milliseconds timeout{0};
    std::string log_dir = {};                   // for log files and reports; empty: none are kept
    std::vector<std::string> environment = {};  // "NAME=value": added to this process's, or over it
    // Further options of ddp-launch, such as "--tee=3" (`ddp-launch --help`); they win over those
    // above.
    std::vector<std::string> arguments = {};
    // The file of ddp-launch, unless DDP_LAUNCH in the environment names another one. Where there
    // is none, it is looked for beside this program, then along PATH.
    std::string launcher = DDP_LAUNCH_PATH;
};

// Of another host.
struct HostResult {
    std::string host;   // as in LaunchOptions::hosts, without the workers
    int exit_code = 0;  // of ddp-launch there, or of --rsh where that could not start it
};

// How the job has ended.
struct LaunchResult {
    // As ddp-launch's: 0 when every worker ended with 0, else of the rank that failed first, or
    // 128 + signal; docs/launcher.md has the list.
    int exit_code = 0;
    bool timed_out = false;  // stopped for LaunchOptions::timeout
    // Why exit_code is not 0: the text that ddp-launch shows. Of a job of other hosts only why it
    // did not start; the rest is on stderr.
    std::string report = {};
    // Of a job of other hosts: in their order, as many as 64 KiB hold.
    std::vector<HostResult> hosts = {};
    bool ok() const { return exit_code == 0; }
};

// Both forms block until the job is over and, unless somebody kills ddp-launch itself, no process
// of it is left. The workers' output and ddp-launch's messages go to this process's stdout and
// stderr; workers read from /dev/null.
//
// Throws UsageError when ddp-launch is not found or refuses an option, SystemError when it cannot
// be started. That workers fail is no exception but a result.
//
// Processes. ddp-launch is the one new child of this process. It is waited for by a pidfd: no other
// child is reaped, and SIGCHLD may be handled or ignored. This process becomes no subreaper. When
// it ends meanwhile, however, the job is killed at once, unless it is being stopped already.
//
// Signals. ddp-launch is in this process's group, so Ctrl-C at the terminal reaches it: it stops
// the workers within shutdown_timeout. A signal to this process alone is not passed on.
//
// Threads. The program may have several, and several may launch commands at the same time; nobody
// may change the environment meanwhile. The process is not forked: memory, locks, threads and
// descriptors above 2 stay with it.

// Each worker runs `command`: a program, found along PATH, and its arguments. An empty result at
// once, and nothing started, in a worker of the other form that has not come to its function yet.
[[nodiscard]] DDP_API LaunchResult launch(const LaunchOptions& options,
                                          const std::vector<std::string>& command,
                                          const CallSite& where = CallSite::here());

// Each worker starts this program anew, with the same arguments, environment and current folder,
// and gets to this call as this process did. There `body` is run as by run_worker(), and the
// process exits with its exit code. Therefore
//   - whatever the program does before the call is done by each worker too: call it early in main,
//     and do nothing before that must not happen twice (or look at RANK);
//   - `body` sees what the worker's own run has made, not this process's memory;
//   - what `body` computes goes into files or the output: it changes nothing here;
//   - earlier launches of the program start nothing in a worker and return an empty result.
// A worker that comes to another launch() instead, because its way depended on what this process
// had and it has not, fails and says so; so does one that ends by exit() or from main before. From
// one thread at a time; inside `body` only the other form may be used (else UsageError). Of a
// program that was replaced on disk since it started, the old file is run.
[[nodiscard]] DDP_API LaunchResult launch(const LaunchOptions& options,
                                          const std::function<void()>& body,
                                          const CallSite& where = CallSite::here());

}  // namespace ddp
