#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <tuple>
#include <utility>

namespace ddp::base {
namespace {

void set_option(int fd, int level, int option, int value) {
    ::setsockopt(fd, level, option, &value, sizeof value);
}

void poll_for(int fd, short events, const Deadline& deadline, const char* what) {
    for (;;) {
        pollfd entry{fd, events, 0};
        const int rc = ::poll(&entry, 1, deadline.poll_timeout());
        if (rc > 0) return;
        if (rc < 0 && errno != EINTR) throw SystemError(what, errno);
        if (deadline.passed()) {
            throw TimeoutError(std::string(what) + ": no progress within " +
                               to_string(deadline.timeout()));
        }
    }
}

// RFC 8305, section 5: the recommended "Connection Attempt Delay".
constexpr std::chrono::milliseconds attempt_delay{250};

// How far an attempt came that ended so: what it says about the host that was meant.
int progress_of(int error) {
    switch (error) {
        case ENETUNREACH:
        case EADDRNOTAVAIL:
        case EAFNOSUPPORT:
        case EINVAL:  // a link-local address without its link
            return 0;
        case EHOSTUNREACH:
        case EHOSTDOWN:
            return 1;
        case ETIMEDOUT:
            return 2;
        default:
            return 3;  // somebody has answered, as a rule
    }
}

// Why the kernel calls an address invalid that looks like one.
std::string advice_for(const SocketAddress& address, int error) {
    if (error != EINVAL || !address.is_link_local()) return {};
    return "; a link-local address needs its interface, as in fe80::1%eth0";
}

std::string describe(const SocketAddress& address, int error) {
    return address.host() + ": " + ::strerror(error) + advice_for(address, error);
}

// The attempts of one connect_tcp(). All that have not failed are open at once.
class ConnectRace {
public:
    ConnectRace(std::span<const SocketAddress> addresses, const Deadline& deadline)
        : deadline_(deadline), order_(alternate_families(addresses)) {}

    ConnectResult run() {
        while (!winner_) {
            if (next_is_due()) {
                start_next();
            } else if (pending_.empty()) {
                break;
            } else if (!await_any() && deadline_.passed()) {
                for (const Attempt& attempt : pending_) note_failure(*attempt.to, ETIMEDOUT);
                for (; next_ < order_.size(); ++next_) note_untried(order_[next_]);
                break;
            }
        }
        if (winner_) return {.fd = std::move(winner_)};
        return {.error = error_, .trouble = std::move(trouble_)};
    }

private:
    struct Attempt {
        UniqueFd fd;
        const SocketAddress* to;
    };

    bool next_is_due() const {
        return next_ < order_.size() &&
               (pending_.empty() || (Deadline::Clock::now() >= next_at_ && !deadline_.passed()));
    }

