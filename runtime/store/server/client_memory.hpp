// ClientMemory: what the requests and replies of a server's connections cost, and which wait until
// there is memory for a large one. Invariant: what a large request or reply may cost was charged
// before its bytes were accepted or made.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/server/memory_queue.hpp"
#include "store/server/server_client.hpp"
#include "store/server/store_data.hpp"

namespace ddp::store {

class ClientMemory {
public:
    using Clients = std::unordered_map<ClientId, ServerClient>;
    using Clock = MemoryQueue::Clock;
    struct Evicted {
        ClientId client;
        std::string why;
    };

    // Borrows both.
    ClientMemory(StoreData& data, Clients& clients) : data_(data), clients_(clients) {}

    // Whether the client may go on with the request that its parser wants memory for, or carry out
    // its pending one; if not it waits. Throws UsageError when that can never be.
    bool get_memory(ServerClient& client);
    // Brings its charges to what its connection costs now. Empty, or why it must go.
    std::string charge(ServerClient& client);
    void forget(ClientId client);
    void clear();

    struct Decisions {
        std::vector<ClientId> resumed{};
        std::vector<Evicted> evicted{};
    };
    // Who waited and need not wait any longer.
    Decisions admit();
    // Clients that waited too long, and those that send too slowly while others wait.
    std::vector<Evicted> overdue(Clock::time_point now);
    // Keeps the values that only unread replies hold within what is left for them: the client that
    // holds most is evicted, and has lost its replies.
    std::vector<Evicted> limit_detached();
    bool has_waiters() const { return !queue_.empty(); }

private:
    enum class Grant { granted, no_memory, no_slot };
    Grant reserve(ServerClient& client);
    Grant reserve_for_request(ServerClient& client);
    bool take_slot(ClientId client);
    void release_slot(ClientId client);
    void wait(ServerClient& client);

    StoreData& data_;
    Clients& clients_;
    MemoryQueue queue_;
    bool recheck_ = false;
    // Who may send a list of unforeseen length, which gets its memory in steps: two that had half
    // of it would wait for each other. The second slot is for a rank while another client has the
    // first.
    std::array<ClientId, 2> slots_{};  // 0: free
};

}  // namespace ddp::store
