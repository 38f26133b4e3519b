// Clients on other hosts: which of them a server hears. Each test has two hosts, a cable between
// them, and three addresses at the other end.
#include "store/admission/served_hosts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "base/net/socket.hpp"
#include "other_host.hpp"
#include "raw_client.hpp"
#include "support/own_network.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* no_two_hosts = "this host allows no namespaces, or has no veth or no IPv6";

// Runs `body` with another host beside this one; false where that cannot be had.
template <class Body>
bool with_other_host(Body body) {
    return ddp::testing::in_own_network({}, [&] {
        const OtherHost other({"10.88.0.1", "fd88::1", "fe80::88:1"},
                              {"10.88.0.2", "10.88.0.3", "fd88::2", "fe80::88:2"});
        if (!other.is_there()) ::_exit(77);
        body(other);
    });
}

// At all addresses of this host, IPv4 and IPv6.
struct Server : DrivenServer {
    explicit Server(const OtherHost& from, StoreServerOptions options = {})
        : DrivenServer(base::listen_tcp_everywhere(0), std::move(options)), other(from) {}

    RawClient client_of(const std::string& address) {
        const bool v4 = address.find(':') == address.npos;
        const std::string to = v4                            ? "10.88.0.1"
                               : address.starts_with("fe80") ? "fe80::88:1%ddp0"
                                                             : "fd88::1";
        return RawClient{*this, other.connect(address, to, server.port())};
    }
    bool serves(RawClient client) {
        client.send(hello + u8(13) + u32(5));
        return client.receive(4) == u32(5);
    }
    bool serves(const std::string& address) { return serves(client_of(address)); }

    const OtherHost& other;
};

// What it hands over.
struct ServerOfAgents : Server {
    ServerOfAgents(const OtherHost& from, StoreServerOptions options = {})
        : Server(from, with_agents(std::move(options))) {}

    StoreServerOptions with_agents(StoreServerOptions options) {
        options.take_agent = [this](base::UniqueFd connection, std::string bytes) {
            taken.push_back(std::move(bytes));
            connections.push_back(std::move(connection));
        };
        return options;
    }
    std::vector<std::string> taken{};
    std::vector<base::UniqueFd> connections{};
};

TEST(ServedHosts, AreAllUntilTheyAreNamed) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        Server server(other);
        EXPECT_TRUE(server.serves("10.88.0.2"));
        EXPECT_TRUE(server.serves("fd88::2"));
        Server alone(other, {.peers = {.other_hosts = false}});
        EXPECT_FALSE(alone.serves("10.88.0.2"));
        RawClient silent = alone.client_of("10.88.0.2");
        EXPECT_TRUE(silent.closed_now()) << "not a byte is waited for";
        EXPECT_TRUE(alone.serves(RawClient{alone}));
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, AreThoseThatAreNamed) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        Server server(other);
        server.server.serve_hosts({"10.88.0.2"});
        EXPECT_TRUE(server.serves("10.88.0.2"));
        EXPECT_FALSE(server.serves("10.88.0.3"));
        EXPECT_FALSE(server.serves("fd88::2"));
        EXPECT_TRUE(server.serves(RawClient{server})) << "of this host";
        RawClient silent = server.client_of("10.88.0.3");
        EXPECT_TRUE(silent.closed_now()) << "it cannot be an agent, where none are taken";

        server.server.serve_hosts({"fd88::2", "fe80::88:2%ddp0"});
        EXPECT_TRUE(server.serves("fd88::2"));
        EXPECT_TRUE(server.serves("fe80::88:2%ddp0"));
        EXPECT_FALSE(server.serves("10.88.0.2")) << "not any more";
        server.server.serve_hosts({"::ffff:10.88.0.3", "fe80::88:2"});
        EXPECT_TRUE(server.serves("10.88.0.3"));
        EXPECT_TRUE(server.serves("fe80::88:2%ddp0"));
        server.server.serve_hosts({});
        EXPECT_FALSE(server.serves("10.88.0.3"));
        EXPECT_TRUE(server.serves(RawClient{server}));
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, AreAlsoAskedForWhereWhoeverIsOnThisHostIsServed) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        Server server(other, {.peers = {.peers = StorePeers::any, .other_hosts = false}});
        EXPECT_TRUE(server.serves("10.88.0.3")) << "whoever can connect";
        server.server.serve_hosts({"10.88.0.2"});
        EXPECT_TRUE(server.serves("10.88.0.2"));
        EXPECT_FALSE(server.serves("10.88.0.3"));
        EXPECT_TRUE(server.serves(RawClient{server}));
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, AreHeardToTheFirstByteWhereTheyMayBeAgents) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        for (const bool others : {true, false}) {
            ServerOfAgents server(other, {.peers = {.other_hosts = others}});
            EXPECT_EQ(server.serves("10.88.0.3"), others);
            server.server.serve_hosts({"10.88.0.2"});
            RawClient silent = server.client_of("10.88.0.3");
            RawClient speaks = server.client_of("10.88.0.3");
            EXPECT_TRUE(silent.still_open());
            silent.send("\xDD agent");
            EXPECT_THAT(server.taken, ElementsAre("\xDD agent"));
            speaks.send(hello.substr(0, 1));
            EXPECT_TRUE(speaks.closed_now());
            EXPECT_TRUE(server.serves("10.88.0.2"));
        }
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

