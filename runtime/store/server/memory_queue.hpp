// MemoryQueue: clients whose large request or reply waits until there is memory for it, and clients
// that already have memory for a request they are still sending. Pure: the time is handed in.
// Invariant: a client that waits for nothing and sends nothing large is not in it.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/server/server_limits.hpp"

namespace ddp::store {

class MemoryQueue {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds longest_wait{30};
    // While others wait, a client that has memory must send this much in this time.
    static constexpr std::chrono::seconds pace_time{5};
    static constexpr std::uint64_t pace_bytes = std::uint64_t{1} << 20;

    // Waits behind all others, or before them: a client with memory must not wait for those that
    // will wait for it.
    void wait(ClientId client, Clock::time_point now);
    void wait_first(ClientId client, Clock::time_point now);
    bool is_waiting(ClientId client) const;
    bool empty() const { return waiting_.empty(); }
    std::vector<ClientId> waiting() const;  // in order
    void stop_waiting(ClientId client);

    // It has memory for a request and has sent `received` bytes in all.
    void note_sender(ClientId client, std::uint64_t received, Clock::time_point now);
    void remove_sender(ClientId client) { senders_.erase(client); }
    void remove(ClientId client);
    void clear();

    // Who must go: waited too long.
    std::vector<ClientId> waited_too_long(Clock::time_point now) const;
    // Who must go, since others wait: senders that did not keep the pace. `received` tells how much
    // a client has sent in all.
    template <class Received>
    std::vector<ClientId> too_slow(Clock::time_point now, Received received) {
        std::vector<ClientId> slow;
        for (auto& [client, mark] : senders_) {
            if (is_waiting(client)) mark.time = now;  // it is not read meanwhile
            if (now - mark.time < pace_time) continue;
            const std::uint64_t bytes = received(client);
            if (bytes - mark.received < pace_bytes) slow.push_back(client);
            mark = {bytes, now};
        }
        return slow;
    }

private:
    struct Waiting {
        ClientId client;
        Clock::time_point since;
    };
    struct Mark {
        std::uint64_t received;
        Clock::time_point time;
    };
    void begin(Clock::time_point now);

    std::deque<Waiting> waiting_;
    std::unordered_map<ClientId, Mark> senders_;
};

}  // namespace ddp::store
