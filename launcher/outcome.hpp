// From workers that have ended to what the job's end means: the exit code and the text for the
// user. The rule itself is in failure.hpp and pure; here is what it needs from error files.
#pragma once

#include "launcher/failure.hpp"
#include "launcher/worker.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

struct Outcome {
    int exit_code = 0;
    std::string text;                  // for the user; empty when all went well
    std::optional<int> failed_rank{};  // whose failure ended it: what another attempt may mend
};

struct JobEnd {
    std::span<const Worker> workers;
    std::span<const std::size_t> order;  // of their ends, by index; may lack some
    int user_signal = 0;                 // the one that asked a healthy job to stop, or 0
    std::string error_folder;
};

Outcome judge(const JobEnd& end);

}  // namespace ddp::launcher
