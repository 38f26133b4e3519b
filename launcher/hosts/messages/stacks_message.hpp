// Where ranks that hold up a job are, as their host has read it when it was asked (LookMessage); as
// bytes, protocol.md's.
#pragma once

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/stacks/rank_stacks.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {

// Up.
struct StacksMessage {
    int round = 0;
    std::uint64_t question = 0;  // the LookMessage's that asked for them
    std::vector<RankStacks> stacks = {};
};

// Of a rank that would take more than 192 KiB the first threads alone, or nothing.
std::string bytes_of(const StacksMessage& message);
// Of what is behind the type. Throws UsageError on what bytes_of() does not make.
StacksMessage take_stacks_message(MessageReader& in);

}  // namespace ddp::launcher
