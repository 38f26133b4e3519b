// TimelineFiles: the files of --report and --trace. Written when the job has ended, by a child of
// the agent (forked_writer.hpp).
#pragma once

#include "launcher/options/options.hpp"
#include "launcher/timeline/forked_writer.hpp"
#include "launcher/timeline/job_timeline.hpp"
#include "launcher/timeline/report_page.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

// Throws UsageError where a file cannot be written there.
void check_timeline_files(const LogOptions& options);
bool wants_timelines(const LogOptions& options);

class TimelineFiles {
public:
    using Clock = ForkedWriter::Clock;

    explicit TimelineFiles(const Options& options);
    bool wanted() const;

    // As JobTimeline::note.
    void note(int attempt, const contract::ControlRegion& pages, std::span<const Worker> workers,
              int first_rank, const std::string& text) {
        if (wanted()) timeline_.note(attempt, pages, workers, first_rank, text);
    }
    // The same of several hosts, on the coordinator's.
    JobTimeline& timeline() { return timeline_; }
    // The outcome that counts, as report.json has it.
    void set_report(std::string json) { facts_.report_json = std::move(json); }

    // Once; does nothing where nothing was noted: what there is to be said is another host's.
    // `wait` passes the time until then with what else is to be done; `most_time`: from the
    // beginning, may change meanwhile. Texts for the user.
    std::vector<std::string> write(const std::function<void(Clock::time_point until)>& wait,
                                   const std::function<std::chrono::milliseconds()>& most_time);

private:
    struct File {
        const char* what;
        std::string path;  // empty: it is not wanted
        std::string (*make)(const JobTimeline& timeline, const PageFacts& facts);
        std::string temporary = {};  // the name that it has first
        std::string news = {};       // what became of it; empty: not known
    };
    void run_writer(const ForkedWriter::Tell& tell) const;
    void take_news(const std::string& message);

    std::array<File, 2> files_;
    PageFacts facts_;
    JobTimeline timeline_;
};

}  // namespace ddp::launcher
