// StoreData: what a TCP store's server knows (map, queues, waiters, watchers) and what each
// request does to it. Pure: requests in, replies out, no I/O, so that every operation can be tested
// as a table. Invariant: a client that is forgotten is in no list any more; every reply is for a
// client that asked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/server/detached_values.hpp"
#include "store/server/memory_budget.hpp"
#include "store/server/reply.hpp"
#include "store/server/server_limits.hpp"
#include "store/server/store_map.hpp"
#include "store/server/subscriptions.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class StoreData {
public:
    explicit StoreData(StoreLimits limits = {}, ClientHooks hooks = {});
    StoreData(const StoreData&) = delete;
    StoreData& operator=(const StoreData&) = delete;

    // Carries out one request of `client`, whose connection speaks `era`. Appends the replies that
    // it causes, for this client and for those it wakes. Throws UsageError when it cannot be
    // carried out: close the client.
    void execute(ClientId client, Era era, Request request, Replies& replies);
    // What the reply will cost beside values that it shares with the map; roughly, not less. Throws
    // UsageError when that is more than a reply may cost.
    std::size_t reply_bytes(const Request& request) const;
    // The client sends nothing more: its waits and watches end. The hooks still know who it is.
    void end_input(ClientId client);
    // The client has left. The hooks still know who it is, unless end_input() came before.
    void forget(ClientId client);
    // Forgets everything.
    void clear();

    // Of all clients, also for what their connections use.
    MemoryBudget& budget() { return budget_; }
    // Values that only replies hold.
    DetachedValues& detached() { return detached_; }
    // All that is counted, the map included.
    std::size_t held_bytes() const {
        return map_.bytes() + queue_bytes_ + budget_.used() + detached_.bytes();
    }

private:
    struct Call {
        ClientId client;
        Era era;
        Request& request;
        Replies& replies;
        const std::string& key() const { return request.keys.front(); }
        Reply& reply() const { return replies.emplace_back(Reply{client, {}}); }
    };
    using Handler = void (StoreData::*)(const Call&);
    static Handler handler_of(Opcode op);

    void set(const Call&);
    void compare_set(const Call&);
    void get(const Call&);
    void add(const Call&);
    void check(const Call&);
    void wait(const Call&);
    void get_num_keys(const Call&);
    void delete_key(const Call&);
    void append(const Call&);
    void multi_set(const Call&);
    void cancel_wait(const Call&);
    void ping(const Call&);
    void queue_push(const Call&);
    void queue_pop(const Call&);
    void queue_len(const Call&);
    void list_keys(const Call&);
    void barrier(const Call&);
    void watch_key(const Call&);

    void store(const Call& call, const std::string& key, std::string value);
    void require_map_space(const Call& call);
    std::string who_filled_it() const;
    void append_value(Reply& reply, const std::string& key) const;
    void let_go(SharedValue value);
    void remember(ClientId client);
    bool present(const std::string& key) const;

    struct Queue {
        std::deque<std::string> values{};  // never empty
        std::size_t bytes = 0;             // of the values
        ClientId owner = 0;                // the last one that pushed
    };
    StoreLimits limits_;
    ClientHooks hooks_;
    MemoryBudget budget_;
    StoreMap map_;
    DetachedValues detached_;
    std::unordered_map<std::string, Queue> queues_;
    std::size_t queue_bytes_ = 0;
    Subscriptions subscriptions_{budget_, detached_};
    // Clients that have left and own most of the map: what the error of a full map calls them.
    std::unordered_map<ClientId, std::string> departed_;
};

}  // namespace ddp::store
