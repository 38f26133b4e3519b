// InputBuffer: the bytes of one connection that are not decoded yet. Invariant: unread() is what
// was appended last, without gaps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ddp::store {

class InputBuffer {
public:
    void append(std::string_view bytes) {
        if (begin_ > 0) {
            bytes_.erase(0, begin_);
            begin_ = 0;
        }
        bytes_.append(bytes);
        received_ += bytes.size();
    }
    std::string_view unread() const { return std::string_view{bytes_}.substr(begin_); }
    bool has_unread() const { return begin_ < bytes_.size(); }
    void consume(std::size_t count) { begin_ += count; }
    // Gives the memory back of what has been used up.
    void shrink() {
        bytes_ = std::string{unread()};
        begin_ = 0;
    }
    void clear() {
        std::string{}.swap(bytes_);
        begin_ = 0;
    }
    std::size_t held_bytes() const { return bytes_.empty() ? 0 : bytes_.capacity(); }
    std::uint64_t received() const { return received_; }  // in all

private:
    std::string bytes_;
    std::size_t begin_ = 0;  // of what is unread
    std::uint64_t received_ = 0;
};

}  // namespace ddp::store
