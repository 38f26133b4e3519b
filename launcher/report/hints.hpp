// What a failure looks like to somebody who has seen many: from the facts of the root cause to
// lines of advice. Pure. A hint states as certain only what is known.
#pragma once

#include "launcher/process/exit_status.hpp"
#include "launcher/report/oom_watch.hpp"

#include <string>
#include <vector>

namespace ddp::launcher {

struct HintFacts {
    ExitStatus status = {};
    std::string text = {};  // the message of its error file and its last lines on stderr
    OomEvidence oom = OomEvidence::unknown;
    int rank = 0;  // for options that take one
};

// Most telling first, at most three, each one sentence or two without a newline.
std::vector<std::string> hints_for(const HintFacts& facts);

}  // namespace ddp::launcher
