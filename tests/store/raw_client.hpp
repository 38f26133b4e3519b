// A server that the test itself drives, and clients that send it any bytes: one thread, no sleeps,
// so that what the server answers to which bytes is exact and repeatable.
#pragma once

#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.hpp"
#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"
#include "store/server/store_server.hpp"

namespace ddp::store_test {

inline std::vector<base::UniqueFd> only(base::UniqueFd listener) {
    std::vector<base::UniqueFd> listeners;
    listeners.push_back(std::move(listener));
    return listeners;
}

class DrivenServer {
public:
    explicit DrivenServer(store::StoreServerOptions options = {})
        : DrivenServer(base::listen_tcp("127.0.0.1", 0), std::move(options)) {}
    DrivenServer(base::UniqueFd listener, store::StoreServerOptions options)
        : server(only(std::move(listener)), std::move(options)) {}

    store::StoreServer server;

    // Lets the server handle what is ready, if something becomes ready soon.
    void pump(int wait_ms = 0) {
        pollfd ready{server.fd(), POLLIN, 0};
        if (::poll(&ready, 1, wait_ms) > 0) server.run_ready();
    }
    // Until nothing is ready any more.
    void settle() {
        for (pollfd ready{server.fd(), POLLIN, 0}; ::poll(&ready, 1, 0) > 0;) server.run_ready();
    }
};

enum class By { port, name };

class RawClient {
public:
    explicit RawClient(DrivenServer& server, By by = By::port)
        : RawClient(server, connect(server.server, by)) {}
    // A connection that the server has perhaps not accepted yet.
    RawClient(DrivenServer& server, base::UniqueFd connection)
        : server_(server), fd_(std::move(connection)) {
        if (fd_) ::fcntl(fd_.get(), F_SETFL, ::fcntl(fd_.get(), F_GETFL) | O_NONBLOCK);
        server_.settle();
    }

    // The server has not looked at it.
    static base::UniqueFd connect(const store::StoreServer& server, By by = By::port) {
        int error = 0;
        auto fd = by == By::name ? base::try_connect_local(server.local_name())
                                 : base::try_connect_tcp(
                                       "127.0.0.1", server.port(),
                                       base::Deadline::after(std::chrono::seconds{10}), error);
        EXPECT_TRUE(fd) << "errno " << error;
        return fd;
    }

    int fd() const { return fd_.get(); }

    void send(const std::string& bytes) {
        std::size_t sent = 0;
        const auto deadline = base::Deadline::after(std::chrono::seconds{20});
        while (sent < bytes.size() && !deadline.passed()) {
            const auto count =
                ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
            if (count > 0) sent += static_cast<std::size_t>(count);
            if (count < 0 && errno != EAGAIN) break;  // the server has closed: receive() will tell
            server_.pump();
        }
        server_.settle();
    }

    // Exactly that many bytes, or fewer when the server closes or 20 s pass.
    std::string receive(std::size_t count) {
        std::string bytes;
        const auto deadline = base::Deadline::after(std::chrono::seconds{20});
        while (bytes.size() < count && !closed_ && !deadline.passed()) take(bytes, count);
        return bytes;
    }

    // Whether the server closes the connection; `rest` is what it sent before.
    bool closed_by_server(std::string* rest = nullptr) {
        std::string bytes;
        const auto deadline = base::Deadline::after(std::chrono::seconds{20});
        while (!closed_ && !deadline.passed()) take(bytes, std::string::npos);
        if (rest != nullptr) *rest = bytes;
        return closed_;
    }

    // Whether it has closed the connection by now, and sent nothing before.
    bool closed_now() {
        server_.settle();
        char byte = 0;
        const ssize_t count = ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT);
        return count == 0 || (count < 0 && errno == ECONNRESET);
    }

    // Whether it has not, and has sent nothing.
    bool still_open() {
        server_.settle();
        char byte = 0;
        return ::recv(fd_.get(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
    }

    // What is there now, after the server has done all that it can.
    std::string receive_now() {
        server_.settle();
        std::string bytes(65536, '\0');
        const auto count = ::recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        return bytes;
    }

    void half_close() {
        ::shutdown(fd_.get(), SHUT_WR);
        server_.settle();
    }
    void close() {
        fd_.reset();
        server_.settle();
    }

private:
    void take(std::string& bytes, std::size_t wanted) {
        server_.pump();
        char buffer[65536];
        const auto count =
            ::recv(fd_.get(), buffer, std::min(sizeof buffer, wanted - bytes.size()), MSG_DONTWAIT);
        if (count > 0) bytes.append(buffer, static_cast<std::size_t>(count));
        if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) closed_ = true;
        if (count < 0) server_.pump(1);
    }

    DrivenServer& server_;
    base::UniqueFd fd_;
    bool closed_ = false;
};

}  // namespace ddp::store_test
