// Subscriptions: which clients of a TCP store's server wait for which keys, and which watch them.
// Pure: a change of a key comes in, replies go out. What a client waits for and watches is charged
// to its account.
// Invariant: a client that is forgotten is in no list any more.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/server/detached_values.hpp"
#include "store/server/memory_budget.hpp"
#include "store/server/reply.hpp"
#include "store/server/server_limits.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class Subscriptions {
public:
    // Borrows both.
    Subscriptions(MemoryBudget& budget, DetachedValues& detached)
        : budget_(budget), detached_(detached) {}

    // Each throws UsageError when there is no memory for it.
    void start_wait(ClientId client, StoreKeys keys);  // none of them is there
    void watch(ClientId client, const std::string& key);
    void end_wait(ClientId client);
    void end(ClientId client);  // of all that it waits for or watches
    void clear();

    // The key is there now.
    void wake_all(const std::string& key, Replies& replies);
    void wake_one(const std::string& key, Replies& replies);

    struct Change {
        WatchEvent event;
        SharedValue before;
        SharedValue after;
    };
    bool is_watched(const std::string& key) const { return watchers_.contains(key); }
    void tell_watchers(const std::string& key, const Change& change, Replies& replies);

private:
    using ClientLists = std::unordered_map<std::string, std::vector<ClientId>>;
    static void remove_from(ClientLists& lists, const StoreKeys& keys, ClientId client);
    void charge(ClientId client, std::size_t more);
    bool count_down(ClientId client, Replies& replies);  // true: the client was woken

    struct Wait {
        StoreKeys keys;       // those that were missing when it began
        std::size_t missing;  // how many of them have not come since
        std::size_t cost;
    };
    struct Watches {
        StoreKeys keys{};
        std::size_t cost = 0;
    };
    MemoryBudget& budget_;
    DetachedValues& detached_;
    std::unordered_map<ClientId, Wait> waits_;
    ClientLists waiters_;  // of a key
    std::unordered_map<ClientId, Watches> watches_;
    ClientLists watchers_;  // of a key
};

}  // namespace ddp::store
