#include "launcher/agent/attempt/likely_stop.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>

namespace ddp::launcher {

// By the kernel's word, or by a shell's.
std::optional<StopSequence::Time> stop_may_come_until(std::span<const Worker> workers,
                                                      std::span<const std::size_t> order,
                                                      std::span<const int> stops) {
    using Time = StopSequence::Time;
    std::optional<Time> until;
    for (const std::size_t index : order) {
        const Worker& worker = workers[index];
        const ExitStatus& end = *worker.ended;
        if (end.ok() || worker.stopped_with != 0) continue;
        const int signal = end.exit_code() - contract::exit_signal_base;
        if (std::ranges::find(stops, signal) != stops.end()) {
            const Time over = worker.ended_at + StopSequence::time_to_leave;
            until = until ? std::max(*until, over) : over;
        } else if (!until && end.exit_code() != contract::exit_because_of_peer) {
            return std::nullopt;  // a failure after a stop signal's is taken for its consequence
        }
    }
    return until && StopSequence::Clock::now() < *until ? until : std::nullopt;
}

}  // namespace ddp::launcher
