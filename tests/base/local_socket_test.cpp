// Named sockets of this host: who is at the other end, and what is said when there is none.
#include "base/net/local_socket.hpp"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cerrno>

#include "base/net/socket.hpp"
#include "base/random.hpp"

namespace ddp::base {
namespace {

std::string new_name() { return "ddp-test-" + std::to_string(random_bits()); }

UniqueFd accept(const UniqueFd& listener) {
    return UniqueFd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
}

TEST(LocalSocket, TellsWhoHasConnected) {
    const std::string name = new_name();
    const UniqueFd listener = listen_local(name);
    ASSERT_TRUE(listener);
    const UniqueFd client = try_connect_local(name);
    ASSERT_TRUE(client);
    const UniqueFd server = accept(listener);
    ASSERT_TRUE(server);
    const auto peer = local_peer(server.get());
    ASSERT_TRUE(peer);
    EXPECT_EQ(peer->pid, ::getpid());
    EXPECT_EQ(peer->uid, ::geteuid());
}

TEST(LocalSocket, OfTcpNothingIsToldThatWay) {
    const UniqueFd listener = listen_tcp("127.0.0.1", 0);
    int error = 0;
    const UniqueFd client = try_connect_tcp("127.0.0.1", local_port(listener.get()),
                                            Deadline::after(std::chrono::seconds{10}), error);
    ASSERT_TRUE(client);
    EXPECT_FALSE(local_peer(client.get()));
    EXPECT_FALSE(local_peer(-1));
}

TEST(LocalSocket, ANameIsOneSocketsAndGoesWithIt) {
    const std::string name = new_name();
    EXPECT_FALSE(try_connect_local(name));
    EXPECT_EQ(errno, ECONNREFUSED);
    UniqueFd listener = listen_local(name);
    ASSERT_TRUE(listener);
    EXPECT_FALSE(listen_local(name));
    EXPECT_EQ(errno, EADDRINUSE);
    listener.reset();
    EXPECT_TRUE(listen_local(name));
}

TEST(LocalSocket, ConnectingNeverWaits) {
    const std::string name = new_name();
    const UniqueFd listener = listen_local(name);
    ASSERT_TRUE(listener);
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    std::vector<UniqueFd> clients;
    do {
        clients.push_back(try_connect_local(name));
    } while (clients.back() && clients.size() < 10);
    EXPECT_EQ(errno, EAGAIN);
    EXPECT_LT(clients.size(), 10U);
}

TEST(LocalSocket, ALongNameIsCut) {
    const std::string name = new_name() + std::string(200, 'x');
    const UniqueFd listener = listen_local(name);
    ASSERT_TRUE(listener);
    EXPECT_TRUE(try_connect_local(name.substr(0, 107)));
}

}  // namespace
}  // namespace ddp::base
