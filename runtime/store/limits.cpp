// The checks and the words of store/limits.hpp.
// Invariant: a message never grows with the input; long keys and long lists are cut.
#include "store/limits.hpp"

#include <ddp/error.hpp>

#include <algorithm>

#include "base/deadline.hpp"
#include "base/printable.hpp"

namespace ddp::store {
namespace {

constexpr std::size_t shown_key_bytes = 100;
constexpr std::size_t shown_keys = 10;
constexpr std::size_t string_bytes = 64;  // as the server counts a string beside its bytes

std::string shown(const std::string& key) {
    return base::printable(key, shown_key_bytes) + (key.size() > shown_key_bytes ? "..." : "");
}

}  // namespace

void check_key(const std::string& key) {
    if (key.size() <= max_key_bytes) return;
    throw UsageError{"store: the key " + shown(key) + " has " + std::to_string(key.size()) +
                     " bytes; at most " + std::to_string(max_key_bytes) + " are allowed"};
}

void check_keys(const StoreKeys& keys) {
    if (keys.size() > max_keys_per_request) {
        throw UsageError{"store: " + std::to_string(keys.size()) + " keys in one call; at most " +
                         std::to_string(max_keys_per_request) + " are allowed"};
    }
    std::size_t bytes = 0;
    for (const auto& key : keys) {
        check_key(key);
        bytes += key.size() + string_bytes;
    }
    if (bytes > max_request_bytes / 2) {
        throw UsageError{"store: the keys of one call have more than " +
                         std::to_string(max_request_bytes / 2) + " bytes; use several calls"};
    }
}

void check_value_bytes(const std::string& key, std::size_t bytes) {
    if (bytes <= max_value_bytes) return;
    throw UsageError{"store: the value of key " + shown(key) + " would have " +
                     std::to_string(bytes) + " bytes; at most " + std::to_string(max_value_bytes) +
                     " are allowed (a store is not for data)"};
}

void check_pairs(const StoreKeys& keys, const StoreValues& values) {
    if (keys.size() != values.size()) {
        throw UsageError{"store: multi_set was given " + std::to_string(keys.size()) +
                         " keys and " + std::to_string(values.size()) + " values"};
    }
    check_keys(keys);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        check_value_bytes(keys[i], values[i].size());
        bytes += keys[i].size() + values[i].size() + 2 * string_bytes;
    }
    if (bytes > max_request_bytes / 2) {
        throw UsageError{"store: the keys and values of one multi_set have " +
                         std::to_string(bytes) + " bytes; at most " +
                         std::to_string(max_request_bytes / 2) + " are allowed; use several calls"};
    }
}

std::string name_keys(const StoreKeys& keys) {
    std::string text = "[";
    const auto count = std::min(keys.size(), shown_keys);
    for (std::size_t i = 0; i < count; ++i) text += (i > 0 ? ", " : "") + shown(keys[i]);
    if (keys.size() > count) text += " and " + std::to_string(keys.size() - count) + " more";
    return text + "]";
}

std::string not_set_message(const StoreKeys& missing, Store::Timeout timeout,
                            const std::string& where) {
    auto text =
        "store: keys " + name_keys(missing) + " were not set within " + base::to_string(timeout);
    if (!where.empty()) text += " at " + where;
    return text;
}

}  // namespace ddp::store
