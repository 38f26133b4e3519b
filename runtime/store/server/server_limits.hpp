// What one store server may hold, and what it asks its owner about a client. See protocol.md,
// "Strangers and limits".
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace ddp::store {

using ClientId = std::uint64_t;

struct StoreLimits {
    // All keys and values. The last eighth is kept for the job's ranks.
    std::size_t map_bytes = std::size_t{256} << 20;
    // Everything else together: requests on their way in, replies on their way out, waits, watches.
    std::size_t working_bytes = std::size_t{48} << 20;
    // The process is there for the server: memory that is no longer needed goes back to the kernel
    // at once.
    bool returns_memory = false;
    // How long one client's requests are carried out in a row, while others and the process's own
    // work wait; at least one is.
    std::chrono::microseconds longest_turn{2000};
};

struct ClientHooks {
    // Whether the client is part of the job, asked at most once a client and only when memory is
    // short. Absent: only those that were marked as ranks are.
    std::function<bool(ClientId)> belongs_to_job = {};
    // Who it is, for messages. Absent: "connection 17".
    std::function<std::string(ClientId)> describe = {};
};

inline constexpr std::size_t max_reply_bytes = std::size_t{64} << 20;
// Of it what is not the map's own: a list of keys, popped values.
inline constexpr std::size_t max_owned_reply_bytes = std::size_t{16} << 20;
inline constexpr std::size_t max_watches_per_client = 1024;

}  // namespace ddp::store
