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
#include <array>
#include <cctype>
#include <cerrno>
#include <utility>

#include "base/log.hpp"
#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"
#include "base/random.hpp"

namespace ddp::store {
namespace {

constexpr std::chrono::milliseconds without_descriptors{100};
constexpr std::size_t longest_queue = 4096;  // where the kernel does not say

base::UniqueFd open_spare() { return base::UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

// How many connections wait to be accepted: of a listening socket, tcpi_unacked is that.
std::optional<std::size_t> queue_length(int listener) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (::getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return std::nullopt;
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

std::string warning_about(const MasterAddress& master, const base::SocketAddress& loopback,
                          std::uint16_t port) {
    const std::string& name = master.host;
    return name + " is " + loopback.host() +
           " on this host (see /etc/hosts), an address that no other host reaches: the store "
           "listens on all addresses of this host, port " +
           std::to_string(port) +
           ", and other hosts may connect to each of them. To listen on one alone, give " + name +
           " that address in /etc/hosts, or set MASTER_ADDR to the address: 127.0.0.1 where all "
           "ranks are on this host";
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

// The kernel gives connections out in the order in which they came.
AcceptedSocket Listener::accept() {
    auto socket = accept_socket(socket_.get(), tag_);
    if (!socket.fd || of_no_attempt_ == 0) return socket;
    --of_no_attempt_;
    socket.is_of_no_attempt = true;
    return socket;
}

bool Listener::has_pending() const {
    pollfd waiting{socket_.get(), POLLIN, 0};
    return ::poll(&waiting, 1, 0) > 0;
}

bool Listener::reject_one() {
    if (!spare_) spare_ = open_spare();
    if (spare_) {
        spare_.reset();
        accept();
    }
    spare_ = open_spare();
    if (!spare_) {
        paused_until_ = Clock::now() + without_descriptors;
        listen(false);
    }
    return static_cast<bool>(spare_);
}

void Listener::drop_pending() {
    for (auto left = queue_length(socket_.get()).value_or(longest_queue); left > 0; --left) {
        if (!accept().fd && errno != EINTR && errno != ECONNABORTED) break;
    }
    resume();
}

void Listener::outlive_attempt() {
    const auto pending = queue_length(socket_.get());
    if (!pending) return drop_pending();
    of_no_attempt_ = *pending;
    resume();
}

void Listener::note_stranger_gone(Clock::time_point now) {
    const auto until = strangers_.note_end(now);
    if (!until) return;
    paused_until_ = until;
    listen(false);
}

void Listener::resume(Clock::time_point now) {
    if (paused_until_ && now < *paused_until_) return;
    resume();
}

void Listener::resume() {
    paused_until_.reset();
    if (!listening_) listen(true);
}

void Listener::listen(bool on) {
    epoll_event event{};
    event.events = on ? static_cast<std::uint32_t>(EPOLLIN) : 0U;
    event.data.u64 = tag_;
    if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, socket_.get(), &event) == 0) listening_ = on;
}

bool is_name_of_loopback(std::string_view name) {
    constexpr std::array names{
        "localhost",  "localhost.localdomain",   "localhost4",    "localhost4.localdomain4",
        "localhost6", "localhost6.localdomain6", "ip6-localhost", "ip6-loopback"};
    std::string lower(name);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (lower.ends_with('.')) lower.pop_back();
    return lower.ends_with(".localhost") ||
           std::find(names.begin(), names.end(), lower) != names.end();
}

std::vector<base::UniqueFd> listen_as_master(const MasterAddress& master) {
    const bool may_be_wider =
        !base::numeric_address(master.host) && !is_name_of_loopback(master.host);
    if (may_be_wider) {
        const auto found = base::resolve(master.host, master.port).addresses;
        const bool is_loopback =
            !found.empty() && std::all_of(found.begin(), found.end(),
                                          [](const auto& one) { return one.is_loopback(); });
        if (is_loopback) {
            std::vector<base::UniqueFd> sockets;
            sockets.push_back(base::listen_tcp_everywhere(master.port));
            const std::uint16_t port = base::local_port(sockets.front().get());
            base::log_warn("store", warning_about(master, found.front(), port));
            return sockets;
        }
    }
    return base::listen_tcp_all(master.host, master.port);
}

Listeners::Listeners(std::vector<base::UniqueFd> tcp, int epoll) : epoll_(epoll) {
    for (base::UniqueFd& socket : tcp) add(Listener::Kind::tcp, std::move(socket));
}

void Listeners::add(Listener::Kind kind, base::UniqueFd socket) {
    all_.emplace_back(kind, std::move(socket), epoll_, first_tag - all_.size());
}

void Listeners::listen_locally() {
    const std::string name = "ddp-store-" + std::to_string(base::random_bits());
    base::UniqueFd socket = base::listen_local(name);
    if (!socket) return;
    add(Listener::Kind::local, std::move(socket));
    local_name_ = name;
}

Listener* Listeners::find(std::uint64_t tag) {
    const std::uint64_t index = first_tag - tag;
    return index < all_.size() ? &all_[index] : nullptr;
}

void Listeners::resume(Clock::time_point now) {
    for (Listener& one : all_) one.resume(now);
}

void Listeners::drop_pending() {
    for (Listener& one : all_) one.drop_pending();
}

void Listeners::outlive_attempt() {
    for (Listener& one : all_) one.outlive_attempt();
}

std::optional<Listeners::Clock::time_point> Listeners::wakes_at() const {
    std::optional<Clock::time_point> first;
    for (const Listener& one : all_) {
        const auto time = one.wakes_at();
        if (time && (!first || *time < *first)) first = time;
    }
    return first;
}

}  // namespace ddp::store
