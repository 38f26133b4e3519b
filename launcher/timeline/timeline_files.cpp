#include "launcher/timeline/timeline_files.hpp"

#include "base/replace_file.hpp"
#include "launcher/timeline/trace_text.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace ddp::launcher {

using std::chrono::milliseconds;

void check_timeline_files(const LogOptions& options) {
    for (const auto& [option, path] :
         {std::pair{"--report", &options.report_page}, std::pair{"--trace", &options.trace}}) {
        if (!path->empty()) check_place(option, *path, *path);
    }
}

bool wants_timelines(const LogOptions& options) {
    return !options.report_page.empty() || !options.trace.empty();
}

TimelineFiles::TimelineFiles(const Options& options)
    : files_{{{.what = "report", .path = options.logs.report_page, .make = &report_page},
              {.what = "trace",
               .path = options.logs.trace,
               .make = [](const JobTimeline& timeline, const PageFacts&) {
                   return trace_text(timeline);
               }}}} {
    facts_.command = options.program.command;
    facts_.run_id = options.run_id;
}

bool TimelineFiles::wanted() const {
    return std::ranges::any_of(files_, [](const File& file) { return !file.path.empty(); });
}

// A message is the file's index, and what became of it.
void TimelineFiles::run_writer(const ForkedWriter::Tell& tell) const {
    for (std::size_t i = 0; i < files_.size(); ++i) {
        const File& file = files_[i];
        if (file.path.empty()) continue;
        std::string problem;
        try {
            const int code = base::replace_file(file.path, file.make(timeline_, facts_),
                                                usual_mode(), file.temporary);
            if (code != 0) problem = std::strerror(code);
        } catch (const std::exception& error) {
            problem = error.what();
        }
        std::string message(1, static_cast<char>('0' + i));
        message += problem.empty() ? std::string(file.what) + ": " + file.path
                                   : std::string("cannot write the ") + file.what + " " +
                                         file.path + ": " + problem;
        tell(message);
    }
}

void TimelineFiles::take_news(const std::string& message) {
    const auto index = static_cast<std::size_t>(message[0] - '0');
    if (index < files_.size()) files_[index].news = message.substr(1);
}

std::vector<std::string> TimelineFiles::write(
    const std::function<void(Clock::time_point until)>& wait,
    const std::function<milliseconds()>& most_time) {
    if (!wanted() || timeline_.attempts().empty()) return {};
    std::optional<ForkedWriter> writer;
    try {
        for (File& file : files_) file.temporary = temporary_name(file.path);
        writer.emplace([this](const ForkedWriter::Tell& tell) { run_writer(tell); });
    } catch (const SystemError& error) {
        return {error.what()};
    }
    while (!writer->has_ended()) {
        if (const auto message = writer->receive()) {
            take_news(*message);
        } else if (writer->has_ended() || writer->age() >= most_time()) {
            break;
        } else {
            wait(Clock::now() + ForkedWriter::between_looks);
        }
    }
    const bool has_failed = writer->has_ended();
    writer->end();
    std::vector<std::string> news;
    for (File& file : files_) {
        if (file.path.empty()) continue;
        if (file.news.empty()) {
            file.news = std::string("cannot write the ") + file.what + " " + file.path + ": " +
                        (has_failed ? "its writer has failed" : "it takes too long");
            remove_soon({file.temporary});
        }
        news.push_back(file.news);
    }
    return news;
}

}  // namespace ddp::launcher
