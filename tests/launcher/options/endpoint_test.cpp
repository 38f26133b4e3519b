// Addresses of a job on one host: how they are written, and what is this host.
#include "launcher/options/endpoint.hpp"

#include "launcher/parse_words.hpp"
#include "support/own_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

namespace ddp::launcher {
namespace {

using testing::error_of;
using ::testing::HasSubstr;
using testing::parse;

std::string own_name() {
    std::array<char, 256> name{};
    EXPECT_EQ(::gethostname(name.data(), name.size() - 1), 0);
    return name.data();
}

Endpoint endpoint_of(const std::string& text) { return parse_endpoint({"--rdzv-endpoint", text}); }

TEST(MetricsAddress, IsAPortOfLoopbackUnlessItSaysOtherwise) {
    const auto of = [](const std::string& text) {
        const MetricsAddress address = parse_metrics_address({"--metrics", text});
        return address.host + " " + std::to_string(address.port) + " " + address.path;
    };
    EXPECT_EQ(of("9400"), "127.0.0.1 9400 ");
    EXPECT_EQ(of(":9400"), "127.0.0.1 9400 ");
    EXPECT_EQ(of("0.0.0.0:0"), "0.0.0.0 0 ");
    EXPECT_EQ(of("[::1]:9400"), "::1 9400 ");
    EXPECT_EQ(of("unix:/run/a:1"), " 0 /run/a:1");
}

TEST(Endpoint, HasAHostAndMaybeAPort) {
    EXPECT_EQ(endpoint_of("node7").host, "node7");
    EXPECT_EQ(endpoint_of("node7").port, std::nullopt);
    EXPECT_EQ(endpoint_of("node7:29500").host, "node7");
    EXPECT_EQ(endpoint_of("node7:29500").port, 29500);
    EXPECT_EQ(endpoint_of("[fe80::1]:0").host, "fe80::1");
    EXPECT_EQ(endpoint_of("[fe80::1]:0").port, 0);
    EXPECT_EQ(endpoint_of("[::1]").port, std::nullopt);
    EXPECT_EQ(endpoint_of("[fe80::1%eth0]:29500").host, "fe80::1%eth0");
    EXPECT_EQ(endpoint_of("[fe80::1%eth0]:29500").port, 29500);
    for (const char* bad :
         {":1", "a:", "a:b", "a:65536", "a:-1", "[::1", "[::1]1", "::1", "[]:1"}) {
        EXPECT_THROW(endpoint_of(bad), UsageError) << bad;
    }
}

TEST(Endpoint, ThisHostGoesByManyNames) {
    for (const std::string& name :
         {std::string("localhost"), std::string("127.0.0.1"), std::string("127.0.1.1"),
          std::string("::1"), std::string("0:0:0:0:0:0:0:1"), std::string("::ffff:127.0.0.1"),
          own_name()}) {
        EXPECT_TRUE(is_this_host(name)) << name;
    }
    // What Kubernetes gives the first pod of a job.
    EXPECT_TRUE(is_this_host(own_name() + ".job.namespace.svc"));
    EXPECT_FALSE(is_this_host("192.0.2.1"));
    EXPECT_FALSE(is_this_host("elsewhere.example"));
    EXPECT_FALSE(is_this_host(""));
}

TEST(Endpoint, TakesThePlaceOfTheMastersAddress) {
    const Options fixed = parse({"--rdzv-endpoint=localhost:2000", "--master-port=3000", "x"});
    EXPECT_EQ(fixed.rendezvous.master_addr, "127.0.0.1");
    EXPECT_EQ(fixed.rendezvous.master_port, 2000);
    EXPECT_EQ(
        parse({"--rdzv-backend=c10d", "--rdzv-endpoint=localhost", "x"}).rendezvous.master_port,
        29400);
    EXPECT_EQ(parse({"--rdzv-backend=c10d", "--rdzv-endpoint=" + own_name() + ":0", "x"})
                  .rendezvous.master_addr,
              "127.0.0.1");
    EXPECT_EQ(parse({"--standalone", "--rdzv-endpoint=192.0.2.1:5", "x"}).rendezvous.master_port,
              0);
}

TEST(Endpoint, TheOwnNameAsMasterMeansTheLoopbackStore) {
    EXPECT_EQ(parse({"--master-addr=" + own_name(), "x"}).rendezvous.master_addr, "127.0.0.1");
    EXPECT_EQ(
        parse({"--agent-store=off", "--master-addr=" + own_name(), "x"}).rendezvous.master_addr,
        own_name());
    EXPECT_THAT(error_of({"x"}, {{"PET_MASTER_ADDR", "192.0.2.1"}}), HasSubstr("192.0.2.1"));
}

TEST(Endpoint, AMastersIpv6AddressMayBeInBrackets) {
    for (const char* host : {"::1", "[::1]"}) {
        EXPECT_EQ(parse({"--agent-store=off", std::string("--master-addr=") + host, "x"})
                      .rendezvous.master_addr,
                  "::1");
    }
}

// Each address that an interface has, also one that has a scope.
TEST(Endpoint, AnAddressOfAnInterfaceIsThisHosts) {
    const bool allowed =
        ddp::testing::in_own_network({.addresses = {"10.77.0.1", "fe80::77", "fd77::1"}}, [] {
            for (const char* own : {"10.77.0.1", "fe80::77", "fe80::77%lo", "fd77::1", "FD77::1",
                                    "fd77:0::0:1", "::ffff:10.77.0.1"}) {
                EXPECT_TRUE(is_this_host(own)) << own;
            }
            for (const char* other : {"10.77.0.2", "fd77::2", "fe80::78%lo"}) {
                EXPECT_FALSE(is_this_host(other)) << other;
            }
        });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces, or has no IPv6";
}

}  // namespace
}  // namespace ddp::launcher
