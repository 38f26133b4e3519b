#include "launcher/outcome.hpp"

#include "contract/exit_code.hpp"
#include "launcher/worker_variables.hpp"

#include <sys/stat.h>

namespace ddp::launcher {
namespace {

// Looks before it reads: a worker may have put anything there, a pipe too.
std::optional<contract::ErrorReport> error_of(const std::string& folder, int local_rank) {
    const std::string path = error_file_path(folder, local_rank);
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
    return contract::read_error_file(path);
}

}  // namespace

// One host, so that a local rank is a rank.
WorkerEnd end_of(const Worker& worker) {
    return {.rank = worker.local_rank,
            .local_rank = worker.local_rank,
            .pid = worker.process.pid(),
            .status = worker.ended.value(),
            .stopped_with = worker.stopped_with,
            .error = std::nullopt};
}

Outcome judge(const JobEnd& end) {
    std::vector<WorkerEnd> ends;
    for (const std::size_t index : end.order) {
        ends.push_back(end_of(end.workers[index]));
        ends.back().error = error_of(end.error_folder, end.workers[index].local_rank);
    }
    if (end.user_signal != 0) {
        return {contract::exit_signal_base + end.user_signal, describe_stop(end.user_signal, ends)};
    }
    const auto verdict = whose_fault(ends);
    if (verdict) return {verdict->exit_code, verdict->report};
    if (ends.size() == end.workers.size()) return {};
    return {contract::exit_error, "workers did not end"};
}

}  // namespace ddp::launcher
