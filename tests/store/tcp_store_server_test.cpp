// The public server: where it binds, what it says when it cannot, and that it goes when it is
// destroyed.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "base/net/socket.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;

TEST(TcpStoreServer, ChoosesAFreePortAndServesThere) {
    const TcpStoreServer first{{"127.0.0.1", 0}};
    const TcpStoreServer second{{"127.0.0.1", 0}};
    EXPECT_NE(first.port(), second.port());
    connect_tcp_store({"127.0.0.1", first.port()}, 30s)->set("k", "v");
    EXPECT_FALSE(connect_tcp_store({"127.0.0.1", second.port()}, 30s)->check({"k"}));
}

TEST(TcpStoreServer, ATakenPortIsASystemErrorThatNamesIt) {
    const TcpStoreServer first{{"127.0.0.1", 0}};
    try {
        const TcpStoreServer second{{"127.0.0.1", first.port()}};
        FAIL() << "bound the same port twice";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EADDRINUSE);
        EXPECT_THAT(error.what(), testing::HasSubstr("127.0.0.1:" + std::to_string(first.port())));
    }
}

TEST(TcpStoreServer, ListensOnItsHostOnly) {
    const TcpStoreServer server{{"127.0.0.1", 0}};
    int error = 0;
    const auto deadline = base::Deadline::after(10s);
    EXPECT_FALSE(base::try_connect_tcp("127.0.0.2", server.port(), deadline, error));
    EXPECT_EQ(error, ECONNREFUSED);
}

TEST(TcpStoreServer, CanBeMovedWhileClientsUseIt) {
    TcpStoreServer first{{"127.0.0.1", 0}};
    const auto store = connect_tcp_store({"127.0.0.1", first.port()}, 30s);
    const TcpStoreServer second{std::move(first)};
    store->set("k", "v");
    EXPECT_EQ(store->get("k"), "v");
}

TEST(TcpStoreServer, IsGoneWhenItIsDestroyed) {
    std::optional<TcpStoreServer> server{TcpStoreServer{{"127.0.0.1", 0}}};
    const auto port = server->port();
    const auto store = connect_tcp_store({"127.0.0.1", port}, 30s);
    server.reset();
    EXPECT_THROW(store->check({"k"}), SystemError);
    const TcpStoreServer again{{"127.0.0.1", port}};  // the port is free at once
    EXPECT_EQ(again.port(), port);
}

}  // namespace
}  // namespace ddp
