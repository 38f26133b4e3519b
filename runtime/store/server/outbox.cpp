// Gathers owned bytes and shared values into few system calls.
#include "store/server/outbox.hpp"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ddp::store {
namespace {

constexpr std::size_t kept_bytes = 512;  // for the next small reply
constexpr std::size_t pieces_a_call = 64;

// Drops what lies before `begin` once that is most of it, so that a queue that never runs empty
// does not grow.
template <class Sequence>
void drop_sent(Sequence& sequence, std::size_t& begin) {
    if (begin < 1024 || begin < sequence.size() / 2) return;
    sequence.erase(sequence.begin(), sequence.begin() + static_cast<std::ptrdiff_t>(begin));
    begin = 0;
}

}  // namespace

void Outbox::add(Reply reply) {
    drop_sent(owned_, owned_at_);
    drop_sent(pieces_, next_);
    bytes_ += reply.size();
    if (reply.shared.empty()) {
        if (!pieces_.empty()) add_own(reply.bytes.size());
    } else {
        if (pieces_.empty()) add_own(owned_.size() - owned_at_);
        std::size_t at = 0;
        for (auto& shared : reply.shared) {
            add_own(shared.at - at);
            at = shared.at;
            const auto size = shared.value->bytes.size();
            if (size > 0) pieces_.push_back({std::move(shared.value), size});
        }
        add_own(reply.bytes.size() - at);
    }
    if (owned_.empty()) {
        owned_ = std::move(reply.bytes);
    } else {
        owned_ += reply.bytes;
    }
}

void Outbox::add_own(std::size_t size) {
    if (size == 0) return;
    if (pieces_.size() > next_ && pieces_.back().value == nullptr) {
        pieces_.back().size += size;
    } else {
        pieces_.push_back({nullptr, size});
    }
}

Outbox::Sent Outbox::send(int fd) {
    while (bytes_ > 0) {
        std::array<iovec, pieces_a_call> parts{};
        std::size_t count = 0;
        auto at = owned_at_;
        if (pieces_.empty()) parts[count++] = {owned_.data() + at, owned_.size() - at};
        for (auto i = next_; i < pieces_.size() && count < parts.size(); ++i) {
            const auto& piece = pieces_[i];
            const auto begin = i == next_ ? sent_ : 0;
            char* const data = piece.value ? piece.value->bytes.data() : owned_.data() + at - begin;
            parts[count++] = {data + begin, piece.size - begin};
            if (!piece.value) at += piece.size - begin;
        }
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = count;
        const auto sent = ::sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            took(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return Sent::some;
        } else if (errno != EINTR) {
            return Sent::lost;
        }
    }
    clear();
    return Sent::all;
}

void Outbox::took(std::size_t count) {
    bytes_ -= count;
    if (pieces_.empty()) owned_at_ += count;
    while (count > 0 && next_ < pieces_.size()) {
        auto& piece = pieces_[next_];
        const auto part = std::min(count, piece.size - sent_);
        count -= part;
        sent_ += part;
        if (!piece.value) owned_at_ += part;
        if (sent_ < piece.size) break;
        piece.value.reset();
        ++next_;
        sent_ = 0;
    }
}

void Outbox::clear() {
    if (owned_.capacity() > kept_bytes) std::string{}.swap(owned_);
    owned_.clear();
    owned_at_ = 0;
    if (!pieces_.empty()) std::vector<Piece>{}.swap(pieces_);
    next_ = 0;
    sent_ = 0;
}

std::size_t Outbox::owned_bytes() const {
    const auto owned = owned_.capacity() > kept_bytes ? owned_.capacity() : 0;
    return owned + pieces_.capacity() * sizeof(Piece);
}

std::size_t Outbox::detached_bytes() const {
    std::size_t bytes = 0;
    for (auto i = next_; i < pieces_.size(); ++i) {
        if (pieces_[i].value && pieces_[i].value->is_detached) bytes += pieces_[i].size;
    }
    return bytes;
}

}  // namespace ddp::store
