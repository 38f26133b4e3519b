// Accepting, and not accepting. A spare descriptor is kept so that a connection can be refused,
// since a listener whose queue is left alone stays readable for ever.
#include "store/server/listener.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"
#include "base/random.hpp"

namespace ddp::store {
namespace {

constexpr std::chrono::milliseconds without_descriptors{100};
constexpr std::size_t longest_queue = 4096;  // where the kernel does not say

base::UniqueFd open_spare() { return base::UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

// How many connections wait to be accepted: of a listening socket, tcpi_unacked is that.
std::size_t queue_length(int listener) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return longest_queue;
    return info.tcpi_unacked;
}

void prepare_tcp(int listener) {
    const int flags = ::fcntl(listener, F_GETFL);
    if (flags < 0 || ::fcntl(listener, F_SETFL, flags | O_NONBLOCK) < 0) {
        throw SystemError{"store: making the listener non-blocking", errno};
    }
    // Connections inherit these.
    const int on = 1;
    ::setsockopt(listener, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    base::keep_alive(listener);
}

}  // namespace

Listener::Listener(Kind kind, base::UniqueFd socket, int epoll, std::uint64_t tag)
    : socket_(std::move(socket)), epoll_(epoll), tag_(tag), spare_(open_spare()) {
    if (kind == Kind::tcp) prepare_tcp(socket_.get());
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = tag_;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, socket_.get(), &event) != 0) {
        throw SystemError{"store: epoll_ctl of the listener", errno};
    }
}

std::uint16_t Listener::port() const { return base::local_port(socket_.get()); }

bool Listener::has_pending() const {
    pollfd waiting{socket_.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) > 0;
}

bool Listener::reject_one() {
    if (!spare_) spare_ = open_spare();
    if (spare_) {
        spare_.reset();
        const base::UniqueFd turned_away{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }
    spare_ = open_spare();
    if (!spare_) {
        paused_until_ = Clock::now() + without_descriptors;
        listen(false);
    }
    return static_cast<bool>(spare_);
}

void Listener::drop_pending() {
    for (auto left = queue_length(socket_.get()); left > 0; --left) {
        const base::UniqueFd dropped{::accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        if (!dropped && errno != EINTR && errno != ECONNABORTED) break;
    }
    paused_until_.reset();
    listen(true);
}

void Listener::note_stranger_gone(Clock::time_point now) {
    const auto until = strangers_.note_end(now);
    if (!until) return;
    paused_until_ = until;
    listen(false);
}

void Listener::resume(Clock::time_point now) {
    if (paused_until_ && now < *paused_until_) return;
    paused_until_.reset();
    if (!listening_) listen(true);
}

void Listener::listen(bool on) {
    epoll_event event{};
    event.events = on ? static_cast<std::uint32_t>(EPOLLIN) : 0U;
    event.data.u64 = tag_;
    if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event) == 0) listening_ = on;
}

void Listeners::listen_locally() {
    const std::string name = "ddp-store-" + std::to_string(base::random_bits());
    base::UniqueFd socket = base::listen_local(name);
    if (!socket) return;
    local_.emplace(Listener::Kind::local, std::move(socket), epoll_, local_tag);
    local_name_ = name;
}

Listener* Listeners::find(std::uint64_t tag) {
    if (tag == tcp_tag) return &tcp_;
    return tag == local_tag && local_ ? &*local_ : nullptr;
}

void Listeners::resume(Clock::time_point now) {
    tcp_.resume(now);
    if (local_) local_->resume(now);
}

void Listeners::drop_pending() {
    tcp_.drop_pending();
    if (local_) local_->drop_pending();
}

std::optional<Listeners::Clock::time_point> Listeners::wakes_at() const {
    const auto tcp = tcp_.wakes_at();
    const auto local = local_ ? local_->wakes_at() : std::nullopt;
    return tcp && local ? std::min(tcp, local) : (tcp ? tcp : local);
}

}  // namespace ddp::store
