// What the server owes a client: bytes of its own, and between them values that it shares with the
// map and with other replies, so that a value that many ask for is in memory once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/server/server_limits.hpp"

namespace ddp::store {

struct Value {
    explicit Value(std::string text) : bytes(std::move(text)) {}
    std::string bytes;
    bool is_detached = false;  // no longer in the map; only replies hold it
};
// Only the map changes a value, and only when no reply holds it.
using SharedValue = std::shared_ptr<Value>;

struct Reply {
    struct Shared {
        std::size_t at;  // how many of `bytes` come before it
        SharedValue value;
    };
    ClientId to;
    std::string bytes;
    std::vector<Shared> shared = {};

    void share(SharedValue value) { shared.push_back({bytes.size(), std::move(value)}); }
    std::size_t size() const {
        auto size = bytes.size();
        for (const auto& piece : shared) size += piece.value->bytes.size();
        return size;
    }
};
using Replies = std::vector<Reply>;

// What a kind of reply is on the wire.
std::uint8_t wire(auto reply) { return static_cast<std::uint8_t>(reply); }

}  // namespace ddp::store
