// What each operation does: protocol.md, "What the operations mean". Where PyTorch's two server
// backends differ, the newer (libuv) one is followed.
#include "store/server/store_data.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

namespace ddp::store {
namespace {

constexpr std::size_t queue_item_bytes = 64;  // what a queued value costs beside its bytes
// And an empty std::deque, which begins with a node and a map of nodes, in its entry.
constexpr std::size_t one_queue_bytes = StoreMap::entry_bytes + 640;
// A value below the first is copied into a reply, and one below the second into a small reply.
constexpr std::size_t always_copied = 64;
constexpr std::size_t copied_bytes = 1024;
constexpr std::size_t small_reply_bytes = std::size_t{64} << 10;
constexpr std::size_t shared_piece_bytes = 64;
constexpr std::size_t few_keys = 60;  // their values make a small reply, whatever they are
// Who left and owns less than this part of the map is not remembered by name.
constexpr std::size_t remembered_part = 1024;
constexpr std::size_t described_owners = 16;

}  // namespace

StoreData::StoreData(StoreLimits limits, ClientHooks hooks)
    : limits_(limits),
      hooks_(std::move(hooks)),
      budget_(limits.working_bytes, hooks_.belongs_to_job) {}

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

void StoreData::execute(ClientId client, Era era, Request request, Replies& replies) {
    const auto handler = handler_of(request.op);
    if (handler == nullptr) throw UsageError{"store: VALIDATE may only come first"};
    (this->*handler)(Call{client, era, request, replies});
}

std::size_t StoreData::reply_bytes(const Request& request) const {
    std::size_t bytes = 0;
    if (request.op == Opcode::multi_get && request.keys.size() > few_keys) {
        for (const auto& key : request.keys) {
            const auto* held = map_.find(key);
            const auto size = held == nullptr ? 0 : held->size();
            const bool may_be_copied = size < copied_bytes;
            bytes += sizeof(std::uint64_t) +
                     (may_be_copied ? std::max(size, shared_piece_bytes) : shared_piece_bytes);
        }
    } else if (request.op == Opcode::list_keys) {
        bytes = map_.key_bytes() + (map_.size() + 1) * sizeof(std::uint64_t);
    } else if (request.op == Opcode::queue_pop) {
        const auto queue = queues_.find(request.keys.front());
        if (queue != queues_.end()) bytes = queue->second.values.front().size();
    }
    if (bytes > max_owned_reply_bytes) {
        throw UsageError{"store: a reply of over " + std::to_string(max_owned_reply_bytes >> 20) +
                         " MiB"};
    }
    return bytes;
}

void StoreData::end_input(ClientId client) {
    subscriptions_.end(client);
    remember(client);
}

void StoreData::forget(ClientId client) {
    end_input(client);
    budget_.forget(client);
}

// Who it was, if a full store may have to name it.
void StoreData::remember(ClientId client) {
    const auto& owners = map_.bytes_by_owner();
    const auto owned = owners.find(client);
    if (owned == owners.end() || owned->second < limits_.map_bytes / remembered_part) return;
    if (!hooks_.describe || departed_.contains(client)) return;
    std::erase_if(departed_, [&](const auto& who) { return !owners.contains(who.first); });
    departed_.emplace(client, hooks_.describe(client));
}

void StoreData::clear() {
    subscriptions_.clear();
    budget_.clear();
    detached_ = {};
    map_.clear();
    queues_.clear();
    queue_bytes_ = 0;
    departed_.clear();
}

// Stores a value and tells those who wait for it or watch it.
void StoreData::store(const Call& call, const std::string& key, std::string value) {
    if (!subscriptions_.is_watched(key)) {
        let_go(map_.set(key, std::move(value), call.client));
    } else {
        auto before = map_.share(key);
        map_.set(key, std::move(value), call.client);
        subscriptions_.tell_watchers(key,
                                     {.event = before ? WatchEvent::updated : WatchEvent::created,
                                      .before = before,
                                      .after = map_.share(key)},
                                     call.replies);
        let_go(std::move(before));
    }
    subscriptions_.wake_all(key, call.replies);
}

// A value that the map no longer holds is counted as long as replies do.
void StoreData::let_go(SharedValue value) {
    if (value.use_count() > 1) detached_.add(value);
}

void StoreData::require_map_space(const Call& call) {
    auto bytes = map_.bytes() + queue_bytes_;
    for (const auto& key : call.request.keys) bytes += key.size() + StoreMap::entry_bytes;
    for (const auto& value : call.request.values) bytes += value.size();
    if (call.request.op == Opcode::queue_push) bytes += queue_item_bytes + one_queue_bytes;
    const auto for_others = limits_.map_bytes - limits_.map_bytes / 8;
    if (bytes <= for_others) return;
    const bool is_rank = budget_.is_rank(call.client);
    if (is_rank && bytes <= limits_.map_bytes) return;
    throw UsageError{"store: full, more than " +
                     std::to_string(is_rank ? limits_.map_bytes : for_others) + " bytes" +
                     who_filled_it()};
}

// Several connections of one client are one, as far as the description tells. Only the largest
// owners are described: describing costs system calls.
std::string StoreData::who_filled_it() const {
    using Owner = std::pair<std::size_t, ClientId>;
    std::vector<Owner> owners;
    for (const auto& [client, bytes] : map_.bytes_by_owner()) owners.emplace_back(bytes, client);
    for (const auto& [key, queue] : queues_) {
        owners.emplace_back(queue.bytes, queue.owner);
    }
    const auto described = std::min(owners.size(), described_owners);
    std::partial_sort(owners.begin(), owners.begin() + static_cast<std::ptrdiff_t>(described),
                      owners.end(), std::greater<>{});
    std::unordered_map<std::string, std::size_t> bytes_of;
    for (std::size_t i = 0; i < described; ++i) {
        const auto client = owners[i].second;
        const auto gone = departed_.find(client);
        const bool is_there = budget_.used_by(client) > 0;
        const auto who = gone != departed_.end()       ? gone->second
                         : is_there && hooks_.describe ? hooks_.describe(client)
                                                       : "connection " + std::to_string(client);
        bytes_of[who] += owners[i].first;
    }
    const auto most = std::max_element(
        bytes_of.begin(), bytes_of.end(),
        [](const auto& left, const auto& right) { return left.second < right.second; });
    if (most == bytes_of.end()) return "";
    return "; most of it, " + std::to_string(most->second) + " bytes, was set by " + most->first;
}

void StoreData::set(const Call& call) {
    require_map_space(call);
    store(call, call.key(), std::move(call.request.values.front()));
}

void StoreData::multi_set(const Call& call) {
    require_map_space(call);
    for (std::size_t i = 0; i < call.request.keys.size(); ++i) {
        store(call, call.request.keys[i], std::move(call.request.values[i]));
    }
}

void StoreData::compare_set(const Call& call) {
    require_map_space(call);
    const auto& expected = call.request.values[0];
    auto& desired = call.request.values[1];
    const auto* held = map_.find(call.key());
    const bool stores = held == nullptr ? expected.empty() : *held == expected;
    if (held == nullptr && !stores) {
        append_bytes(call.reply().bytes, expected);
        return;
    }
    if (!stores) return append_value(call.reply(), call.key());
    // The reply comes before what waiters and watchers are told, and shows the value in its place.
    call.reply();
    const auto at = call.replies.size() - 1;
    store(call, call.key(), std::move(desired));
    append_value(call.replies[at], call.key());
}

// Copies a small value into the reply and shares a large one.
void StoreData::append_value(Reply& reply, const std::string& key) const {
    const auto* held = map_.find(key);
    if (held == nullptr) return append_u64(reply.bytes, 0);
    const auto size = held->size();
    append_u64(reply.bytes, size);
    const bool copies =
        size < always_copied || (size < copied_bytes && reply.bytes.size() < small_reply_bytes);
    if (copies) {
        reply.bytes += *held;
    } else {
        reply.share(map_.share(key));
    }
}

void StoreData::get(const Call& call) {
    Reply values{call.client, {}};
    std::size_t size = 0;
    for (const auto& key : call.request.keys) {
        const auto* held = map_.find(key);
        if (held == nullptr && call.era == Era::legacy) {
            throw UsageError{"store: get of a key that is not there"};
        }
        size += sizeof(std::uint64_t) + (held == nullptr ? 0 : held->size());
        if (size > max_reply_bytes) throw UsageError{"store: a reply of over 64 MiB"};
        append_value(values, key);
    }
    call.replies.push_back(std::move(values));
}

void StoreData::add(const Call& call) {
    require_map_space(call);
    const auto sum = sum_with(map_.find(call.key()), call.request.number, call.key());
    append_i64(call.reply().bytes, sum);
    store(call, call.key(), std::to_string(sum));
}

void StoreData::check(const Call& call) {
    const auto& keys = call.request.keys;
    const bool all = std::all_of(keys.begin(), keys.end(),
                                 [this](const std::string& key) { return present(key); });
    append_u8(call.reply().bytes, wire(all ? CheckReply::ready : CheckReply::not_ready));
}

void StoreData::wait(const Call& call) {
    auto& absent = call.request.keys;
    std::erase_if(absent, [this](const std::string& key) { return present(key); });
    subscriptions_.end_wait(call.client);
    if (absent.empty()) {
        append_u8(call.reply().bytes, wire(WaitReply::stop_waiting));
    } else {
        subscriptions_.start_wait(call.client, std::move(absent));
    }
}

void StoreData::get_num_keys(const Call& call) {
    append_i64(call.reply().bytes, static_cast<std::int64_t>(map_.size()));
}

void StoreData::delete_key(const Call& call) {
    auto value = map_.take(call.key());
    if (value)
        subscriptions_.tell_watchers(call.key(), {WatchEvent::deleted, value, nullptr},
                                     call.replies);
    append_i64(call.reply().bytes, value ? 1 : 0);
    let_go(std::move(value));
}

void StoreData::append(const Call& call) {
    require_map_space(call);
    const auto& piece = call.request.values.front();
    const bool is_new = map_.find(call.key()) == nullptr;
    let_go(map_.append(call.key(), piece, call.client));
    if (subscriptions_.is_watched(call.key())) {
        const auto event = is_new ? WatchEvent::created : WatchEvent::appended;
        auto told = std::make_shared<Value>(piece);
        subscriptions_.tell_watchers(call.key(), {event, nullptr, told}, call.replies);
        let_go(std::move(told));
    }
    subscriptions_.wake_all(call.key(), call.replies);
}

void StoreData::cancel_wait(const Call& call) {
    subscriptions_.end_wait(call.client);
    append_u8(call.reply().bytes, wire(WaitReply::wait_canceled));
}

void StoreData::ping(const Call& call) {
    append_u32(call.reply().bytes, static_cast<std::uint32_t>(call.request.number));
}

void StoreData::queue_push(const Call& call) {
    require_map_space(call);
    auto& value = call.request.values.front();
    const auto [queue, is_new] = queues_.try_emplace(call.key());
    if (is_new) queue_bytes_ += call.key().size() + one_queue_bytes;
    queue_bytes_ += value.size() + queue_item_bytes;
    queue->second.bytes += value.size() + queue_item_bytes;
    queue->second.owner = call.client;
    queue->second.values.push_back(std::move(value));
    subscriptions_.wake_one(call.key(), call.replies);
}

void StoreData::queue_pop(const Call& call) {
    const auto queue = queues_.find(call.key());
    auto& reply = call.reply().bytes;
    if (queue == queues_.end()) return append_i64(reply, 0);
    auto& values = queue->second.values;
    append_i64(reply, static_cast<std::int64_t>(values.size()));
    append_bytes(reply, values.front());
    queue_bytes_ -= values.front().size() + queue_item_bytes;
    queue->second.bytes -= values.front().size() + queue_item_bytes;
    values.pop_front();
    if (values.empty()) {
        queue_bytes_ -= queue->first.size() + one_queue_bytes;
        queues_.erase(queue);
    }
}

void StoreData::queue_len(const Call& call) {
    const auto queue = queues_.find(call.key());
    const auto length = queue == queues_.end() ? std::size_t{0} : queue->second.values.size();
    append_i64(call.reply().bytes, static_cast<std::int64_t>(length));
}

void StoreData::list_keys(const Call& call) {
    auto& list = call.reply().bytes;
    list.reserve(map_.key_bytes() + (map_.size() + 1) * sizeof(std::uint64_t));
    append_i64(list, static_cast<std::int64_t>(map_.size()));
    map_.each_key([&list](const std::string& key) { append_bytes(list, key); });
}

void StoreData::barrier(const Call& call) {
    require_map_space(call);
    const auto arrived = sum_with(map_.find(call.key()), 1, call.key());
    let_go(map_.set(call.key(), std::to_string(arrived), call.client));
    if (arrived >= call.request.number) {
        subscriptions_.wake_all(call.key(), call.replies);
        append_u8(call.reply().bytes, wire(WaitReply::stop_waiting));
    } else {
        subscriptions_.end_wait(call.client);
        subscriptions_.start_wait(call.client, {call.key()});
    }
}

void StoreData::watch_key(const Call& call) {
    subscriptions_.watch(call.client, call.key());
    append_u8(call.reply().bytes, wire(WatchEvent::registered));
}

bool StoreData::present(const std::string& key) const {
    return map_.find(key) != nullptr || queues_.contains(key);
}

}  // namespace ddp::store
