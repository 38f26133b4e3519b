#include "launcher/agent/attempt/leftovers.hpp"

#include <algorithm>
#include <csignal>
#include <utility>
#include <vector>

namespace ddp::launcher {

std::optional<Leftovers::Time> Leftovers::look(Time now, const StopSequence& stop,
                                               std::chrono::milliseconds grace,
                                               const ExcludedProcesses& excluded) {
    if (!has_children() || grace.count() == 0) return std::nullopt;
    const std::vector<Descendant> left = living_descendants(excluded);
    if (left.empty()) return std::nullopt;
    if (!kill_at_) {
        ask_at_ = now + std::min(StopSequence::time_to_leave, grace);
        kill_at_ = stop.kill_time(*ask_at_, grace);
    }
    if (now >= *kill_at_) return std::nullopt;
    if (now < *ask_at_) return std::min(*ask_at_, *kill_at_);
    if (!std::exchange(were_asked_, true)) {
        signal_descendants(left, SIGTERM);
        signal_descendants(left, SIGCONT);
        asked_ = describe(left);
    }
    return kill_at_;
}

void Leftovers::shorten(Time end) {
    if (kill_at_) kill_at_ = std::min(*kill_at_, end);
}

std::string Leftovers::take_asked() { return std::exchange(asked_, {}); }

}  // namespace ddp::launcher
