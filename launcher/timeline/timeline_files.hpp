// TimelineFiles: the files of --report and --trace. Written when the job has ended, by a child of
// the agent, as a file system may hang.
// Invariant: after write() there is no such child.
#pragma once

#include "launcher/options/options.hpp"
#include "launcher/timeline/job_timeline.hpp"
#include "launcher/timeline/report_page.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// Throws UsageError where a file cannot be written there.
void check_timeline_files(const LogOptions& options);
// Of each rank's ring; 0: there is no need for one.
std::size_t timeline_entries(const LogOptions& options, int workers);

class TimelineFiles {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds most_time{60};

    explicit TimelineFiles(const Options& options)
        : page_(options.logs.report_page), trace_(options.logs.trace) {
        facts_.command = options.program.command;
        facts_.run_id = options.run_id;
    }
    bool wanted() const { return !page_.empty() || !trace_.empty(); }

    // As JobTimeline::note.
    void note(int attempt, const contract::ControlRegion& pages, std::span<const Worker> workers,
              int first_rank, const std::string& text) {
        if (wanted()) timeline_.note(attempt, pages, workers, first_rank, text);
    }
    // Once. `wait` passes the time until then with what else is to be done; `is_hurried`: the user
    // does not want to wait any longer. Texts for the user.
    std::vector<std::string> write(std::string report_json,
                                   const std::function<void(Clock::time_point until)>& wait,
                                   const std::function<bool()>& is_hurried);

private:
    void run_writer(int socket) const;

    std::string page_;  // file names; empty: not wanted
    std::string trace_;
    PageFacts facts_;
    JobTimeline timeline_;
};

}  // namespace ddp::launcher
