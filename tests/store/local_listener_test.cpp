// A server that has a name beside its port, as the launcher's.
#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/random.hpp"
#include "raw_client.hpp"
#include "store/client/job_store.hpp"
#include "store/patient.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace std::chrono_literals;
using namespace store_test;

constexpr std::size_t one_read = std::size_t{16} << 10;  // usual_read of store_server.cpp

std::string ask(RawClient& client) {
    client.send(hello + u8(13) + u32(5));
    return client.receive(4);
}

TEST(LocalListener, ServesTheSameMapAsThePort) {
    DrivenServer server({.is_local_too = true});
    RawClient local{server, By::name};
    EXPECT_EQ(ask(local), u32(5));
    local.send(u8(1) + str("k") + str("v"));
    RawClient remote{server};
    EXPECT_EQ(ask(remote), u32(5));
    remote.send(u8(3) + str("k"));
    EXPECT_EQ(remote.receive(9), str("v"));
}

TEST(LocalListener, IsThereOnlyWhenAskedFor) {
    const DrivenServer server;
    EXPECT_EQ(server.server.local_name(), "");
}

TEST(LocalListener, ANewAttemptClosesItsConnectionsAndThoseThatWait) {
    DrivenServer server({.is_local_too = true});
    RawClient spoken{server, By::name};
    EXPECT_EQ(ask(spoken), u32(5));
    const base::UniqueFd waits = base::try_connect_local(server.server.local_name());
    ASSERT_TRUE(waits);
    server.server.start_attempt(1);
    EXPECT_TRUE(spoken.closed_by_server());
    char byte = 0;
    EXPECT_EQ(::recv(waits.get(), &byte, 1, 0), 0);
    RawClient fresh{server, By::name};
    EXPECT_EQ(ask(fresh), u32(5));
}

// Nothing would limit the time that it takes to read them. The end of input comes with the request:
// what the server reads at once is as much as it asks for, so it asks again before it replies,
// unless its turn is over before.
TEST(LocalListener, AHalfClosedClientGetsNoMoreReplies) {
    DrivenServer server({.limits = {.longest_turn = 1h}, .is_local_too = true});
    RawClient client{server, By::name};
    EXPECT_EQ(ask(client), u32(5));
    const std::string asks = u8(1) + str("k") + str("v") + u8(3) + str("k");
    const std::string empty = u8(1) + str("filler") + str("");
    const std::string filler(one_read - asks.size() - empty.size(), 'x');
    const std::string bytes = u8(1) + str("filler") + str(filler) + asks;
    ASSERT_EQ(::send(client.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(one_read));
    client.half_close();
    std::string rest;
    EXPECT_TRUE(client.closed_by_server(&rest));
    EXPECT_EQ(rest, "");
}

TEST(LocalListener, AHalfClosedClientThatLeftRepliesUnreadIsClosedOnceItHasReadThem) {
    DrivenServer server({.is_local_too = true});
    RawClient client{server, By::name};
    EXPECT_EQ(ask(client), u32(5));
    client.send(u8(1) + str("k") + str(std::string(4 << 20, 'x')));
    client.send(u8(3) + str("k"));
    client.half_close();
    std::string rest;
    EXPECT_TRUE(client.closed_by_server(&rest));
    EXPECT_EQ(rest.size(), str(std::string(4 << 20, 'x')).size());
}

// A server on a thread, whose port is another one than is said.
class LaunchersStore : public testing::Test {
protected:
    LaunchersStore()
        : server_(base::listen_tcp_all("127.0.0.1", 0), {.is_local_too = true}),
          port_(server_.port()),
          thread_([this] {
              while (!ended_) {
                  pollfd ready{server_.fd(), POLLIN, 0};
                  if (::poll(&ready, 1, 10) > 0) server_.run_ready();
              }
          }) {}
    ~LaunchersStore() override {
        ::unsetenv("DDP_AGENT_STORE_SOCKET");
        ended_ = true;
        thread_.join();
    }

    static std::shared_ptr<Store> connect(std::uint16_t port, ServedBy server) {
        const RankClaim claim = claim_of_this_process({.job = "j", .world_size = 2, .rank = 0});
        return connect_job_store({"127.0.0.1", port}, claim, server, StorePeers::same_user, patient)
            .store;
    }
    static std::uint16_t free_port() {
        return base::local_port(base::listen_tcp("127.0.0.1", 0).get());
    }

    StoreServer server_;
    std::uint16_t port_;
    std::atomic<bool> ended_ = false;
    std::thread thread_;
};

TEST_F(LaunchersStore, IsReachedByItsName) {
    ::setenv("DDP_AGENT_STORE_SOCKET", server_.local_name().c_str(), 1);
    const auto store = connect(free_port(), ServedBy::launcher);
    store->set("k", "v");
    EXPECT_EQ(store->get("k"), "v");
    EXPECT_THROW(store->wait({"never"}, 50ms), TimeoutError);  // on a connection of its own
    EXPECT_EQ(store->get("k"), "v");
}

TEST_F(LaunchersStore, IsReachedByItsPortWhereTheNameIsNobodys) {
    for (const char* name : {"ddp-test-nobody-has-this", ""}) {
        ::setenv("DDP_AGENT_STORE_SOCKET", name, 1);
        connect(port_, ServedBy::launcher)->set("k", "v");
    }
}

// As one does whose kernel shows the client as nobody it knows.
TEST_F(LaunchersStore, IsReachedByItsPortWhereTheNameRefuses) {
    const std::string name = "ddp-test-" + std::to_string(base::random_bits());
    const base::UniqueFd refusing = base::listen_local(name);
    ASSERT_TRUE(refusing);
    ::setenv("DDP_AGENT_STORE_SOCKET", name.c_str(), 1);
    std::atomic<int> refused = 0;
    std::thread server([&] {
        pollfd ready{refusing.get(), POLLIN, 0};
        if (::poll(&ready, 1, 20'000) <= 0) return;
        const base::UniqueFd closed{::accept4(refusing.get(), nullptr, nullptr, SOCK_CLOEXEC)};
        ++refused;
    });
    connect(port_, ServedBy::launcher)->set("k", "v");
    server.join();
    EXPECT_EQ(refused, 1);
}

TEST_F(LaunchersStore, TheNameIsNotUsedForRankZerosServer) {
    ::setenv("DDP_AGENT_STORE_SOCKET", "ddp-test-nobody-has-this", 1);
    const base::UniqueFd squatter = base::listen_local("ddp-test-nobody-has-this");
    ASSERT_TRUE(squatter);
    connect(port_, ServedBy::rank_0)->set("k", "v");
}

}  // namespace
}  // namespace ddp::store
