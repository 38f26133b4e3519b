// What ranks send each other over a mesh.
#pragma once

#include "backends/backend.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace ddp::gloo {

using backends::Direction;

// One message between this rank and another. Both sides know the size; zero bytes are not sent.
struct Message {
    Direction direction = Direction::send;
    int peer = 0;
    std::uint64_t slot = 0;
    void* data = nullptr;
    std::size_t bytes = 0;
};

// Messages that are collected, then exchanged at once.
class MessageList {
public:
    explicit MessageList(std::uint64_t slot) : slot_(slot) {}

    // Gloo has one kind of buffer for both directions; it does not write to what it sends.
    void send(std::size_t peer, const std::byte* data, std::size_t bytes) {
        add(Direction::send, peer, const_cast<std::byte*>(data), bytes);
    }
    void receive(std::size_t peer, std::byte* data, std::size_t bytes) {
        add(Direction::receive, peer, data, bytes);
    }
    // For data that flow one way alone: whoever receives them says with a byte that it is there, so
    // that the sender, which waits for that, is not chunks ahead and fills the receiver's memory.
    void send_credit(std::size_t to) { send(to, &credit_, sizeof credit_); }
    void receive_credit(std::size_t from) { receive(from, &credit_, sizeof credit_); }
    std::span<const Message> all() const { return messages_; }
    void clear() { messages_.clear(); }

private:
    void add(Direction direction, std::size_t peer, void* data, std::size_t bytes) {
        messages_.push_back({direction, static_cast<int>(peer), slot_, data, bytes});
    }

    std::uint64_t slot_;
    std::byte credit_{};  // nobody looks at it
    std::vector<Message> messages_;
};

}  // namespace ddp::gloo
