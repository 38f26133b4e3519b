// The limits that all stores share, and how keys are named in messages. A key or value beyond them
// is refused before it is sent or stored, so that the same program works with every store.
#pragma once

#include <ddp/store.hpp>

#include <cstddef>
#include <string>

namespace ddp::store {

inline constexpr std::size_t max_key_bytes = std::size_t{8} << 10;
inline constexpr std::size_t max_value_bytes = std::size_t{8} << 20;
inline constexpr std::size_t max_keys_per_request = std::size_t{128} << 10;
inline constexpr std::size_t max_request_bytes = std::size_t{32} << 20;
// Of a connection that has sent no whole request yet: its client is not identified.
inline constexpr std::size_t max_first_request_bytes = std::size_t{4} << 10;

// Each throws UsageError with the sizes.
void check_key(const std::string& key);
void check_keys(const StoreKeys& keys);
void check_value_bytes(const std::string& key, std::size_t bytes);
void check_pairs(const StoreKeys& keys, const StoreValues& values);

// "[a, b, c and 61 more]"; bytes that do not print are shown as '?'.
std::string name_keys(const StoreKeys& keys);

// "store: keys [a, b] were not set within 250 ms at 127.0.0.1:29500"; `where` may be empty.
std::string not_set_message(const StoreKeys& missing, Store::Timeout timeout,
                            const std::string& where);

}  // namespace ddp::store
