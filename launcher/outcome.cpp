// Reads error files only now, when no worker is left that could be writing one.
#include "launcher/outcome.hpp"

#include "contract/exit_code.hpp"
#include "launcher/worker_variables.hpp"

namespace ddp::launcher {
namespace {

// One host, so that a local rank is a rank.
WorkerEnd end_of(const Worker& worker, const std::string& error_folder) {
    return {.rank = worker.local_rank,
            .local_rank = worker.local_rank,
            .pid = worker.process.pid(),
            .status = worker.ended.value(),
            .stopped_with = worker.stopped_with,
            .error = contract::read_error_file(error_file_path(error_folder, worker.local_rank))};
}

}  // namespace

Outcome judge(const JobEnd& end) {
    std::vector<WorkerEnd> ends;
    for (const std::size_t index : end.order) {
        ends.push_back(end_of(end.workers[index], end.error_folder));
    }
    if (end.user_signal != 0) {
        return {contract::exit_signal_base + end.user_signal, describe_stop(end.user_signal, ends)};
    }
    const auto verdict = whose_fault(ends);
    if (verdict) return {verdict->exit_code, verdict->report, verdict->rank};
    if (ends.size() == end.workers.size()) return {};
    return {contract::exit_error, "workers did not end"};
}

}  // namespace ddp::launcher
