#include "launcher/agent/attempt/worker_watch.hpp"

#include "base/deadline.hpp"

#include <algorithm>
#include <string>

namespace ddp::launcher {

WorkerWatch::WorkerWatch(Watching progress, int restarts, const StopOptions& stop)
    : grace_(stop.shutdown_timeout), progress_(progress), hang_(stop.on_hang, stop.hang_timeout) {
    progress_.set_restarts(restarts);
}

std::optional<WorkerWatch::Time> WorkerWatch::next(bool is_stopping) const {
    const std::optional<Time> progress = progress_.next();
    const std::optional<Time> hang = is_stopping ? std::nullopt : hang_.next();
    return progress && hang ? std::min(*progress, *hang) : progress ? progress : hang;
}

std::optional<int> WorkerWatch::look(const Workers& workers, bool is_stopping, Channel& channel,
                                     const std::function<void(const StatusMessage&)>& on_progress) {
    const Time now = HangWatch::Time::clock::now();
    if (auto status = progress_.look(now, workers.pages, workers.running)) {
        if (on_progress) {
            on_progress(*status);
        } else {
            status->hosts = 1;
            channel.send(*status);
        }
    }
    if (is_stopping) return std::nullopt;
    for (const std::string& text :
         hang_.look(now, workers.pages, workers.all, workers.first_rank)) {
        channel.send(NoticeMessage{text});
    }
    if (!hang_.ends_job()) return std::nullopt;
    channel.send(NoticeMessage{"stopping the job (--on-hang=stop): SIGTERM now, SIGKILL after " +
                               base::to_string(grace_)});
    return hang_.to_blame().value_or(-1);
}

}  // namespace ddp::launcher
