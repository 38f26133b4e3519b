// The words among which some options choose.
#pragma once

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

enum class StatusLine { automatic, off };  // automatic: on a terminal

// --on-closed-stdout: what becomes of the job when nobody reads what it shows.
enum class ClosedStdout { stop, go_on };

// --stdin: who gets the launcher's input.
enum class StdinFor {
    automatic,  // a single worker, unless a terminal is not ours to read
    rank,
    all,  // each a copy
    none,
};

}  // namespace ddp::launcher
