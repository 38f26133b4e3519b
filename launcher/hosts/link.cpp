#include "launcher/hosts/link.hpp"

#include "base/net/address.hpp"
#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace ddp::launcher {
namespace {

constexpr std::size_t piece_bytes = std::size_t{64} << 10;
// Of a buffer that is empty: a coordinator has thousands of them.
constexpr std::size_t kept_bytes = 1024;
// More than that to be sent, and frames of queue_later() wait.
constexpr std::size_t most_before_later = std::size_t{4} << 20;

}  // namespace

Link::Link(base::UniqueFd socket, Begins begins, std::string_view received)
    : socket_(std::move(socket)), has_frames_(begins == Begins::with_frames) {
    take_in(received);
}

// At once, whoever else may have the descriptor at this moment: a child that is just being started.
void Link::close(std::string why) {
    if (!is_open()) return;
    trouble_ = std::move(why);
    later_.clear();
    ::shutdown(socket_.get(), SHUT_RDWR);
}

void Link::reset(std::string why) {
    if (!is_open()) return;
    trouble_ = std::move(why);
    base::reset_connection(socket_.get());
}

void Link::take_in(std::string_view bytes) {
    received_bytes_ += bytes.size();
    hand_on(bytes);
}

void Link::hand_on(std::string_view bytes) {
    if (!has_frames_) {
        before_frames_ += bytes;
    } else if (tls_) {
        tls_->take_in(bytes);
        take_from_tls();
    } else {
        reader_.feed(bytes);
    }
}

// Trouble in the middle is the end of the connection, as any other damage is.
void Link::take_from_tls() {
    reader_.feed(tls_->take_plain());
    out_ += tls_->take_wire();
    if (tls_->trouble().empty()) return;
    flush();
    if (tls_->is_established()) close(tls_->trouble());
}

void Link::begin_frames(std::size_t hello) {
    has_frames_ = true;
    hand_on(std::string_view(std::exchange(before_frames_, {})).substr(hello));
}

void Link::begin_tls(TlsSession session) {
    if (!reader_.is_empty()) return close("it speaks on before TLS");
    tls_ = std::move(session);
    take_from_tls();
}

std::string Link::tls_refusal() const {
    return tls_ && !tls_->is_established() ? tls_->trouble() : std::string();
}

void Link::queue(std::string_view frame) {
    if (!is_open()) return;
    if (tls_) {
        std::string bytes;
        base::append_frame(bytes, frame);
        tls_->write(bytes);
        out_ += tls_->take_wire();
    } else {
        base::append_frame(out_, frame);
    }
    const std::size_t waiting = tls_ ? tls_->waiting_bytes() : 0;
    if (out_.size() - sent_ + waiting > max_backlog_bytes) {
        close("it takes nothing of what is sent to it");
    }
}

void Link::queue_later(std::string frame) {
    if (!is_open()) return;
    later_.push_back(std::move(frame));
}

void Link::queue_what_waits() {
    const auto waiting = [this] {
        return out_.size() - sent_ + (tls_ ? tls_->waiting_bytes() : 0);
    };
    while (!later_.empty() && waiting() < most_before_later) {
        const std::string frame = std::move(later_.front());
        later_.pop_front();
        queue(frame);  // which may end the link
    }
}

void Link::flush() {
    do {
        queue_what_waits();
    } while (send_some() && !later_.empty() && is_open());
}

// Whether the socket has taken all.
bool Link::send_some() {
    while (is_open() && sent_ < out_.size()) {
        const ssize_t sent = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
        // What it sent before is still to be read; the reader then finds the end.
        if (sent < 0) {
            sent_ = out_.size();
            later_.clear();
            break;
        }
        sent_ += static_cast<std::size_t>(sent);
    }
    const bool is_all = sent_ == out_.size();
    if (is_all) {
        out_.clear();
        if (out_.capacity() > kept_bytes) out_.shrink_to_fit();
        sent_ = 0;
    } else if (sent_ > piece_bytes) {
        out_.erase(0, sent_);
        sent_ = 0;
    }
    return is_all;
}

// Not both ways: what has come unread would make the kernel drop what is on its way.
void Link::end_sending() { ::shutdown(socket_.get(), SHUT_WR); }

void Link::receive(std::size_t most) {
    std::array<char, piece_bytes> piece;  // not cleared, as that takes longer than most reads
    while (most > 0 && is_open()) {
        const std::size_t wanted = std::min(most, piece.size());
        const ssize_t count = ::recv(socket_.get(), piece.data(), wanted, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (count < 0) return close(std::string("the connection broke: ") + std::strerror(errno));
        if (count == 0) return close("the connection was closed");
        most -= static_cast<std::size_t>(count);
        take_in({piece.data(), static_cast<std::size_t>(count)});
    }
}

std::optional<std::string> Link::next() {
    try {
        return reader_.next();
    } catch (const UsageError& error) {
        close(error.what());
        return std::nullopt;
    }
}

std::chrono::milliseconds Link::silent_for() const {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!is_open() || ::getsockopt(fd(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return {};
    return std::chrono::milliseconds(info.tcpi_last_ack_recv);
}

std::string Link::own_address() const { return base::address_of(fd(), base::End::own).host(); }
std::string Link::peer_address() const { return base::address_of(fd(), base::End::other).host(); }

}  // namespace ddp::launcher
