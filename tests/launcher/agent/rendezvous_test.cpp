// Ports: free, held, given and taken.
#include "launcher/agent/rendezvous.hpp"

#include "base/net/socket.hpp"
#include "support/own_network.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ddp::launcher {
namespace {

sockaddr_in name_of(int socket) {
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &size), 0);
    return bound;
}

TEST(Rendezvous, AFreePortIsListenedOnOnLoopbackOnly) {
    const Rendezvous rendezvous = make_rendezvous({});
    EXPECT_EQ(rendezvous.address, "127.0.0.1");
    EXPECT_NE(rendezvous.port, 0);
    EXPECT_FALSE(rendezvous.holder);
    const sockaddr_in bound = name_of(rendezvous.listeners.front().get());
    EXPECT_EQ(bound.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    EXPECT_EQ(ntohs(bound.sin_port), rendezvous.port);
}

TEST(Rendezvous, TwoJobsGetTwoPorts) {
    const Rendezvous first = make_rendezvous({});
    const Rendezvous second = make_rendezvous({});
    EXPECT_NE(first.port, second.port);
}

TEST(Rendezvous, APortInUseIsOneClearLineThatSaysWhatToDo) {
    const base::UniqueFd other = base::listen_tcp("127.0.0.1", 0);
    Options options;
    options.rendezvous.master_port = base::local_port(other.get());
    for (const AgentStore store : {AgentStore::on, AgentStore::off}) {
        options.rendezvous.agent_store = store;
        try {
            make_rendezvous(options);
            FAIL() << "the port is in use";
        } catch (const UsageError& error) {
            EXPECT_EQ(error.what(),
                      "port " + std::to_string(options.rendezvous.master_port) +
                          " on 127.0.0.1 is in use (ss -ltnp shows by whom); leave out "
                          "--master-port to get a free one");
        }
    }
}

// Rank 0 listens on it.
TEST(Rendezvous, AHeldPortIsHeldOnLoopbackOnly) {
    for (const char* master : {"127.0.0.1", "localhost", "192.0.2.1"}) {
        Options options;
        options.rendezvous.agent_store = AgentStore::off;
        options.rendezvous.master_addr = master;
        const Rendezvous rendezvous = make_rendezvous(options);
        ASSERT_TRUE(rendezvous.holder);
        const sockaddr_in bound = name_of(rendezvous.holder.get());
        EXPECT_EQ(bound.sin_addr.s_addr, htonl(INADDR_LOOPBACK)) << master;
        EXPECT_EQ(ntohs(bound.sin_port), rendezvous.port);
    }
}

// As PyTorch's TCPStore does: all addresses of both families by one socket.
bool can_listen_on_everything(std::uint16_t port) {
    const base::UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    const int off = 0;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(port);
    return ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) == 0 &&
           ::listen(fd.get(), 1) == 0;
}

TEST(Rendezvous, AHeldPortIsOpenToSoReuseaddrAndClosedToOthers) {
    Options options;
    options.rendezvous.agent_store = AgentStore::off;
    const Rendezvous rendezvous = make_rendezvous(options);
    EXPECT_FALSE(rendezvous.listeners.size());
    ASSERT_TRUE(rendezvous.holder);
    // listen_tcp sets SO_REUSEADDR.
    for (const char* host : {"127.0.0.1", "0.0.0.0"}) {
        EXPECT_TRUE(base::listen_tcp(host, rendezvous.port)) << host;
    }
    if (base::UniqueFd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0))) {
        EXPECT_TRUE(can_listen_on_everything(rendezvous.port));
    }
    const base::UniqueFd without(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(rendezvous.port);
    EXPECT_EQ(::bind(without.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), -1);
    EXPECT_EQ(errno, EADDRINUSE);
}

TEST(Rendezvous, LoopbackByIpv6IsLoopback) {
    const bool allowed = ddp::testing::in_own_network({}, [] {
        for (const auto& [master, is_loopback] :
             {std::pair{"::1", true}, std::pair{"0::1", true}, std::pair{"127.0.0.1", true},
              std::pair{"127.0.0.2", false}, std::pair{"fd77::1", false}}) {
            SCOPED_TRACE(master);
            const base::UniqueFd other = base::listen_tcp("::1", 0);
            Options options;
            options.rendezvous.agent_store = AgentStore::off;
            options.rendezvous.master_addr = master;
            EXPECT_EQ(make_rendezvous(options).at_loopback, is_loopback);
            options.rendezvous.master_port = base::local_port(other.get());
            const bool is_ipv6 = is_loopback && std::string(master).find(':') != std::string::npos;
            if (is_ipv6) {
                EXPECT_THROW(make_rendezvous(options), UsageError) << "the port is in use";
            } else {
                EXPECT_EQ(make_rendezvous(options).rank_0_serves_here, is_loopback);
            }
        }
    });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces, or has no IPv6";
}

TEST(Rendezvous, AGivenPortIsLeftFreeForRankZero) {
    Options options;
    options.rendezvous.agent_store = AgentStore::off;
    {
        const base::UniqueFd once = base::listen_tcp("127.0.0.1", 0);
        options.rendezvous.master_port = base::local_port(once.get());
    }
    const Rendezvous rendezvous = make_rendezvous(options);
    EXPECT_EQ(rendezvous.port, options.rendezvous.master_port);
    EXPECT_FALSE(rendezvous.listeners.size());
    EXPECT_FALSE(rendezvous.holder);
}

}  // namespace
}  // namespace ddp::launcher
