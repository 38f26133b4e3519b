#include "launcher/inspect/run_view.hpp"

#include "base/net/socket.hpp"
#include "launcher/report/report_file.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using nlohmann::json;

const char* name_of(contract::Phase phase) {
    switch (phase) {
        case contract::Phase::starting:
            return "no group yet";
        case contract::Phase::joining:
            return "joining";
        case contract::Phase::running:
            return "in a group";
        case contract::Phase::failed:
            return "failed";
        case contract::Phase::left:
            return "left";
    }
    return "";
}

const char* name_of(const ProcessState& process) {
    if (process.tracer != 0 && process.is_held()) return "held by a debugger";
    if (process.is_frozen) return "frozen";
    switch (process.state) {
        case 'T':
            return "stopped";
        case 'D':
            return "in an uninterruptible call";
        case 'Z':
            return "ended";
        default:
            return "running";
    }
}

template <class Duration>
double in_seconds(Duration time) {
    return std::chrono::duration<double>(time).count();
}

json rank_json(const RankRow& row, const std::string& host_here) {
    const auto optional = [](const auto& value) { return value ? json(*value) : json(); };
    return {{"rank", row.rank},
            {"host", row.host.empty() ? host_here : row.host},
            {"is_here", row.host.empty()},
            {"local_rank", row.local_rank},
            {"pid", row.pid},
            {"state", row.state},
            {"exit_code", row.ended ? json(row.ended->exit_code()) : json()},
            {"end", row.ended ? json(to_string(*row.ended)) : json()},
            {"phase", row.phase},
            {"at_checkpoint", row.is_at_checkpoint},
            {"step", row.progress.step},
            {"steps_per_second", row.progress.steps_per_second},
            {"collective_bytes", row.progress.bytes},
            {"exposed_seconds", in_seconds(row.progress.exposed)},
            {"call", row.call},
            {"seconds_since_call", row.since_call ? json(in_seconds(*row.since_call)) : json()},
            {"share_in_calls", optional(row.share_in_calls)},
            {"cpu_seconds", row.use.cpu_time ? json(in_seconds(*row.use.cpu_time)) : json()},
            {"cpu_share", optional(row.use.cpu_share)},
            {"resident_bytes", optional(row.use.resident_bytes)},
            {"system_call", row.waits_in},
            {"read_seconds", in_seconds(row.read_at.time_since_epoch())}};
}

}  // namespace

std::optional<double> share_in_calls(const contract::RankRecord& record, RankRow::Time now) {
    if (record.operations.empty()) return std::nullopt;
    // Of calls that overlap, as on a GPU, each moment counts once.
    std::vector<std::pair<RankRow::Time, RankRow::Time>> spans;
    for (const contract::OperationRecord& one : record.operations) {
        const contract::GroupRecord* const group = record.find_group(one.group);
        const bool runs = group != nullptr && group->end == contract::GroupEnd::none;
        spans.emplace_back(one.started, one.ended.value_or(runs ? now : one.started));
    }
    std::ranges::sort(spans);
    const RankRow::Time first = spans.front().first;
    if (now <= first) return std::nullopt;
    std::chrono::nanoseconds inside{0};
    RankRow::Time counted = first;
    for (const auto& [begin, end] : spans) {
        const RankRow::Time from = std::max(begin, counted);
        if (end <= from) continue;
        inside += end - from;
        counted = end;
    }
    return std::min(1.0, in_seconds(inside) / in_seconds(now - first));
}

std::vector<RankRow> rows_of(const WatchedWorkers& workers, RankRow::Time now) {
    std::vector<RankRow> rows;
    for (const Worker& worker : workers.all) {
        const contract::ControlPage& page = workers.pages.page(worker.local_rank);
        const contract::RankRecord record = contract::read_page(page);
        const RankRow::Time until = worker.ended ? worker.ended_at : now;
        RankRow& row = rows.emplace_back(RankRow{.rank = workers.first_rank + worker.local_rank,
                                                 .local_rank = worker.local_rank,
                                                 .pid = worker.process.pid(),
                                                 .state = "ended",
                                                 .ended = worker.ended,
                                                 .phase = name_of(record.phase),
                                                 .is_at_checkpoint = record.is_at_checkpoint,
                                                 .progress = contract::read_progress(page),
                                                 .share_in_calls = share_in_calls(record, until),
                                                 .read_at = now});
        if (const auto call = record.last_call()) {
            const contract::OperationRecord& operation = *call->operation;
            row.call = contract::describe(*call);
            row.since_call = until - (call->is_in ? operation.started
                                                  : operation.ended.value_or(operation.started));
        }
        if (!worker.running()) continue;
        row.pid = process_of_rank(record.pid, worker.process.pid());
        const ProcessState process = look_at_process(row.pid);
        row.state = name_of(process);
        row.use.cpu_time = process.cpu_time;
        row.use.resident_bytes = process.resident_bytes;
        row.waits_in = process.waits_in;
        const auto age = now - worker.started_at;
        if (age > age.zero()) row.use.cpu_share = in_seconds(process.cpu_time) / in_seconds(age);
    }
    return rows;
}

std::string to_json(const RunFacts& facts, const RunView& view, const std::optional<RunEnd>& end) {
    json ranks = json::array();
    const std::string host = base::host_name();
    for (const RankRow& row : view.ranks) ranks.push_back(rank_json(row, host));
    const json run = {{"format", 1},
                      {"run_id", facts.run_id},
                      {"command", facts.command},
                      {"host", host},
                      {"is_contained", facts.is_contained},
                      {"launcher_pid", facts.launcher_pid},
                      {"started", in_seconds(facts.started.time_since_epoch())},
                      {"seconds", in_seconds(std::chrono::steady_clock::now() - facts.began)},
                      {"state", end ? "ended" : "running"},
                      {"exit_code", end && end->exit_code ? json(*end->exit_code) : json()},
                      {"report", end ? json(end->report) : json()},
                      {"attempt", view.attempt},
                      {"attempts", view.attempts},
                      {"world_size", view.world_size},
                      {"has_asked_hosts", view.has_asked_hosts},
                      {"hang", hang_json(view.hang)},
                      {"slow", slow_json(view.slow)},
                      {"ranks", std::move(ranks)}};
    // Workers write any bytes; JSON is UTF-8.
    return run.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace ddp::launcher
