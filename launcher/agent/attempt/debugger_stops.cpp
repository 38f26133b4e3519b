// A stop is an event of its own for waitid(): asking for stops alone leaves a worker's end to be
// reaped in its order.
#include "launcher/agent/attempt/debugger_stops.hpp"

#include "contract/error_file.hpp"

#include <sys/wait.h>

namespace ddp::launcher {
namespace {

constexpr std::size_t max_message_bytes = 1000;  // of one worker's

std::string first_line(const std::string& message) {
    const std::string line = message.substr(0, message.find('\n'));
    return line.size() <= max_message_bytes ? line : line.substr(0, max_message_bytes) + " ...";
}

bool has_stopped(const Worker& worker) {
    siginfo_t info{};
    const auto handle = static_cast<id_t>(worker.process.pidfd());
    return ::waitid(P_PIDFD, handle, &info, WSTOPPED | WNOHANG) == 0 && info.si_pid != 0;
}

}  // namespace

std::string describe_newly_stopped(std::span<Worker> workers, const ErrorFiles& error_files) {
    std::string text;
    for (Worker& worker : workers) {
        if (!worker.running() || worker.stopped_for_debugger || !has_stopped(worker)) continue;
        const auto report = contract::read_error_file(error_files.of(worker.local_rank));
        if (!report) continue;
        worker.stopped_for_debugger = true;
        const std::string pid = std::to_string(worker.process.pid());
        text += (text.empty() ? "rank " : "\nrank ") + std::to_string(worker.local_rank) +
                " (pid " + pid + ") is held for a debugger: gdb -p " + pid + "; kill -CONT " + pid +
                " lets it die\n  " + first_line(report->message);
    }
    return text;
}

}  // namespace ddp::launcher
