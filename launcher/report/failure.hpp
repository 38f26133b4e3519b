// Whose fault: from how the workers ended to the one that is to blame and the exit code. Pure. The
// root cause is the first failure in order of detection that is not exit code 82 with an error file
// that names a peer ("left because of a peer") and not our own doing; when all left because of a
// peer, it is the rank that they name, directly or by way of others that left.
#pragma once

#include "contract/error_file.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/report/oom_watch.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace ddp::launcher {

struct WorkerEnd {
    int rank = 0;
    int local_rank = 0;
    pid_t pid = 0;
    ExitStatus status;
    int stopped_with = 0;  // the last signal that we had sent before it ended; 0: none
    std::chrono::milliseconds ran_for{0};
    std::chrono::milliseconds stop_took{0};           // from our first signal to its end
    std::optional<contract::ErrorReport> error = {};  // from its error file
    std::string gpu = {};                             // "cuda:0 = GPU 1"; empty: nothing to say
    std::string last_stderr = {};                     // its last lines there; may be empty
    std::string last_call = {};  // "in barrier, operation 7 (a.cpp:9)"; empty: none is known
    std::string host = {};       // where it ran; empty: on this host, the job's only one
    OomEvidence oom = OomEvidence::unknown;  // of one that SIGKILL ended
};

// What became of one worker, in relation to the failure.
enum class Part : std::uint8_t {
    root_cause,
    failed,   // by itself, later than the root cause
    left,     // because of a peer
    stopped,  // by us
    fine,
};

struct RootCause {
    int rank = 0;                 // who is to blame
    std::size_t index = 0;        // in `ended`
    bool named_by_peers = false;  // it did not fail first, or not at all
    bool held_up = false;         // the job, which was stopped therefore
    int exit_code = 1;            // never 0
};

// `ended`: in order of detection. Nothing when nobody failed.
std::optional<RootCause> whose_fault(std::span<const WorkerEnd> ended);

// While others still live: whose failure it is, as far as the ends so far tell.
struct FirstFailure {
    int ended;         // the rank to blame, or, while that lives, the one that left because of it
    std::string text;  // "rank 0 left because of rank 1"
};
enum class ErrorTexts : std::uint8_t { known, unknown };  // whether `error` was looked for

// Nothing when nobody has failed by itself.
std::optional<FirstFailure> first_failure(std::span<const WorkerEnd> ended, ErrorTexts texts);

Part part_of(const WorkerEnd& end, bool is_root);

}  // namespace ddp::launcher
