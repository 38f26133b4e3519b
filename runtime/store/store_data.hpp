// StoreData: what a TCP store's server knows (map, queues, who waits, who watches) and what each
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

#include "store/store_map.hpp"
#include "store/wire.hpp"

namespace ddp::store {

inline constexpr std::size_t max_store_bytes = std::size_t{256} << 20;
inline constexpr std::size_t max_reply_bytes = std::size_t{64} << 20;
inline constexpr std::size_t max_watches_per_client = 1024;

using ClientId = std::uint64_t;

struct Reply {
    ClientId to;
    std::string bytes;
};
using Replies = std::vector<Reply>;

class StoreData {
public:
    // Carries out one request of `client`, whose connection speaks `era`. Appends the replies that
    // it causes, for this client and for those it wakes. Throws UsageError when it cannot be
    // carried out: close the client.
    void execute(ClientId client, Era era, const Request& request, Replies& replies);
    // The client has left: its waits and watches end.
    void forget(ClientId client);

private:
    struct Call {
        ClientId client;
        Era era;
        const Request& request;
        Replies& replies;
        const std::string& key() const { return request.keys.front(); }
        std::string& reply() const { return replies.emplace_back(Reply{client, {}}).bytes; }
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

    void store(const std::string& key, const std::string& value, Replies& replies);
    void require_room(const Request& request) const;
    bool present(const std::string& key) const;
    void start_wait(ClientId client, StoreKeys keys);
    void end_wait(ClientId client);
    bool count_down(ClientId client, Replies& replies);  // true: the client was woken
    void wake_all(const std::string& key, Replies& replies);
    void wake_one(const std::string& key, Replies& replies);

    struct Change {
        WatchEvent event;
        std::string before;
        std::string after;
    };
    void tell_watchers(const std::string& key, const Change& change, Replies& replies) const;

    using ClientLists = std::unordered_map<std::string, std::vector<ClientId>>;
    static void remove_from(ClientLists& lists, const StoreKeys& keys, ClientId client);

    struct Wait {
        StoreKeys keys;       // those that were missing when it began
        std::size_t missing;  // how many of them have not come since
    };
    StoreMap map_;
    std::unordered_map<std::string, std::deque<std::string>> queues_;  // none of them empty
    std::size_t queue_bytes_ = 0;
    std::unordered_map<ClientId, Wait> waits_;
    ClientLists waiters_;  // of a key
    std::unordered_map<ClientId, StoreKeys> watches_;
    ClientLists watchers_;  // of a key
};

}  // namespace ddp::store
