// A job as it ended, as JSON.
#include "launcher/report/report_file.hpp"

#include "base/replace_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

namespace ddp::launcher {
namespace {

using nlohmann::json;

const char* name_of(Part part) {
    switch (part) {
        case Part::root_cause:
            return "root_cause";
        case Part::failed:
            return "failed";
        case Part::left:
            return "left";
        case Part::stopped:
            return "stopped";
        case Part::fine:
            return "fine";
    }
    return "";
}

double in_seconds(std::chrono::milliseconds time) {
    return static_cast<double>(time.count()) / 1000.0;
}

json worker_json(const WorkerEnd& end, bool is_root, const JobFacts& facts) {
    const bool has_error = end.error.has_value();
    return {{"rank", end.rank},
            {"host", end.host.empty() ? facts.host : end.host},
            {"local_rank", end.local_rank},
            {"pid", end.pid},
            {"gpu", end.gpu},
            {"part", name_of(part_of(end, is_root))},
            {"exit_code", end.status.exit_code()},
            {"signal", end.status.signal},
            {"signal_name", end.status.signal != 0 ? signal_name(end.status.signal) : ""},
            {"core_dumped", end.status.core_dumped},
            {"stopped_with", end.stopped_with},
            {"stop_seconds", in_seconds(end.stop_took)},
            {"seconds", in_seconds(end.ran_for)},
            {"peer", has_error && end.error->peer ? json(*end.error->peer) : json()},
            {"error", has_error ? json(end.error->message) : json()},
            {"callstack", has_error ? end.error->callstack : ""},
            {"last_call", end.last_call},
            {"last_stderr", end.last_stderr}};
}

}  // namespace

json hang_json(const std::optional<HangFacts>& hang) {
    if (!hang) return {};
    return {{"kind", hang->kind},
            {"ranks", hang->ranks},
            {"text", hang->text},
            {"stacks", to_json(hang->stacks)}};
}

json slow_json(const std::optional<SlowFacts>& slow) {
    if (!slow) return {};
    return {{"ranks", slow->ranks}, {"text", slow->text}};
}

std::string to_json(const JobReport& report) {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    json workers = json::array();
    for (std::size_t i = 0; i < report.ended.size(); ++i) {
        const bool is_root = report.root_cause && report.root_cause->index == i;
        workers.push_back(worker_json(report.ended[i], is_root, report.facts));
    }
    std::sort(workers.begin(), workers.end(),
              [](const json& a, const json& b) { return a["rank"] < b["rank"]; });
    const json file = {{"format", 1},
                       {"outcome", report.outcome},
                       {"exit_code", report.exit_code},
                       {"signal", report.signal},
                       {"host", report.facts.host},
                       {"attempt", report.facts.attempt},
                       {"attempts", report.facts.attempts},
                       {"started", in_seconds(now - report.ran_for)},
                       {"ended", in_seconds(now)},
                       {"root_rank", report.root_cause ? json(report.root_cause->rank) : json()},
                       {"message", report.message},
                       {"hints", report.facts.hints},
                       {"hang", hang_json(report.facts.hang)},
                       {"slow", slow_json(report.facts.slow)},
                       {"workers", std::move(workers)}};
    // Workers write any bytes; JSON is UTF-8.
    return file.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string write_report_file(const std::string& path, const std::string& json) {
    std::error_code problem;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), problem);
    const int code = problem ? problem.value() : base::replace_file(path, json);
    if (code == 0) return {};
    return "cannot write the report " + path + ": " + std::strerror(code);
}

}  // namespace ddp::launcher
