// What a host tells of its ranks' timelines when its part of a round has ended; as bytes,
// protocol.md's.
#pragma once

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/timeline/job_timeline.hpp"

#include <chrono>

namespace ddp::launcher {

// Up. The part names no host, and no attempt but the round.
struct TimelineMessage {
    int round = 0;
    TimelinePart part = {};
};

void put_timeline(MessageWriter& out, const TimelinePart& part);
// Throws UsageError on anything that put_timeline() does not make.
TimelinePart take_timeline(MessageReader& in);

// To a clock that shows so much more.
void shift_clock(TimelinePart& part, std::chrono::nanoseconds by);

}  // namespace ddp::launcher
