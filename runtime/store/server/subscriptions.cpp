// Invariant kept here: waiters_ and watchers_ hold exactly the keys of waits_ and watches_.
#include "store/server/subscriptions.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace ddp::store {
namespace {

// What a key that is waited for or watched costs: it is in two lists.
std::size_t subscription_cost(const std::string& key) { return 2 * (key.size() + 128); }

constexpr std::size_t small_event_bytes = 1024;

}  // namespace

void Subscriptions::watch(ClientId client, const std::string& key) {
    auto& watched = watches_[client];
    if (std::find(watched.keys.begin(), watched.keys.end(), key) != watched.keys.end()) return;
    if (watched.keys.size() == max_watches_per_client) throw UsageError{"store: too many watches"};
    charge(client, subscription_cost(key));
    watched.cost += subscription_cost(key);
    watched.keys.push_back(key);
    watchers_[key].push_back(client);
}

void Subscriptions::end(ClientId client) {
    end_wait(client);
    if (const auto watches = watches_.extract(client); !watches.empty()) {
        remove_from(watchers_, watches.mapped().keys, client);
        charge(client, 0);
    }
}

void Subscriptions::clear() {
    waits_.clear();
    waiters_.clear();
    watches_.clear();
    watchers_.clear();
}

// Charges what the client waits for and watches, and `more`.
void Subscriptions::charge(ClientId client, std::size_t more) {
    const auto wait = waits_.find(client);
    const auto watches = watches_.find(client);
    const auto bytes = more + (wait == waits_.end() ? 0 : wait->second.cost) +
                       (watches == watches_.end() ? 0 : watches->second.cost);
    constexpr auto use = MemoryBudget::Use::subscription;
    const bool is_large = bytes > RequestParser::bytes_without_grant;
    if (is_large ? budget_.charge_large(client, use, bytes) : budget_.charge(client, use, bytes)) {
        return;
    }
    throw UsageError{"store: no memory left for " + std::to_string(bytes) +
                     " bytes of keys that one client waits for or watches"};
}

void Subscriptions::start_wait(ClientId client, StoreKeys keys) {
    std::size_t cost = 0;
    for (const auto& key : keys) cost += subscription_cost(key);
    charge(client, cost);
    const auto missing = keys.size();
    const auto& wait = waits_.insert_or_assign(client, Wait{std::move(keys), missing, cost}).first;
    for (const auto& key : wait->second.keys) waiters_[key].push_back(client);
}

void Subscriptions::end_wait(ClientId client) {
    if (const auto wait = waits_.extract(client); !wait.empty()) {
        remove_from(waiters_, wait.mapped().keys, client);
        charge(client, 0);
    }
}

bool Subscriptions::count_down(ClientId client, Replies& replies) {
    const auto wait = waits_.find(client);
    if (--wait->second.missing > 0) return false;
    waits_.erase(wait);
    charge(client, 0);
    append_u8(replies.emplace_back(Reply{client, {}}).bytes, wire(WaitReply::stop_waiting));
    return true;
}

void Subscriptions::wake_all(const std::string& key, Replies& replies) {
    const auto waiting = waiters_.extract(key);
    if (waiting.empty()) return;
    for (const auto client : waiting.mapped()) count_down(client, replies);
}

void Subscriptions::wake_one(const std::string& key, Replies& replies) {
    const auto waiting = waiters_.find(key);
    if (waiting == waiters_.end()) return;
    auto& clients = waiting->second;
    bool woken = false;
    while (!woken && !clients.empty()) {
        const auto client = clients.front();
        clients.erase(clients.begin());
        woken = count_down(client, replies);
    }
    if (clients.empty()) waiters_.erase(waiting);
}

// All watchers share one event: a small one is made once, of a large one the values are the map's.
void Subscriptions::tell_watchers(const std::string& key, const Change& change, Replies& replies) {
    const auto watching = watchers_.find(key);
    if (watching == watchers_.end()) return;
    const auto size_of = [](const SharedValue& value) { return value ? value->bytes.size() : 0; };
    const bool is_small = size_of(change.before) + size_of(change.after) < small_event_bytes;
    const auto head = std::make_shared<Value>("");
    const auto middle = std::make_shared<Value>("");
    append_u8(head->bytes, wire(change.event));
    append_bytes(head->bytes, key);
    append_u64(head->bytes, size_of(change.before));
    auto& length_after = is_small ? head->bytes : middle->bytes;
    if (is_small && change.before) head->bytes += change.before->bytes;
    append_u64(length_after, size_of(change.after));
    if (is_small && change.after) head->bytes += change.after->bytes;
    for (const auto client : watching->second) {
        auto& reply = replies.emplace_back(Reply{client, {}});
        reply.share(head);
        if (is_small) continue;
        if (change.before) reply.share(change.before);
        reply.share(middle);
        if (change.after) reply.share(change.after);
    }
    if (head.use_count() > 1) detached_.add(head);
    if (middle.use_count() > 1) detached_.add(middle);
}

void Subscriptions::remove_from(ClientLists& lists, const StoreKeys& keys, ClientId client) {
    for (const auto& key : keys) {
        const auto list = lists.find(key);
        if (list == lists.end()) continue;
        std::erase(list->second, client);
        if (list->second.empty()) lists.erase(list);
    }
}

}  // namespace ddp::store
