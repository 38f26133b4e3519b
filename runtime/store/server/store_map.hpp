// StoreMap: the map from keys to bytes that every store is made of, and the two operations that
// read before they write, as pure functions. No I/O, no threads, no waiting. Invariant: bytes()
// counts what the entries hold, and a value that somebody shares never changes.
#pragma once

#include <ddp/store.hpp>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "store/server/reply.hpp"

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
    // The value itself, which stays as it is as long as it is shared. Null: absent.
    SharedValue share(const std::string& key) const;

    // What changes an entry returns the value that was there before if others still share it.
    // `owner` is on whose account the entry is from now on.
    SharedValue set(const std::string& key, std::string value, ClientId owner = 0);
    // Throws UsageError when the value would become too large.
    SharedValue append(const std::string& key, const std::string& value, ClientId owner = 0);
    std::int64_t add(const std::string& key, std::int64_t amount, ClientId owner = 0);
    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired);
    bool erase(const std::string& key) { return take(key) != nullptr; }
    SharedValue take(const std::string& key);  // out of the map; null: it was absent
    void clear();

    StoreKeys missing(const StoreKeys& keys) const;
    StoreKeys keys() const;
    // Calls `use` with each key.
    template <class Use>
    void each_key(Use use) const {
        for (const auto& [key, entry] : entries_) use(key);
    }
    std::size_t size() const { return entries_.size(); }
    std::size_t bytes() const { return bytes_; }  // roughly, with what an entry itself costs
    std::size_t key_bytes() const { return key_bytes_; }
    // Of bytes(), by owner.
    const std::unordered_map<ClientId, std::size_t>& bytes_by_owner() const { return by_owner_; }

    static constexpr std::size_t entry_bytes = 192;  // node, bucket, and the headers of all parts

private:
    struct Entry {
        SharedValue value;
        ClientId owner = 0;
    };
    void count(ClientId owner, std::size_t more, std::size_t less);
    void change_owner(const std::string& key, Entry& entry, ClientId owner);

    std::unordered_map<std::string, Entry> entries_;
    std::size_t bytes_ = 0;
    std::size_t key_bytes_ = 0;
    std::unordered_map<ClientId, std::size_t> by_owner_;
};

}  // namespace ddp::store
