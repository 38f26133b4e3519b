// The map of all stores. Numbers are decimal ASCII, as in PyTorch's stores, so that any of them can
// be read by `get`. Invariant: no operation that throws has changed anything.
#include "store/store_map.hpp"

#include <ddp/error.hpp>

#include <charconv>

#include "store/limits.hpp"

namespace ddp::store {
namespace {

constexpr std::size_t entry_bytes = 128;  // nodes, buckets and two string headers

}  // namespace

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
    return found == entries_.end() ? nullptr : &found->second;
}

void StoreMap::set(const std::string& key, std::string value) {
    const auto [entry, is_new] = entries_.try_emplace(key);
    if (is_new) bytes_ += key.size() + entry_bytes;
    bytes_ += value.size();
    bytes_ -= entry->second.size();
    entry->second = std::move(value);
}

void StoreMap::append(const std::string& key, const std::string& value) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return set(key, value);
    check_value_bytes(key, found->second.size() + value.size());
    found->second += value;
    bytes_ += value.size();
}

std::int64_t StoreMap::add(const std::string& key, std::int64_t amount) {
    const auto sum = sum_with(find(key), amount, key);
    set(key, std::to_string(sum));
    return sum;
}

std::string StoreMap::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) {
    auto swap = compare_and_swap(find(key), expected, desired);
    if (swap.stores) set(key, desired);
    return std::move(swap.returned);
}

bool StoreMap::erase(const std::string& key) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return false;
    bytes_ -= found->first.size() + found->second.size() + entry_bytes;
    entries_.erase(found);
    return true;
}

void StoreMap::clear() {
    entries_.clear();
    bytes_ = 0;
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
    for (const auto& [key, value] : entries_) all.push_back(key);
    return all;
}

}  // namespace ddp::store
