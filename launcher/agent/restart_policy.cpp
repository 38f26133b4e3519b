#include "launcher/agent/restart_policy.hpp"

#include "base/deadline.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {

RestartPolicy::Decision RestartPolicy::decide(const AttemptFailure& failure) {
    const auto before = std::exchange(last_, failure);
    if (rule_.max_restarts == 0) return {};
    if (restarts_ >= rule_.max_restarts) {
        return {.text = "no restart left (" + std::to_string(rule_.max_restarts) + " used)"};
    }
    const bool same = before && failure.rank >= 0 && before->rank == failure.rank &&
                      before->exit_code == failure.exit_code;
    if (same && failure.lasted < rule_.same_failure_window) {
        return {.text = "no restart: rank " + std::to_string(failure.rank) +
                        " failed the same way twice, the second time after " +
                        base::to_string(failure.lasted) + " (--same-failure-window)"};
    }
    auto delay = std::min(rule_.delay, longest_delay);
    for (int i = 0; i < restarts_ && delay < longest_delay; ++i) {
        delay = std::min(delay * 2, longest_delay);
    }
    ++restarts_;
    return {.restart = true,
            .delay = delay,
            .text = "restart " + std::to_string(restarts_) + " of " +
                    std::to_string(rule_.max_restarts) +
                    (delay.count() > 0 ? " in " + base::to_string(delay) : std::string())};
}

}  // namespace ddp::launcher
