// --report: a job as one HTML file without outside parts. The page (page/) is fixed; what it shows
// stands in it as JSON, one object:
//
//   format     1; grows when a field changes its meaning, not when one is added
//   command    texts
//   run_id
//   report     as report.json (report_file.hpp), else null
//   names      texts, of activities
//   groups     objects: size (ranks; 0: not known, or ranks of several groups), gpu
//   attempts   objects:
//     attempt  0, 1, ...
//     text     what was said of its end
//     ranks    objects with rank, pid, started, ended, end (text), joined, lost, and arrays of the
//              same length, an element an activity, in the order of their beginnings:
//       what     0 collective, 1 transfer, 2 gradients, 3 step, 4 checkpoint; 8 more: it failed,
//                or the rank ended in it
//       start    since the one before, or since the rank's `started`
//       length
//       name     index of `names`
//       group    of a collective: index of `groups`
//       number
//
// Times are in tenths of a microsecond since the first worker began.
#pragma once

#include "launcher/timeline/job_timeline.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

struct PageFacts {
    std::vector<std::string> command = {};
    std::string run_id = {};
    std::string report_json = {};  // empty: there is none
};

// The files of page/, as they are; in the first are marks where the others go.
extern const std::string_view report_html;
extern const std::string_view report_css;
extern const std::string_view report_js;

std::string report_page(const JobTimeline& timeline, const PageFacts& facts);

}  // namespace ddp::launcher
