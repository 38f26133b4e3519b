// WorkerWatch: looks from time to time at what an attempt's workers publish, and tells the front of
// it: how far they are, and who holds them up.
#pragma once

#include "contract/control_page.hpp"
#include "launcher/agent/attempt/progress_watch.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/options/options.hpp"
#include "launcher/verdict/hang_watch.hpp"
#include "launcher/worker/worker.hpp"

#include <functional>
#include <optional>
#include <span>

namespace ddp::launcher {

class WorkerWatch {
public:
    using Time = HangWatch::Time;

    WorkerWatch(Watching progress, int restarts, const StopOptions& stop);

    void begin(Time now) { hang_.begin(now); }  // the workers have been started
    // When to look next; nothing: never. `is_stopping`: the workers are being stopped.
    std::optional<Time> next(bool is_stopping) const;
    // A worker may have been stopped, or gone on.
    void look_at_processes() { hang_.look_at_processes(); }

    struct Workers {
        const contract::ControlRegion& pages;
        std::span<const Worker> all;
        int running;
        int first_rank;  // of the one with local rank 0
    };
    // `on_progress`: told instead of the front, where there is one. Returns the rank because of
    // which the job is to be stopped; -1: none that others wait for.
    std::optional<int> look(const Workers& workers, bool is_stopping, Channel& channel,
                            const std::function<void(const StatusMessage&)>& on_progress);

    std::optional<HangFacts> facts(const Workers& workers) const {
        return hang_.facts(workers.pages, workers.all, workers.first_rank);
    }

private:
    std::chrono::milliseconds grace_;
    ProgressWatch progress_;
    HangWatch hang_;
};

}  // namespace ddp::launcher
