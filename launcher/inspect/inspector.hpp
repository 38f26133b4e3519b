// `ddp-launch inspect [RUN] [--json] [--stacks] [--watch[=SECONDS]]`: shows a job of this user's
// that runs, or the last that has; of any user's, for root.
#pragma once

#include <span>

namespace ddp::launcher {

// The word that makes of a command line one of these.
inline constexpr const char* inspect_command = "inspect";

// `words`: after that one. Writes to stdout. Throws UsageError for wrong words, Error where there
// is no such job, or none that answers.
void inspect(std::span<char* const> words);

}  // namespace ddp::launcher
