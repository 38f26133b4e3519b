#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace ddp::base {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

AddressList resolve(const std::string& host, std::uint16_t port, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const int rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
    return {rc == 0 ? found : nullptr, &::freeaddrinfo};
}

std::string address(const std::string& host, std::uint16_t port) {
    return host + ":" + std::to_string(port);
}

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

// One non-blocking connect to one address; errno-like result, 0 when connected.
int connect_before(int fd, const addrinfo& to, const Deadline& deadline) {
    if (::connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
    if (errno != EINPROGRESS && errno != EINTR) return errno;
    for (;;) {
        pollfd entry{fd, POLLOUT, 0};
        const int rc = ::poll(&entry, 1, deadline.poll_timeout());
        if (rc > 0) break;
        if (rc < 0 && errno != EINTR) return errno;
        if (deadline.passed()) return ETIMEDOUT;
    }
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
    const std::string what = "listen on " + address(host, port);
    const AddressList found = resolve(host, port, AI_PASSIVE);
    if (!found) throw SystemError(what + ": cannot resolve the name", EADDRNOTAVAIL);
    UniqueFd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) throw SystemError(what, errno);
    set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (::bind(fd.get(), found->ai_addr, found->ai_addrlen) != 0) throw SystemError(what, errno);
    if (::listen(fd.get(), SOMAXCONN) != 0) throw SystemError(what, errno);
    return fd;
}

std::uint16_t local_port(int fd) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
        throw SystemError("getsockname", errno);
    }
    return ntohs(storage.ss_family == AF_INET6
                     ? reinterpret_cast<const sockaddr_in6&>(storage).sin6_port
                     : reinterpret_cast<const sockaddr_in&>(storage).sin_port);
}

UniqueFd try_connect_tcp(const std::string& host, std::uint16_t port, const Deadline& deadline,
                         int& error) {
    error = EHOSTUNREACH;
    const AddressList found = resolve(host, port, 0);
    for (const addrinfo* to = found.get(); to != nullptr; to = to->ai_next) {
        UniqueFd fd(::socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!fd) throw SystemError("connect to " + address(host, port), errno);
        error = connect_before(fd.get(), *to, deadline);
        if (error != 0) continue;
        set_option(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1);
        keep_alive(fd.get());
        return fd;
    }
    return {};
}

void keep_alive(int fd) {
    constexpr int unacknowledged_ms = 60'000;
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 15);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, unacknowledged_ms);
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
