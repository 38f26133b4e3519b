// What hosts tell each other of ranks that record nothing, as bytes: protocol.md's.
#pragma once

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/verdict/silent/rank_reading.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::launcher {

// Up, each second: the threads of the member's ranks. Not where one of them has recorded anything.
struct ThreadsMessage {
    int round = 0;
    std::vector<RankRuns> threads = {};  // names no hosts
};
// Down: where are all of the member's ranks?
struct ReadMessage {
    int round = 0;
    std::uint64_t question = 0;
};
// Up: there; of hosts with more ranks than 64 nothing is told.
struct ReadingsMessage {
    int round = 0;
    std::uint64_t question = 0;
    std::vector<RankReading> ranks = {};  // names no hosts
    std::vector<int> ended = {};          // of the ranks those that have, and were not read
};

std::string bytes_of(const ThreadsMessage& message);
std::string bytes_of(const ReadMessage& message);
std::string bytes_of(const ReadingsMessage& message);
// Of what is behind the type. Throw UsageError on what bytes_of() does not make.
ThreadsMessage take_threads_message(MessageReader& in);
ReadMessage take_read_message(MessageReader& in);
ReadingsMessage take_readings_message(MessageReader& in);

}  // namespace ddp::launcher
