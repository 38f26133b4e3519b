// Sockets on 127.0.0.1: bytes arrive, deadlines hold, errors name what they are about.
#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp::base;

struct Connection {
    UniqueFd client;
    UniqueFd server;
};

Connection connect_to(const UniqueFd& listener) {
    int error = 0;
    Connection connection;
    connection.client =
        try_connect_tcp("127.0.0.1", local_port(listener.get()), Deadline::after(10s), error);
    EXPECT_TRUE(wait_readable(listener.get(), Deadline::after(10s)));
    connection.server.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return connection;
}

TEST(Socket, CarriesBytesBothWays) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Connection connection = connect_to(listener);
    const std::array<std::byte, 3> sent{std::byte{1}, std::byte{2}, std::byte{3}};
    std::array<std::byte, 3> received{};
    send_all(connection.client.get(), sent, Deadline::after(10s));
    receive_all(connection.server.get(), received, Deadline::after(10s));
    EXPECT_EQ(received, sent);
    send_all(connection.server.get(), sent, Deadline::after(10s));
    receive_all(connection.client.get(), received, Deadline::after(10s));
}

TEST(Socket, ReceiveThrowsAtItsDeadline) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Connection connection = connect_to(listener);
    std::array<std::byte, 1> byte{};
    EXPECT_THROW(receive_all(connection.client.get(), byte, Deadline::after(20ms)),
                 ddp::TimeoutError);
}

TEST(Socket, SendThrowsAtItsDeadlineWhenNobodyReads) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Connection connection = connect_to(listener);
    const std::vector<std::byte> much(64 << 20);
    EXPECT_THROW(send_all(connection.client.get(), much, Deadline::after(50ms)), ddp::TimeoutError);
}

TEST(Socket, ReceiveThrowsWhenTheOtherSideCloses) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    Connection connection = connect_to(listener);
    connection.server.reset();
    std::array<std::byte, 1> byte{};
    EXPECT_THROW(receive_all(connection.client.get(), byte, Deadline::after(10s)),
                 ddp::SystemError);
}

// A host that vanishes says nothing; the kernel asks it, and gives up within a minute.
TEST(Socket, NoticesThatAPeerHasVanished) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const Connection connection = connect_to(listener);
    const auto option = [&](int level, int name) {
        int value = 0;
        socklen_t size = sizeof value;
        EXPECT_EQ(::getsockopt(connection.client.get(), level, name, &value, &size), 0);
        return value;
    };
    EXPECT_EQ(option(SOL_SOCKET, SO_KEEPALIVE), 1);
    EXPECT_LE(option(IPPROTO_TCP, TCP_KEEPIDLE) +
                  option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT),
              60);
    EXPECT_EQ(option(IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
}

TEST(Socket, ConnectReportsWhyItFailed) {
    std::uint16_t free_port = 0;
    {
        const UniqueFd listener = listen_tcp("127.0.0.1", 0);
        free_port = local_port(listener.get());
    }
    int error = 0;
    EXPECT_FALSE(try_connect_tcp("127.0.0.1", free_port, Deadline::after(10s), error));
    EXPECT_EQ(error, ECONNREFUSED);
}

TEST(Socket, ListenNamesAPortInUse) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = local_port(listener.get());
    try {
        const UniqueFd second = listen_tcp("127.0.0.1", port);
        FAIL() << "bound a port twice";
    } catch (const ddp::SystemError& error) {
        EXPECT_EQ(error.code(), EADDRINUSE);
        EXPECT_THAT(error.what(), ::testing::HasSubstr("127.0.0.1:" + std::to_string(port)));
    }
}

}  // namespace
