// StoreMap: the map from keys to bytes that every store is made of, and the two operations that
// read before they write, as pure functions. No I/O, no threads, no waiting. Invariant: bytes()
// counts what the entries hold.
#pragma once

#include <ddp/store.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace ddp::store {

// The number under a key (null: absent, 0) plus `amount`. Throws UsageError when the key holds no
// decimal number or the sum leaves 64 bits.
std::int64_t sum_with(const std::string* held, std::int64_t amount, const std::string& key);

struct Swap {
    std::string returned;
    bool stores;  // `desired` is to be stored
};
// What compare_set does to a key that holds `held` (null: absent).
Swap compare_and_swap(const std::string* held, const std::string& expected,
                      const std::string& desired);

class StoreMap {
public:
    const std::string* find(const std::string& key) const;  // null: absent
    void set(const std::string& key, std::string value);
    // Throws UsageError when the value would become too large.
    void append(const std::string& key, const std::string& value);
    std::int64_t add(const std::string& key, std::int64_t amount);
    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired);
    bool erase(const std::string& key);
    void clear();

    StoreKeys missing(const StoreKeys& keys) const;
    StoreKeys keys() const;
    std::size_t size() const { return entries_.size(); }
    std::size_t bytes() const { return bytes_; }  // roughly, with what an entry itself costs

private:
    std::unordered_map<std::string, std::string> entries_;
    std::size_t bytes_ = 0;
};

}  // namespace ddp::store
