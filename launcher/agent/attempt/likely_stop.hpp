// Whether workers have died of a stop of the whole job that the launcher has not heard of yet.
// Pure, but for the time.
#pragma once

#include "launcher/agent/attempt/stop_sequence.hpp"
#include "launcher/worker/worker.hpp"

#include <cstddef>
#include <optional>
#include <span>

namespace ddp::launcher {

// When some have died of stop signals (`stops`) that we did not send, and none of anything worse:
// somebody may be signalling every process of the job, and the launcher's own signal still be to
// come. Until then it is waited for before that counts as a failure. `order`: of their ends.
std::optional<StopSequence::Time> stop_may_come_until(std::span<const Worker> workers,
                                                      std::span<const std::size_t> order,
                                                      std::span<const int> stops);

}  // namespace ddp::launcher
