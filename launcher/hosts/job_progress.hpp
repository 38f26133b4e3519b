// JobProgress: what the hosts of a round tell of their workers, added up for the status line. Pure.
// Invariant: no host counts for more workers than it has in the round.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/hosts/membership/membership_actions.hpp"
#include "launcher/hosts/messages/messages.hpp"

#include <map>

namespace ddp::launcher {

class JobProgress {
public:
    // What was told of the last one is forgotten.
    void begin_round(const RoundMessage& round);
    // Of another round, or by a host that is not in it: nothing.
    void note(MemberId by, const ProgressMessage& progress);
    // All workers, those that run, and the slowest rank's step and rate.
    StatusMessage total() const;

private:
    RoundMessage round_;
    std::map<MemberId, ProgressMessage> told_;
};

}  // namespace ddp::launcher
