// What each operation does: protocol.md, "What the operations mean". Where PyTorch's two server
// backends differ, the newer (libuv) one is followed.
#include "store/store_data.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>

namespace ddp::store {
namespace {

constexpr std::size_t queue_item_bytes = 64;  // what a queued value costs beside its bytes

std::uint8_t wire(auto reply) { return static_cast<std::uint8_t>(reply); }

}  // namespace

StoreData::Handler StoreData::handler_of(Opcode op) {
    static constexpr std::array<Handler, opcode_count> handlers{
        nullptr,  // validate: the parser's
        &StoreData::set,
        &StoreData::compare_set,
        &StoreData::get,
        &StoreData::add,
        &StoreData::check,
        &StoreData::wait,
        &StoreData::get_num_keys,
        &StoreData::delete_key,
        &StoreData::append,
        &StoreData::get,  // multi_get: the same, for several keys
        &StoreData::multi_set,
        &StoreData::cancel_wait,
        &StoreData::ping,
        &StoreData::queue_push,
        &StoreData::queue_pop,
        &StoreData::queue_len,
        &StoreData::list_keys,
        &StoreData::barrier,
        &StoreData::watch_key,
        nullptr,  // join: the server's
    };
    return handlers[static_cast<std::size_t>(op)];
}

void StoreData::execute(ClientId client, Era era, const Request& request, Replies& replies) {
    const auto handler = handler_of(request.op);
    if (handler == nullptr) throw UsageError{"store: VALIDATE may only come first"};
    (this->*handler)(Call{client, era, request, replies});
}

void StoreData::forget(ClientId client) {
    end_wait(client);
    if (const auto watches = watches_.extract(client); !watches.empty()) {
        remove_from(watchers_, watches.mapped(), client);
    }
}

// Stores a value and tells those who wait for it or watch it.
void StoreData::store(const std::string& key, const std::string& value, Replies& replies) {
    if (watchers_.contains(key)) {
        const auto* held = map_.find(key);
        tell_watchers(key,
                      {.event = held == nullptr ? WatchEvent::created : WatchEvent::updated,
                       .before = held == nullptr ? std::string{} : *held,
                       .after = value},
                      replies);
    }
    map_.set(key, value);
    wake_all(key, replies);
}

void StoreData::require_room(const Request& request) const {
    auto bytes = map_.bytes() + queue_bytes_;
    for (const auto& key : request.keys) bytes += key.size();
    for (const auto& value : request.values) bytes += value.size();
    if (bytes > max_store_bytes) {
        throw UsageError{"store: full, more than " + std::to_string(max_store_bytes) + " bytes"};
    }
}

void StoreData::set(const Call& call) {
    require_room(call.request);
    store(call.key(), call.request.values.front(), call.replies);
}

void StoreData::multi_set(const Call& call) {
    require_room(call.request);
    for (std::size_t i = 0; i < call.request.keys.size(); ++i) {
        store(call.request.keys[i], call.request.values[i], call.replies);
    }
}

void StoreData::compare_set(const Call& call) {
    require_room(call.request);
    const auto& desired = call.request.values[1];
    auto swap = compare_and_swap(map_.find(call.key()), call.request.values[0], desired);
    append_bytes(call.reply(), swap.returned);
    if (swap.stores) store(call.key(), desired, call.replies);
}

void StoreData::get(const Call& call) {
    std::string values;
    for (const auto& key : call.request.keys) {
        const auto* held = map_.find(key);
        if (held == nullptr && call.era == Era::legacy) {
            throw UsageError{"store: get of a key that is not there"};
        }
        append_bytes(values, held == nullptr ? std::string_view{} : std::string_view{*held});
        if (values.size() > max_reply_bytes) throw UsageError{"store: a reply of over 64 MiB"};
    }
    call.reply() = std::move(values);
}

void StoreData::add(const Call& call) {
    require_room(call.request);
    const auto sum = sum_with(map_.find(call.key()), call.request.number, call.key());
    append_i64(call.reply(), sum);
    store(call.key(), std::to_string(sum), call.replies);
}

void StoreData::check(const Call& call) {
    const auto& keys = call.request.keys;
    const bool all = std::all_of(keys.begin(), keys.end(),
                                 [this](const std::string& key) { return present(key); });
    append_u8(call.reply(), wire(all ? CheckReply::ready : CheckReply::not_ready));
}

void StoreData::wait(const Call& call) {
    StoreKeys absent;
    for (const auto& key : call.request.keys) {
        if (!present(key)) absent.push_back(key);
    }
    end_wait(call.client);
    if (absent.empty()) {
        append_u8(call.reply(), wire(WaitReply::stop_waiting));
    } else {
        start_wait(call.client, std::move(absent));
    }
}

void StoreData::get_num_keys(const Call& call) {
    append_i64(call.reply(), static_cast<std::int64_t>(map_.size()));
}

void StoreData::delete_key(const Call& call) {
    if (const auto* held = map_.find(call.key()); held != nullptr) {
        tell_watchers(call.key(), {WatchEvent::deleted, *held, {}}, call.replies);
    }
    append_i64(call.reply(), map_.erase(call.key()) ? 1 : 0);
}

void StoreData::append(const Call& call) {
    require_room(call.request);
    const auto& piece = call.request.values.front();
    const bool is_new = map_.find(call.key()) == nullptr;
    map_.append(call.key(), piece);
    tell_watchers(call.key(), {is_new ? WatchEvent::created : WatchEvent::appended, {}, piece},
                  call.replies);
    wake_all(call.key(), call.replies);
}

void StoreData::cancel_wait(const Call& call) {
    end_wait(call.client);
    append_u8(call.reply(), wire(WaitReply::wait_canceled));
}

void StoreData::ping(const Call& call) {
    append_u32(call.reply(), static_cast<std::uint32_t>(call.request.number));
}

void StoreData::queue_push(const Call& call) {
    require_room(call.request);
    const auto& value = call.request.values.front();
    const auto [queue, is_new] = queues_.try_emplace(call.key());
    if (is_new) queue_bytes_ += call.key().size() + queue_item_bytes;
    queue->second.push_back(value);
    queue_bytes_ += value.size() + queue_item_bytes;
    wake_one(call.key(), call.replies);
}

void StoreData::queue_pop(const Call& call) {
    const auto queue = queues_.find(call.key());
    auto& reply = call.reply();
    if (queue == queues_.end()) return append_i64(reply, 0);
    append_i64(reply, static_cast<std::int64_t>(queue->second.size()));
    append_bytes(reply, queue->second.front());
    queue_bytes_ -= queue->second.front().size() + queue_item_bytes;
    queue->second.pop_front();
    if (queue->second.empty()) {
        queue_bytes_ -= queue->first.size() + queue_item_bytes;
        queues_.erase(queue);
    }
}

void StoreData::queue_len(const Call& call) {
    const auto queue = queues_.find(call.key());
    const auto length = queue == queues_.end() ? std::size_t{0} : queue->second.size();
    append_i64(call.reply(), static_cast<std::int64_t>(length));
}

void StoreData::list_keys(const Call& call) {
    std::string list;
    append_i64(list, static_cast<std::int64_t>(map_.size()));
    for (const auto& key : map_.keys()) {
        append_bytes(list, key);
        if (list.size() > max_reply_bytes) throw UsageError{"store: a reply of over 64 MiB"};
    }
    call.reply() = std::move(list);
}

void StoreData::barrier(const Call& call) {
    require_room(call.request);
    const auto arrived = map_.add(call.key(), 1);
    if (arrived >= call.request.number) {
        wake_all(call.key(), call.replies);
        append_u8(call.reply(), wire(WaitReply::stop_waiting));
    } else {
        end_wait(call.client);
        start_wait(call.client, {call.key()});
    }
}

void StoreData::watch_key(const Call& call) {
    auto& watched = watches_[call.client];
    if (std::find(watched.begin(), watched.end(), call.key()) == watched.end()) {
        if (watched.size() == max_watches_per_client) throw UsageError{"store: too many watches"};
        watched.push_back(call.key());
        watchers_[call.key()].push_back(call.client);
    }
    append_u8(call.reply(), wire(WatchEvent::registered));
}

bool StoreData::present(const std::string& key) const {
    return map_.find(key) != nullptr || queues_.contains(key);
}

void StoreData::start_wait(ClientId client, StoreKeys keys) {
    for (const auto& key : keys) waiters_[key].push_back(client);
    const auto missing = keys.size();
    waits_.insert_or_assign(client, Wait{std::move(keys), missing});
}

void StoreData::end_wait(ClientId client) {
    if (const auto wait = waits_.extract(client); !wait.empty()) {
        remove_from(waiters_, wait.mapped().keys, client);
    }
}

bool StoreData::count_down(ClientId client, Replies& replies) {
    const auto wait = waits_.find(client);
    if (--wait->second.missing > 0) return false;
    waits_.erase(wait);
    append_u8(replies.emplace_back(Reply{client, {}}).bytes, wire(WaitReply::stop_waiting));
    return true;
}

void StoreData::wake_all(const std::string& key, Replies& replies) {
    const auto waiting = waiters_.extract(key);
    if (waiting.empty()) return;
    for (const auto client : waiting.mapped()) count_down(client, replies);
}

void StoreData::wake_one(const std::string& key, Replies& replies) {
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

void StoreData::tell_watchers(const std::string& key, const Change& change,
                              Replies& replies) const {
    const auto watching = watchers_.find(key);
    if (watching == watchers_.end()) return;
    std::string event;
    append_u8(event, wire(change.event));
    append_bytes(event, key);
    append_bytes(event, change.before);
    append_bytes(event, change.after);
    for (const auto client : watching->second) replies.push_back({client, event});
}

void StoreData::remove_from(ClientLists& lists, const StoreKeys& keys, ClientId client) {
    for (const auto& key : keys) {
        const auto list = lists.find(key);
        if (list == lists.end()) continue;
        std::erase(list->second, client);
        if (list->second.empty()) lists.erase(list);
    }
}

}  // namespace ddp::store
