// The map of all stores. Numbers are decimal ASCII, as in PyTorch's stores, so that any of them can
// be read by `get`. Invariant: no operation that throws has changed anything.
#include "store/server/store_map.hpp"

#include <ddp/error.hpp>

#include <charconv>
#include <utility>

#include "store/limits.hpp"

namespace ddp::store {

std::int64_t sum_with(const std::string* held, std::int64_t amount, const std::string& key) {
    if (held == nullptr) return amount;
    std::int64_t number = 0;
    const char* const end = held->data() + held->size();
    const auto parsed = std::from_chars(held->data(), end, number);
    if (parsed.ec != std::errc{} || parsed.ptr != end) {
        throw UsageError{"store: add on key " + name_keys({key}) +
                         ", whose value is not a decimal number"};
    }
    std::int64_t sum = 0;
    if (__builtin_add_overflow(number, amount, &sum)) {
        throw UsageError{"store: add on key " + name_keys({key}) + " leaves the 64-bit range"};
    }
    return sum;
}

Swap compare_and_swap(const std::string* held, const std::string& expected,
                      const std::string& desired) {
    if (held == nullptr) return expected.empty() ? Swap{desired, true} : Swap{expected, false};
    return *held == expected ? Swap{desired, true} : Swap{*held, false};
}

const std::string* StoreMap::find(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second.value->bytes;
}

SharedValue StoreMap::share(const std::string& key) const {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : found->second.value;
}

void StoreMap::count(ClientId owner, std::size_t more, std::size_t less) {
    if (more == less) return;
    bytes_ += more - less;
    auto& owned = by_owner_[owner];
    owned += more - less;
    if (owned == 0) by_owner_.erase(owner);
}

void StoreMap::change_owner(const std::string& key, Entry& entry, ClientId owner) {
    if (entry.owner == owner) return;
    const auto bytes = key.size() + entry.value->bytes.size() + entry_bytes;
    count(entry.owner, 0, bytes);
    count(owner, bytes, 0);
    entry.owner = owner;
}

SharedValue StoreMap::set(const std::string& key, std::string value, ClientId owner) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) {
        const auto bytes = key.size() + value.size() + entry_bytes;
        entries_.emplace(key, Entry{std::make_shared<Value>(std::move(value)), owner});
        count(owner, bytes, 0);
        key_bytes_ += key.size();
        return nullptr;
    }
    auto& entry = found->second;
    change_owner(key, entry, owner);
    count(owner, value.size(), entry.value->bytes.size());
    if (entry.value.use_count() > 1) {
        return std::exchange(entry.value, std::make_shared<Value>(std::move(value)));
    }
    entry.value->bytes = std::move(value);
    return nullptr;
}

SharedValue StoreMap::append(const std::string& key, const std::string& value, ClientId owner) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return set(key, value, owner);
    auto& entry = found->second;
    const auto size = entry.value->bytes.size() + value.size();
    check_value_bytes(key, size);
    change_owner(key, entry, owner);
    count(owner, value.size(), 0);
    const bool is_shared = entry.value.use_count() > 1;
    if (!is_shared && size <= entry.value->bytes.capacity()) {
        entry.value->bytes += value;
        return nullptr;
    }
    // A string that grows by itself doubles, which bytes() would not see.
    std::string grown;
    grown.reserve(size + size / 8);
    grown += entry.value->bytes;
    grown += value;
    if (is_shared) return std::exchange(entry.value, std::make_shared<Value>(std::move(grown)));
    entry.value->bytes = std::move(grown);
    return nullptr;
}

std::int64_t StoreMap::add(const std::string& key, std::int64_t amount, ClientId owner) {
    const auto sum = sum_with(find(key), amount, key);
    set(key, std::to_string(sum), owner);
    return sum;
}

std::string StoreMap::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) {
    auto swap = compare_and_swap(find(key), expected, desired);
    if (swap.stores) set(key, desired);
    return std::move(swap.returned);
}

SharedValue StoreMap::take(const std::string& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return nullptr;
    auto value = std::move(found->second.value);
    count(found->second.owner, 0, key.size() + value->bytes.size() + entry_bytes);
    key_bytes_ -= key.size();
    entries_.erase(found);
    return value;
}

void StoreMap::clear() {
    entries_.clear();
    by_owner_.clear();
    bytes_ = 0;
    key_bytes_ = 0;
}

StoreKeys StoreMap::missing(const StoreKeys& keys) const {
    StoreKeys absent;
    for (const auto& key : keys) {
        if (find(key) == nullptr) absent.push_back(key);
    }
    return absent;
}

StoreKeys StoreMap::keys() const {
    StoreKeys all;
    all.reserve(entries_.size());
    for (const auto& [key, entry] : entries_) all.push_back(key);
    return all;
}

}  // namespace ddp::store
