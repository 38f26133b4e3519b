// --break-on-failure, the launcher's side: which workers have stopped themselves after a failure
// (contract/break_on_failure.hpp), told from those that somebody else stopped by their error file.
#pragma once

#include "launcher/plan/error_folder.hpp"
#include "launcher/worker/worker.hpp"

#include <span>
#include <string>

namespace ddp::launcher {

// Sets stopped_for_debugger of workers that have stopped since the last call. Returns what to tell
// the user, a line a worker; empty when there is nothing new.
std::string describe_newly_stopped(std::span<Worker> workers, const ErrorFiles& error_files);

}  // namespace ddp::launcher
