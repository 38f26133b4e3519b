// Connecting to one of several addresses, and listening at all of them. Black holes are listeners
// whose queue is full: the kernel then drops who asks to connect.
#include "base/net/socket.hpp"

#include "support/own_network.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp::base;
using ddp::testing::in_own_network;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* no_namespaces = "this host allows no namespaces, or has no IPv6";

class BlackHole {
public:
    explicit BlackHole(const std::string& host) : listener_(listen_tcp(host, 0)) {
        EXPECT_EQ(::listen(listener_.get(), 0), 0);  // room for one
        waiting_ = connect_tcp(std::vector{address()}, Deadline::after(10s)).fd;
        EXPECT_TRUE(waiting_);
    }
    SocketAddress address() const { return local_address(listener_.get()); }

private:
    UniqueFd listener_;
    UniqueFd waiting_;
};

// Nobody listens there, and nobody else gets the port.
class Refusing {
public:
    explicit Refusing(const std::string& host) {
        const SocketAddress any = *numeric_address(host);
        fd_.reset(::socket(any.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::bind(fd_.get(), any.generic(), any.size), 0);
    }
    SocketAddress address() const { return local_address(fd_.get()); }

private:
    UniqueFd fd_;
};

struct Timed {
    ConnectResult result;
    std::chrono::milliseconds took;
};

Timed timed_connect(const std::vector<SocketAddress>& addresses, std::chrono::milliseconds limit) {
    const Deadline deadline = Deadline::after(limit);
    ConnectResult result = connect_tcp(addresses, deadline);
    return {std::move(result), std::chrono::duration_cast<std::chrono::milliseconds>(
                                   Deadline::Clock::now() - deadline.start())};
}

std::string peer_of(const UniqueFd& fd) {
    SocketAddress end;
    end.size = sizeof end.bytes;
    EXPECT_EQ(::getpeername(fd.get(), reinterpret_cast<sockaddr*>(&end.bytes), &end.size), 0);
    return end.host();
}

TEST(Connect, TriesTheNextAddressBesideOneThatDoesNotAnswer) {
    const BlackHole hole("127.0.0.2");
    const UniqueFd listener = listen_tcp("127.0.0.3", 0);
    const Timed timed = timed_connect({hole.address(), local_address(listener.get())}, 30s);
    ASSERT_TRUE(timed.result.fd) << timed.result.trouble;
    EXPECT_EQ(timed.result.error, 0);
    EXPECT_EQ(peer_of(timed.result.fd), "127.0.0.3");
    EXPECT_GE(timed.took, 240ms);
    EXPECT_LT(timed.took, 10s);
}

TEST(Connect, TriesTheNextAddressAtOnceWhenOneRefuses) {
    const Refusing refusing("127.0.0.2");
    const UniqueFd listener = listen_tcp("127.0.0.3", 0);
    auto fastest = 30'000ms;
    for (int i = 0; i < 10; ++i) {  // a busy host delays one, not all
        const Timed timed = timed_connect({refusing.address(), local_address(listener.get())}, 30s);
        ASSERT_TRUE(timed.result.fd) << timed.result.trouble;
        EXPECT_EQ(peer_of(timed.result.fd), "127.0.0.3");
        fastest = std::min(fastest, timed.took);
    }
    EXPECT_LT(fastest, 200ms);
}

TEST(Connect, ARefusalWhileAnEarlierAddressIsSilentBringsTheNextAtOnce) {
    const BlackHole hole("127.0.0.2");
    const Refusing refusing("127.0.0.3");
    const UniqueFd listener = listen_tcp("127.0.0.4", 0);
    auto fastest = 30'000ms;
    for (int i = 0; i < 5; ++i) {
        const Timed timed =
            timed_connect({hole.address(), refusing.address(), local_address(listener.get())}, 30s);
        ASSERT_TRUE(timed.result.fd) << timed.result.trouble;
        fastest = std::min(fastest, timed.took);
    }
    EXPECT_LT(fastest, 490ms) << "the third address came a delay after the second";
}

TEST(Connect, KeepsItsDeadlineWhenNoAddressAnswers) {
    const BlackHole hole("127.0.0.2");
    const BlackHole other("127.0.0.3");
    const Timed timed = timed_connect({hole.address(), other.address()}, 300ms);
    EXPECT_FALSE(timed.result.fd);
    EXPECT_EQ(timed.result.error, ETIMEDOUT);
    EXPECT_THAT(timed.result.trouble, AllOf(HasSubstr("127.0.0.2: "), HasSubstr("127.0.0.3: ")));
    EXPECT_GE(timed.took, 300ms);
    EXPECT_LT(timed.took, 10s);
}

TEST(Connect, NamesTheAddressesThatItHadNoTimeToTry) {
    const BlackHole hole("127.0.0.2");
    const Refusing refusing("127.0.0.3");
    const Timed timed = timed_connect({hole.address(), refusing.address()}, 1ms);
    EXPECT_FALSE(timed.result.fd);
    EXPECT_EQ(timed.result.error, ETIMEDOUT);
    EXPECT_EQ(timed.result.trouble,
              "127.0.0.2: Connection timed out; 127.0.0.3: no time was left to try it");
}

TEST(Connect, ReportsTheErrorOfTheAddressThatGotFurthest) {
    const BlackHole hole("127.0.0.2");
    const Refusing refusing("127.0.0.3");
    const SocketAddress no_address = *numeric_address("fe80::1", 5);  // without its link
    for (const std::vector<SocketAddress>& order :
         {std::vector{refusing.address(), hole.address(), no_address},
          std::vector{no_address, hole.address(), refusing.address()}}) {
        const Timed timed = timed_connect(order, 1s);
        EXPECT_FALSE(timed.result.fd);
        EXPECT_EQ(timed.result.error, ECONNREFUSED);
        EXPECT_THAT(timed.result.trouble,
                    AllOf(HasSubstr("127.0.0.3: Connection refused"),
                          HasSubstr("127.0.0.2: Connection timed out"), HasSubstr("fe80::1: ")));
    }
}

TEST(Connect, WithOneAddressInDigitsTheErrorIsAllThatIsSaid) {
    const Refusing refusing("127.0.0.2");
    const ConnectResult result =
        connect_tcp("127.0.0.2", refusing.address().port(), Deadline::after(10s));
    EXPECT_EQ(result.error, ECONNREFUSED);
    EXPECT_EQ(result.trouble, "Connection refused");
}

TEST(Connect, ANameWithoutAddressIsUnreachableForTheResolversReason) {
    const bool allowed = in_own_network({}, [] {
        const ConnectResult result = connect_tcp("no-such-host", 5, Deadline::after(10s));
        EXPECT_FALSE(result.fd);
        EXPECT_EQ(result.error, EHOSTUNREACH);
        EXPECT_EQ(result.trouble, resolve("no-such-host", 5).trouble);
    });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(Connect, ReachesAHostByIpv6AndByALinkLocalAddressWithItsScope) {
    const bool allowed =
        in_own_network({.addresses = {"fd77::1", "fe80::77"}, .hosts = "fd77::1 node7\n"}, [] {
            for (const char* host : {"node7", "fd77::1", "::1", "fe80::77%lo"}) {
                SCOPED_TRACE(host);
                const UniqueFd listener = listen_tcp(host, 0);
                const ConnectResult result =
                    connect_tcp(host, local_port(listener.get()), Deadline::after(10s));
                EXPECT_TRUE(result.fd) << result.trouble;
            }
            const UniqueFd listener = listen_tcp("fe80::77%lo", 0);
            EXPECT_EQ(local_address(listener.get()).host(), "fe80::77%lo");
            const ConnectResult without =
                connect_tcp("fe80::77", local_port(listener.get()), Deadline::after(10s));
            EXPECT_FALSE(without.fd);
            EXPECT_THAT(without.trouble, HasSubstr("needs its interface"));
            try {
                listen_tcp_all("fe80::77", 0);
                ADD_FAILURE() << "listens at an address of no link";
            } catch (const ddp::SystemError& error) {
                EXPECT_THAT(error.what(), HasSubstr("needs its interface"));
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(Connect, ANameIsReachedAtTheAddressThatAnswers) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "fd77::1"}, .hosts = "fd77::1 node7\n10.77.0.1 node7\n"}, [] {
            for (const char* host : {"10.77.0.1", "fd77::1"}) {
                const UniqueFd listener = listen_tcp(host, 0);
                const ConnectResult result =
                    connect_tcp("node7", local_port(listener.get()), Deadline::after(10s));
                ASSERT_TRUE(result.fd) << result.trouble;
                EXPECT_EQ(peer_of(result.fd), host);
            }
            const ConnectResult nobody = connect_tcp("node7", 9, Deadline::after(10s));
            EXPECT_EQ(nobody.error, ECONNREFUSED);
            EXPECT_THAT(nobody.trouble, AllOf(HasSubstr("10.77.0.1: Connection refused"),
                                              HasSubstr("fd77::1: Connection refused")));
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

bool answers(const std::string& host, std::uint16_t port) {
    return static_cast<bool>(connect_tcp(host, port, Deadline::after(10s)).fd);
}

TEST(Listen, OnAllAddressesOfANameAndNoOthers) {
    const bool allowed =
        in_own_network({.addresses = {"10.77.0.1", "10.78.0.1", "fd77::1"},
                        .hosts = "10.77.0.1 node7\nfd77::1 node7\n10.99.0.1 node7\n"},
                       [] {
                           const auto sockets = listen_tcp_all("node7", 0);
                           ASSERT_EQ(sockets.size(), 2U) << "10.99.0.1 is none of this host's";
                           const std::uint16_t port = local_port(sockets[0].get());
                           EXPECT_EQ(local_port(sockets[1].get()), port);
                           EXPECT_TRUE(answers("10.77.0.1", port));
                           EXPECT_TRUE(answers("fd77::1", port));
                           for (const char* other : {"10.78.0.1", "127.0.0.1", "::1"}) {
                               EXPECT_FALSE(answers(other, port)) << other;
                           }
                       });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(Listen, APortInUseAtOneAddressOfANameIsInUse) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "10.78.0.1"}, .hosts = "10.77.0.1 node7\n10.78.0.1 node7\n"},
        [] {
            for (const char* taken : {"10.77.0.1", "10.78.0.1"}) {
                const UniqueFd other = listen_tcp(taken, 0);
                const std::uint16_t port = local_port(other.get());
                try {
                    listen_tcp_all("node7", port);
                    ADD_FAILURE() << "bound a port twice";
                } catch (const ddp::SystemError& error) {
                    EXPECT_EQ(error.code(), EADDRINUSE);
                    EXPECT_THAT(error.what(),
                                AllOf(HasSubstr("node7:" + std::to_string(port)),
                                      HasSubstr("10.77.0.1"), HasSubstr("10.78.0.1")));
                }
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

// Of four ports in all, three are taken at the second address.
TEST(Listen, AFreePortIsFreeAtAllAddresses) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "10.78.0.1"}, .hosts = "10.77.0.1 node7\n10.78.0.1 node7\n"},
        [] {
            ASSERT_TRUE(ddp::testing::write_text("/proc/sys/net/ipv4/ip_local_port_range",
                                                 "40000 40003\n"));
            std::vector<UniqueFd> taken;
            for (const int port : {40000, 40002, 40003}) {
                taken.push_back(listen_tcp("10.78.0.1", static_cast<std::uint16_t>(port)));
            }
            const auto sockets = listen_tcp_all("node7", 0);
            ASSERT_EQ(sockets.size(), 2U);
            EXPECT_EQ(local_port(sockets[0].get()), 40001);
            EXPECT_EQ(local_port(sockets[1].get()), 40001);
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(Listen, OnANameOfAnotherHostIsAnErrorThatNamesItsAddress) {
    const bool allowed = in_own_network({.hosts = "10.99.0.1 node8\n"}, [] {
        for (const char* host : {"node8", "no-such-host", "10.99.0.1"}) {
            try {
                listen_tcp_all(host, 5000);
                ADD_FAILURE() << "listens at " << host;
            } catch (const ddp::SystemError& error) {
                EXPECT_EQ(error.code(), EADDRNOTAVAIL);
                EXPECT_THAT(error.what(), HasSubstr(host + std::string(":5000")));
                const bool says_which =
                    std::string(error.what()).find("which is 10.99.0.1 here") != std::string::npos;
                EXPECT_EQ(says_which, host == std::string("node8")) << error.what();
            }
        }
    });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(Listen, EverywhereIsBothFamilies) {
    const bool allowed = in_own_network({.addresses = {"10.77.0.1", "fd77::1"}}, [] {
        const UniqueFd listener = listen_tcp_everywhere(0);
        for (const char* host : {"127.0.0.1", "::1", "10.77.0.1", "fd77::1"}) {
            EXPECT_TRUE(answers(host, local_port(listener.get()))) << host;
        }
        try {
            listen_tcp_everywhere(local_port(listener.get()));
            ADD_FAILURE() << "bound a port twice";
        } catch (const ddp::SystemError& error) {
            EXPECT_EQ(error.code(), EADDRINUSE);
        }
    });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

}  // namespace
