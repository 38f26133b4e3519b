// Where a store listens for a MASTER_ADDR, and how its clients find it: names of several addresses,
// Debian's 127.0.1.1, hosts that come up later. Each in a network of the test's own.
#include "store/server/listener.hpp"

#include "base/net/socket.hpp"
#include "raw_client.hpp"
#include "store/client/job_store.hpp"
#include "store/patient.hpp"
#include "support/own_network.hpp"

#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <string>

namespace ddp::store {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using ddp::testing::in_own_network;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* no_namespaces = "this host allows no namespaces, or has no IPv6";

bool answers(const std::string& host, std::uint16_t port) {
    return static_cast<bool>(base::connect_tcp(host, port, base::Deadline::after(patient)).fd);
}

std::shared_ptr<Store> join(const MasterAddress& where, int rank) {
    const RankClaim claim = claim_of_this_process({.job = "j", .world_size = 2, .rank = rank});
    return connect_job_store(where, claim, ServedBy::rank_0, StorePeers::same_user, patient).store;
}

JobStoreServer serve(const MasterAddress& master, bool on_one_host) {
    const RankClaim claim = claim_of_this_process({.job = "j", .world_size = 2, .rank = 0});
    return {master, claim, on_one_host, StorePeers::same_user};
}

TEST(MasterListener, LocalhostHasSeveralNames) {
    for (const char* name : {"localhost", "LocalHost.", "localhost6", "ip6-loopback", "a.localhost",
                             "localhost.localdomain"}) {
        EXPECT_TRUE(is_name_of_loopback(name)) << name;
    }
    for (const char* name : {"node7", "mylocalhost", "localhost.example", "", "."}) {
        EXPECT_FALSE(is_name_of_loopback(name)) << name;
    }
}

TEST(MasterListener, RankZeroServesAtAllAddressesOfTheMastersName) {
    const bool allowed =
        in_own_network({.addresses = {"10.77.0.1", "10.78.0.1", "fd77::1"},
                        .hosts = "10.77.0.1 node7\nfd77::1 node7\n"},
                       [] {
                           const MasterAddress master{"node7", 29500};
                           ::testing::internal::CaptureStderr();
                           const JobStoreServer server = serve(master, false);
                           EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
                           const auto zero = join(master, 0);
                           join({"fd77::1", 29500}, 1)->set("k", "v");
                           EXPECT_EQ(zero->get("k"), "v");
                           EXPECT_TRUE(answers("10.77.0.1", 29500));
                           EXPECT_FALSE(answers("10.78.0.1", 29500)) << "none of the name's";
                           EXPECT_FALSE(answers("127.0.0.1", 29500)) << "none of the name's";
                       });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(MasterListener, AMasterWhoseNameMeansLoopbackHereServesAtAllAddressesAndSaysSo) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "fd77::1"}, .hosts = "127.0.1.1 node7.example node7\n"}, [] {
            const MasterAddress master{"node7", 29500};
            ::testing::internal::CaptureStderr();
            const JobStoreServer server = serve(master, false);
            EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                        AllOf(HasSubstr("W "), HasSubstr("node7 is 127.0.1.1 on this host"),
                              HasSubstr("/etc/hosts"), HasSubstr("port 29500"),
                              HasSubstr("other hosts may connect"), HasSubstr("MASTER_ADDR")));
            const auto zero = join(master, 0);
            for (const char* host : {"127.0.1.1", "10.77.0.1", "fd77::1"}) {
                join({host, 29500}, 1)->set(host, "v");
                EXPECT_EQ(zero->get(host), "v");
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(MasterListener, NothingElseServesAtMoreThanItsMastersAddresses) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1"},
         .hosts = "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 node7\n127.0.1.1 node8\n"
                  "10.77.0.1 node8\n"},
        [] {
            struct Case {
                const char* host;
                bool on_one_host;
                bool is_heard_beyond;
            };
            for (const auto& [host, on_one_host, is_heard_beyond] :
                 {Case{"node7", true, false}, Case{"localhost", false, false},
                  Case{"127.0.1.1", false, false}, Case{"::1", false, false},
                  Case{"node8", false, true}}) {
                SCOPED_TRACE(host);
                ::testing::internal::CaptureStderr();
                const JobStoreServer server = serve({host, 29500}, on_one_host);
                EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
                EXPECT_TRUE(answers(host, 29500));
                EXPECT_EQ(answers("10.77.0.1", 29500), is_heard_beyond);
                EXPECT_FALSE(answers("127.0.0.9", 29500));
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(MasterListener, APortInUseAtOneAddressNamesTheJobThatHasIt) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "10.78.0.1"}, .hosts = "10.77.0.1 node7\n10.78.0.1 node7\n"},
        [] {
            const JobStoreServer first = serve({"10.78.0.1", 29500}, false);
            try {
                const JobStoreServer second(
                    {"node7", 29500}, claim_of_this_process({.job = "other", .world_size = 2}),
                    false, StorePeers::same_user);
                ADD_FAILURE() << "bound a port twice";
            } catch (const UsageError& error) {
                EXPECT_THAT(error.what(), AllOf(HasSubstr("port 29500 of node7 is in use"),
                                                HasSubstr("job j"), HasSubstr("job other")));
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(TcpStoreServer, AFreePortIsTheSameAtAllAddresses) {
    const bool allowed = in_own_network(
        {.addresses = {"10.77.0.1", "fd77::1"}, .hosts = "10.77.0.1 node7\nfd77::1 node7\n"}, [] {
            const TcpStoreServer server{{"node7", 0}};
            const auto one = connect_tcp_store({"10.77.0.1", server.port()}, patient);
            const auto two = connect_tcp_store({"fd77::1", server.port()}, patient);
            one->set("k", "v");
            EXPECT_EQ(two->get("k"), "v");
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(TcpStore, AHostThatCannotBeReachedYetIsTriedUntilItCan) {
    const bool allowed = in_own_network({.hosts = "10.77.0.1 node7\n"}, [] {
        auto key = std::async(std::launch::async, [] {
            return connect_tcp_store({"node7", 29500}, patient)->get("k");
        });
        EXPECT_EQ(key.wait_for(100ms), std::future_status::timeout);
        ASSERT_TRUE(ddp::testing::add_address("10.77.0.1"));
        const TcpStoreServer server{{"node7", 29500}};
        connect_tcp_store({"node7", 29500}, patient)->set("k", "v");
        EXPECT_EQ(key.get(), "v");
    });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(TcpStore, ANameIsLookedUpAnewAtEachTry) {
    const bool allowed =
        in_own_network({.addresses = {"10.77.0.1", "10.78.0.1"}, .hosts = "10.77.0.1 node7\n"}, [] {
            auto key = std::async(std::launch::async, [] {
                return connect_tcp_store({"node7", 29500}, patient)->get("k");
            });
            EXPECT_EQ(key.wait_for(50ms), std::future_status::timeout);
            ASSERT_TRUE(ddp::testing::write_text("/etc/hosts", "10.78.0.1 node7\n"));
            const TcpStoreServer server{{"10.78.0.1", 29500}};
            connect_tcp_store({"10.78.0.1", 29500}, patient)->set("k", "v");
            EXPECT_EQ(key.get(), "v");
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(TcpStore, SaysWhyANameOrAnAddressCouldNotBeReached) {
    const bool allowed =
        in_own_network({.addresses = {"10.77.0.1"}, .hosts = "10.77.0.1 node7\n"}, [] {
            for (const auto& [master, where, why] :
                 std::vector<std::tuple<MasterAddress, std::string, std::string>>{
                     {{"no-such-host", 5},
                      "no-such-host:5",
                      base::resolve("no-such-host", 5).trouble},
                     {{"node7", 5}, "node7:5", "10.77.0.1: Connection refused"},
                     {{"::1", 5}, "[::1]:5", "(Connection refused)"},
                     {{"192.0.2.1", 5}, "192.0.2.1:5", "(Network is unreachable)"}}) {
                SCOPED_TRACE(where);
                const auto start = std::chrono::steady_clock::now();
                try {
                    connect_tcp_store(master, 100ms);
                    ADD_FAILURE() << "connected";
                } catch (const TimeoutError& error) {
                    EXPECT_THAT(error.what(),
                                AllOf(HasSubstr("no answer from " + where + " after 100 ms"),
                                      HasSubstr(why)));
                }
                EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
            }
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

// Whose exit status is what `body` returns.
template <class Body>
pid_t in_child(Body body) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::_exit(body());
}

// As the kernel shows an IPv4 client of a socket for both families.
TEST(StoreServer, ChecksWhoConnectsAtEachAddressOfTheHost) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const bool allowed =
        in_own_network({.addresses = {"10.77.0.1"}, .hosts = "127.0.1.1 node7\n"}, [] {
            const pid_t server = in_child([] {
                const JobStoreServer serving = serve({"node7", 29500}, false);
                return ::pause();
            });
            for (const char* host : {"127.0.1.1", "10.77.0.1", "::1"}) {
                SCOPED_TRACE(host);
                join({host, 29500}, 1);
                const pid_t stranger = in_child([&] {
                    if (::setresuid(65533, 65533, 65533) != 0) return 1;
                    try {
                        connect_tcp_store({host, 29500}, 300ms);
                        return 2;
                    } catch (const Error&) {
                        return 0;
                    }
                });
                int status = 0;
                ASSERT_EQ(::waitpid(stranger, &status, 0), stranger);
                EXPECT_EQ(status, 0) << "a stranger was served";
            }
            ::kill(server, SIGKILL);
            ::waitpid(server, nullptr, 0);
        });
    if (!allowed) GTEST_SKIP() << no_namespaces;
}

TEST(StoreServer, ANewAttemptBeginsAtEachListener) {
    std::vector<base::UniqueFd> sockets;
    sockets.push_back(base::listen_tcp("127.0.0.1", 0));
    const std::uint16_t port = base::local_port(sockets.front().get());
    sockets.push_back(base::listen_tcp("127.0.0.2", port));
    StoreServer server(std::move(sockets));
    EXPECT_EQ(server.port(), port);
    for (const char* host : {"127.0.0.1", "127.0.0.2"}) {
        const auto late = base::connect_tcp(host, port, base::Deadline::after(patient)).fd;
        ASSERT_TRUE(late);
        server.start_attempt(1);  // not accepted yet
        char byte = 0;
        ASSERT_TRUE(base::wait_readable(late.get(), base::Deadline::after(patient))) << host;
        EXPECT_LE(::recv(late.get(), &byte, 1, 0), 0) << host;
    }
}

}  // namespace
}  // namespace ddp::store
