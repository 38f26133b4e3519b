// Outbox: the replies that one client is still owed, sent as its socket takes them. Shared values
// are sent from where they are. Invariant: when nothing is owed it holds no value and next to no
// memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "store/server/reply.hpp"

namespace ddp::store {

class Outbox {
public:
    enum class Sent { all, some, lost };

    void add(Reply reply);
    // What the kernel takes, now. Never blocks, never raises SIGPIPE.
    Sent send(int fd);

    std::size_t bytes() const { return bytes_; }  // still to be sent
    // What it costs beside shared values.
    std::size_t owned_bytes() const;
    // Bytes of values that are in memory only for replies like these.
    std::size_t detached_bytes() const;

private:
    struct Piece {
        SharedValue value;  // null: the next `size` bytes of owned_
        std::size_t size;
    };
    void add_own(std::size_t size);
    void took(std::size_t count);
    void clear();

    std::string owned_;
    std::size_t owned_at_ = 0;   // bytes of owned_ that have been sent
    std::vector<Piece> pieces_;  // empty: only the rest of owned_ is owed
    std::size_t next_ = 0;       // of pieces_
    std::size_t sent_ = 0;       // bytes of that piece
    std::size_t bytes_ = 0;
};

}  // namespace ddp::store
