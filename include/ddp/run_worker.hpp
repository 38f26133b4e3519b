// The body of a worker's main: turns exceptions into the exit codes and the error file that the
// launcher reads. An offer, not a condition: with a plain main, init_process_group installs a
// terminate handler that writes the same file (compare torch.distributed.elastic's @record).
#pragma once

#include <ddp/export.hpp>

#include <functional>

namespace ddp {

// Runs `body` and returns the exit code for main: 0 when it returns; 82 when it ends by an Error
// whose culprit() is another rank (the launcher then looks there); 1 for any other exception. Each
// exception is written as one line on stderr and, when TORCHELASTIC_ERROR_FILE names a file, as
// JSON there. Call it from the main thread, once.
//
// With DDP_BREAK_ON_FAILURE=1 (`ddp-launch --break-on-failure`) an exception of exit code 1,
// SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT stop the process where it failed, its error file
// written, for `gdb -p PID`; the launcher prints the pid and leaves the other ranks alone. After
// `kill -CONT PID` it dies: by SIGABRT for an exception. A plain main gets the same from
// init_process_group; a signal handler of the program's own is left in place.
DDP_API int run_worker(const std::function<void()>& body);

}  // namespace ddp
