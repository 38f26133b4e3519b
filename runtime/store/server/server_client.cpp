// Accepting a connection, and its replies, queued and sent.
// Invariant: none of this ever blocks or raises SIGPIPE.
#include "store/server/server_client.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "base/net/socket.hpp"

namespace ddp::store {
namespace {

constexpr int drain_milliseconds = 10'000;

void set_option(int fd, int level, int option, int value) {
    // Best effort: without it the connection still works.
    ::setsockopt(fd, level, option, &value, sizeof value);
}

// The raw address is as good as its text for telling hosts apart. Empty: a local socket's.
std::string address_of(const sockaddr_storage& peer) {
    if (peer.ss_family == AF_UNIX) return {};
    if (peer.ss_family == AF_INET) {
        const auto& in = reinterpret_cast<const sockaddr_in&>(peer).sin_addr;
        return {reinterpret_cast<const char*>(&in), sizeof in};
    }
    const auto& in6 = reinterpret_cast<const sockaddr_in6&>(peer).sin6_addr;
    return {reinterpret_cast<const char*>(&in6), sizeof in6};
}

}  // namespace

AcceptedSocket accept_socket(int listener, std::uint64_t tag) {
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    base::UniqueFd fd{::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &length,
                                SOCK_NONBLOCK | SOCK_CLOEXEC)};
    if (!fd) return {};
    return {std::move(fd), address_of(peer), peer.ss_family == AF_UNIX, tag};
}

void ServerClient::reset() { base::reset_connection(fd()); }

void ServerClient::limit_drain_time() {
    set_option(fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, drain_milliseconds);
}

bool ServerClient::watch(int epoll) {
    std::uint32_t events = 0;
    const bool is_read = voucher != Vouched::awaited && !waits_for_memory && !waits_for_turn;
    if (is_read && !paused() && !finished) events |= EPOLLIN;
    // Whose replies the kernel has taken can be written to at once: its next turn.
    if (backlog() > 0 || waits_for_turn) events |= EPOLLOUT;
    if (events == events_) return true;
    epoll_event event{};
    event.events = events;
    event.data.u64 = id_;
    const int change = events_ ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    events_ = events;
    return ::epoll_ctl(epoll, change, fd(), &event) == 0;
}

base::UniqueFd ServerClient::take_fd(int epoll) {
    if (std::exchange(events_, std::nullopt)) ::epoll_ctl(epoll, EPOLL_CTL_DEL, fd(), nullptr);
    return std::move(peer_.fd);
}

ServerClient::Received ServerClient::receive(std::span<char> buffer) {
    ssize_t count = 0;
    do {
        count = ::recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    } while (count < 0 && errno == EINTR);
    if (count > 0) return {.bytes = {buffer.data(), static_cast<std::size_t>(count)}};
    if (count == 0) return {.has_ended = true};
    return {.is_lost = errno != EAGAIN && errno != EWOULDBLOCK};
}

bool ServerClient::has_hung_up() const {
    pollfd entry{fd(), POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) > 0;
}

bool ServerClient::queue(Reply reply) {
    if (backlog() > max_backlog_bytes) return false;
    outbox_.add(std::move(reply));
    return true;
}

bool ServerClient::flush() {
    const auto sent = outbox_.send(fd());
    blocked_ = sent == Outbox::Sent::some;
    return sent != Outbox::Sent::lost;
}

}  // namespace ddp::store