    void start_next() {
        const SocketAddress& to = order_[next_++];
        UniqueFd fd(::socket(to.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd && errno != EAFNOSUPPORT) {
            throw SystemError("connect to " + host_and_port(to.host(), to.port()), errno);
        }
        if (fd && ::connect(fd.get(), to.generic(), to.size) == 0) {
            winner_ = std::move(fd);
        } else if (fd && (errno == EINPROGRESS || errno == EINTR)) {
            pending_.push_back({std::move(fd), &to});
            next_at_ = Deadline::Clock::now() + attempt_delay;
        } else {
            note_failure(to, errno);
            next_at_ = {};
        }
    }

    // False when nothing has happened until the next attempt is due, or the deadline.
    bool await_any() {
        auto longest = Deadline::Milliseconds(std::chrono::hours{1});
        if (next_ < order_.size()) {
            const auto left = next_at_ - Deadline::Clock::now();
            longest = std::max(std::chrono::ceil<Deadline::Milliseconds>(left),
                               Deadline::Milliseconds{0});
        }
        std::vector<pollfd> entries;
        for (const Attempt& attempt : pending_) entries.push_back({attempt.fd.get(), POLLOUT, 0});
        const int ready = ::poll(entries.data(), entries.size(), deadline_.poll_timeout(longest));
        if (ready < 0 && errno != EINTR) throw SystemError("poll for a connection", errno);
        if (ready <= 0) return ready < 0;
        for (std::size_t i = entries.size(); i-- > 0;) {
            if (entries[i].revents != 0 && !winner_) finish(i);
        }
        return true;
    }

    // The attempt has ended, one way or the other.
    void finish(std::size_t index) {
        Attempt attempt = std::move(pending_[index]);
        pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
        int error = 0;
        socklen_t size = sizeof error;
        if (::getsockopt(attempt.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
        if (error == 0) {
            winner_ = std::move(attempt.fd);
        } else {
            note_failure(*attempt.to, error);
            if (index == pending_.size()) next_at_ = {};  // it was the last that had begun
        }
    }

    void note_failure(const SocketAddress& to, int error) {
        if (error_ == 0 || progress_of(error) >= progress_of(error_)) error_ = error;
        add_trouble(describe(to, error));
    }

    void note_untried(const SocketAddress& to) {
        add_trouble(to.host() + ": no time was left to try it");
    }

    void add_trouble(const std::string& text) { trouble_ += (trouble_.empty() ? "" : "; ") + text; }

    const Deadline& deadline_;
    const std::vector<SocketAddress> order_;
    std::size_t next_ = 0;
    Deadline::Clock::time_point next_at_{};  // of the next attempt beside those that are pending
    std::vector<Attempt> pending_;           // in the order in which they began
    UniqueFd winner_;
    int error_ = 0;
    std::string trouble_;
};

// Returns an invalid fd and sets `error` to an errno.
UniqueFd listen_at(const SocketAddress& address, int& error) {
    UniqueFd fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd) set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (fd && ::bind(fd.get(), address.generic(), address.size) == 0 &&
        ::listen(fd.get(), SOMAXCONN) == 0) {
        return fd;
    }
    error = errno;
    return {};
}

// Whether a bind that failed so says that the address is not this host's.
bool is_elsewhere(int error) {
    return error == EADDRNOTAVAIL || error == EAFNOSUPPORT || error == EINVAL || error == ENODEV;
}

// All sockets, or none and why: an address that is not this host's is left out while there are
// others.
std::vector<UniqueFd> listen_at_all(std::vector<SocketAddress> addresses, int& error) {
    std::vector<UniqueFd> sockets;
    for (SocketAddress& address : addresses) {
        if (address.port() == 0 && !sockets.empty()) {
            address.set_port(local_port(sockets.front().get()));
        }
        if (UniqueFd fd = listen_at(address, error); fd) {
            sockets.push_back(std::move(fd));
        } else if (!is_elsewhere(error)) {
            return {};
        }
    }
    return sockets;
}

std::string list_hosts(const std::vector<SocketAddress>& addresses) {
    std::string list;
    for (const SocketAddress& one : addresses) list += (list.empty() ? "" : ", ") + one.host();
    return list;
}

std::vector<SocketAddress> resolve_to_listen(const std::string& host, std::uint16_t port) {
    Resolved found = resolve(host, port);
    if (!found.addresses.empty()) return std::move(found.addresses);
    throw SystemError("listen on " + host_and_port(host, port) + ": " + found.trouble,
                      EADDRNOTAVAIL);
}

}  // namespace

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
    const std::vector<SocketAddress> addresses = resolve_to_listen(host, port);
    int error = 0;
    UniqueFd fd = listen_at(addresses.front(), error);
    if (!fd) throw SystemError("listen on " + host_and_port(host, port), error);
    return fd;
}

std::vector<UniqueFd> listen_tcp_all(const std::string& host, std::uint16_t port) {
    constexpr int most_tries = 100;  // of a port that is free at the first address
    const std::vector<SocketAddress> addresses = resolve_to_listen(host, port);
    int error = 0;
    for (int i = 0; i < most_tries; ++i) {
        std::vector<UniqueFd> sockets = listen_at_all(addresses, error);
        if (!sockets.empty()) return sockets;
        if (port != 0 || error != EADDRINUSE) break;
    }
    const bool is_name = addresses.front().host() != host;
    throw SystemError("listen on " + host_and_port(host, port) +
                          (is_name ? ", which is " + list_hosts(addresses) + " here" : "") +
                          advice_for(addresses.front(), error),
                      error);
}

UniqueFd listen_tcp_everywhere(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) return listen_tcp("0.0.0.0", port);
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(fd.get(), SOMAXCONN) != 0) {
        throw SystemError("listen on all addresses, port " + std::to_string(port), errno);
    }
    return fd;
}

std::uint16_t local_port(int fd) { return local_address(fd).port(); }

ConnectResult connect_tcp(std::span<const SocketAddress> addresses, const Deadline& deadline) {
    ConnectResult result = ConnectRace(addresses, deadline).run();
    if (!result.fd) return result;
    set_option(result.fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
    keep_alive(result.fd.get());
    return result;
}

ConnectResult connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline) {
    const Resolved found = resolve(host, port);
    if (found.addresses.empty()) return {.error = EHOSTUNREACH, .trouble = found.trouble};
    ConnectResult result = connect_tcp(found.addresses, deadline);
    // Who gave an address in digits need not be told it again.
    const std::string address = host + ": ";
    if (result.trouble.starts_with(address)) result.trouble.erase(0, address.size());
    return result;
}

UniqueFd try_connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                         int& error) {
    ConnectResult result = connect_tcp(host, port, deadline);
    error = result.error;
    return std::move(result.fd);
}

void keep_alive(int fd) {
    constexpr int unacknowledged_ms = 60'000;
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
}

void reset_connection(int fd) {
    const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
    std::ignore = ::connect(fd, &nowhere, sizeof nowhere);
}

void send_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN) {
            poll_for(fd, POLLOUT, deadline, "send");
        } else if (errno != EINTR) {
            throw SystemError("send", errno);
        }
    }
}

void receive_all(int fd, std::span<std::byte> bytes, const Deadline& deadline) {
    while (!bytes.empty()) {
        const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got > 0) {
            bytes = bytes.subspan(static_cast<std::size_t>(got));
        } else if (got == 0) {
            throw SystemError("receive: the other side closed the connection", ECONNRESET);
        } else if (errno == EAGAIN) {
            poll_for(fd, POLLIN, deadline, "receive");
        } else if (errno != EINTR) {
            throw SystemError("receive", errno);
        }
    }
}

bool wait_readable(int fd, const Deadline& deadline) {
    for (;;) {
        pollfd entry{fd, POLLIN, 0};
        const int rc = ::poll(&entry, 1, deadline.poll_timeout());
        if (rc > 0) return true;
        if (rc < 0 && errno != EINTR) throw SystemError("poll", errno);
        if (deadline.passed()) return false;
    }
}

std::string host_name() {
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown host";
}

}  // namespace ddp::base
