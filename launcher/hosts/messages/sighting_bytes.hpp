// A Sighting within a message between agents, and Paces, as bytes: protocol.md's.
#pragma once

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/verdict/process_state.hpp"
#include "launcher/verdict/rank_pace.hpp"
#include "launcher/verdict/rank_state.hpp"

#include <chrono>

namespace ddp::launcher {

// Of a rank the last collectives alone. What would not fit into a frame is left out, ranks from the
// end on.
void put_sighting(MessageWriter& out, const Sighting& seen);
// Throws UsageError on anything that put_sighting() does not make. Times are so far from the
// extremes that their differences, and thrice those, are numbers.
Sighting take_sighting(MessageReader& in);

// The same of Paces; times of processes' use are by the member's clock.
void put_paces(MessageWriter& out, const Paces& paces);
Paces take_paces(MessageReader& in);

// What it has used so far.
void put_use(MessageWriter& out, const ProcessUse& use);
ProcessUse take_use(MessageReader& in);

// What a rank's process does, without the processors and the memory that it has used.
void put_process(MessageWriter& out, const ProcessState& process);
ProcessState take_process(MessageReader& in);

// To a clock that shows so much more.
void shift_clock(Sighting& seen, std::chrono::nanoseconds by);

}  // namespace ddp::launcher
