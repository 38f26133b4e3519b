// A job's timeline for Perfetto and chrome://tracing: JSON of the "Trace Event Format", one process
// a rank (and attempt), in it a thread for steps, one for what is waited for, and one a group.
#pragma once

#include "launcher/timeline/job_timeline.hpp"

#include <string>

namespace ddp::launcher {

std::string trace_text(const JobTimeline& timeline);

}  // namespace ddp::launcher