// What counts is who is served when it speaks.
TEST(ServedHosts, MayBeNamedWhileTheyConnect) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        ServerOfAgents server(other, {.peers = {.other_hosts = false}});
        RawClient client = server.client_of("10.88.0.2");
        server.server.serve_hosts({"10.88.0.2"});
        EXPECT_TRUE(server.serves(std::move(client)));
        RawClient late = server.client_of("10.88.0.2");
        server.server.serve_hosts({"10.88.0.3"});
        EXPECT_TRUE(late.still_open());
        EXPECT_FALSE(server.serves(std::move(late)));
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, ThatAreNamedNoLongerLoseTheirConnections) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        ServerOfAgents server(other);
        server.server.serve_hosts({"10.88.0.2", "10.88.0.3"});
        RawClient stays = server.client_of("10.88.0.2");
        RawClient leaves = server.client_of("10.88.0.3");
        RawClient here{server};
        RawClient agent = server.client_of("10.88.0.3");
        agent.send("\xDD");
        for (RawClient* client : {&stays, &leaves, &here}) {
            client->send(hello + u8(6) + u64(1) + str("k"));  // they wait
        }
        server.server.serve_hosts({"10.88.0.2"});
        EXPECT_TRUE(leaves.closed_now());
        EXPECT_TRUE(stays.still_open());
        EXPECT_TRUE(here.still_open());
        EXPECT_TRUE(agent.still_open());
        here.send(u8(12) + u8(1) + str("k") + str("v"));
        EXPECT_EQ(stays.receive(1), u8(0));

        Server takes_none(other);
        RawClient silent = takes_none.client_of("10.88.0.3");
        EXPECT_TRUE(silent.still_open());
        takes_none.server.serve_hosts({"10.88.0.2"});
        EXPECT_TRUE(silent.closed_now());
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, ThatAreRefusedGetOneLineAnAddress) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        const base::UniqueFd listener = base::listen_tcp("10.88.0.1", 0);
        const auto accept = [&](const std::string& from) {
            base::UniqueFd client =
                other.connect(from, "10.88.0.1", base::local_port(listener.get()));
            return std::pair{base::UniqueFd{::accept(listener.get(), nullptr, nullptr)},
                             std::move(client)};
        };
        const auto two = accept("10.88.0.2");
        const auto three = accept("10.88.0.3");
        const auto three_again = accept("10.88.0.3");
        ServedHosts all(ServedHosts::Before::all);
        EXPECT_EQ(all.refusal(two.first.get()), std::nullopt);
        ServedHosts hosts(ServedHosts::Before::none);
        EXPECT_EQ(hosts.refusal(two.first.get()),
                  "refused 10.88.0.2: it is on another host, and all ranks are on this one");
        EXPECT_EQ(hosts.refusal(two.first.get()), "");
        EXPECT_THAT(hosts.set({"10.88.0.2", "node7", ""}), ElementsAre("node7", ""));
        EXPECT_EQ(hosts.refusal(two.first.get()), std::nullopt);
        EXPECT_EQ(hosts.refusal(three.first.get()),
                  "refused 10.88.0.3: it is the address of no host of this job");
        EXPECT_EQ(hosts.refusal(three_again.first.get()), "");
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, ThatAreRefusedAreNamedInTheLog) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        for (const bool takes_agents : {false, true}) {
            ::testing::internal::CaptureStderr();
            StoreServerOptions options;
            if (takes_agents) options.take_agent = [](base::UniqueFd, std::string) {};
            Server server(other, std::move(options));
            server.server.serve_hosts({"10.88.0.2"});
            EXPECT_FALSE(server.serves("10.88.0.3"));
            EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("refused 10.88.0.3: "));
        }
        ::testing::internal::CaptureStderr();
        Server server(other);
        server.server.serve_hosts({"node7"});
        EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("\"node7\" is no host's"));
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

TEST(ServedHosts, AreNoTorchrunAgents) {
    const bool allowed = with_other_host([](const OtherHost& other) {
        ServerOfAgents server(other);
        const std::string wait = u8(6) + u64(1);
        for (const std::string& key :
             {std::string("/torch.rendezvous.job"), std::string("/none/torchelastic/role_info1")}) {
            RawClient agent = server.client_of("10.88.0.2");
            agent.send(hello + u8(1) + str(key) + str("v") + u8(13) + u32(5));
            EXPECT_TRUE(agent.closed_by_server()) << key;
            RawClient other_request = server.client_of("10.88.0.2");
            other_request.send(hello + wait + str(key));
            EXPECT_TRUE(other_request.closed_by_server()) << key;
        }
        RawClient here{server};
        here.send(hello + u8(7));
        EXPECT_EQ(here.receive(8), u64(0)) << "nothing of theirs is done";
        RawClient ours{server};
        ours.send(hello + u8(1) + str("/torch.rendezvous.job") + str("v") + u8(7));
        EXPECT_EQ(ours.receive(8), u64(1)) << "on this host there is no other launcher's part";
        Server without_agents(other);
        RawClient any = without_agents.client_of("10.88.0.2");
        any.send(hello + u8(1) + str("/torch.rendezvous.job") + str("v") + u8(13) + u32(5));
        EXPECT_EQ(any.receive(4), u32(5)) << "a store of rank 0's";
    });
    if (!allowed) GTEST_SKIP() << no_two_hosts;
}

}  // namespace
}  // namespace ddp::store
