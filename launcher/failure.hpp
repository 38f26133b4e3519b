// Whose fault: from how the workers ended to the one that is to blame, the exit code and the text
// that says so. Pure. The root cause is the first failure in order of detection that is not exit
// code 82
// ("left because of a peer") and not our own doing; when all left because of a peer, it is the rank
// that they name.
#pragma once

#include "contract/error_file.hpp"
#include "launcher/exit_status.hpp"

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::launcher {

struct WorkerEnd {
    int rank = 0;
    int local_rank = 0;
    pid_t pid = 0;
    ExitStatus status;
    int stopped_with = 0;  // the last signal that we had sent before it ended; 0: none
    std::optional<contract::ErrorReport> error;  // from its error file
};

struct Verdict {
    int rank = 0;        // who is to blame
    int exit_code = 1;   // never 0
    std::string report;  // a few lines
};

// `ended`: in order of detection. Nothing when nobody failed.
std::optional<Verdict> whose_fault(std::span<const WorkerEnd> ended);

// What to say when the user stopped the job: the signal and how each worker took it.
std::string describe_stop(int signal, std::span<const WorkerEnd> ended);

// "rank 1 (local rank 1, pid 4711) failed: exit code 7"
std::string describe_failure(const WorkerEnd& end);

}  // namespace ddp::launcher
