// Addresses as text and bytes, and what a name stands for.
#include "base/net/address.hpp"

#include "support/own_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netdb.h>

#include <string>
#include <vector>

namespace {

using namespace ddp::base;
using ddp::testing::in_own_network;
using ::testing::ElementsAre;

SocketAddress address(const std::string& text) {
    const auto found = numeric_address(text);
    EXPECT_TRUE(found) << text;
    return found.value_or(SocketAddress{});
}

std::vector<std::string> hosts_of(const std::vector<SocketAddress>& addresses) {
    std::vector<std::string> hosts;
    for (const SocketAddress& one : addresses) hosts.push_back(one.host());
    return hosts;
}

TEST(Address, AnIpv6AddressBeforeAPortIsInBrackets) {
    for (const auto& [host, text] :
         std::vector<std::pair<std::string, std::string>>{{"10.0.0.1", "10.0.0.1:29500"},
                                                          {"node7", "node7:29500"},
                                                          {"::1", "[::1]:29500"},
                                                          {"fe80::1%eth0", "[fe80::1%eth0]:29500"},
                                                          {"[::1]", "[::1]:29500"}}) {
        EXPECT_EQ(host_and_port(host, 29500), text);
    }
}

TEST(Address, BracketsAroundAHostAreNotPartOfIt) {
    EXPECT_EQ(without_brackets("[fe80::1%eth0]"), "fe80::1%eth0");
    for (const char* other : {"::1", "node7", "", "[]", "[::1", "[::1]:5"}) {
        EXPECT_EQ(without_brackets(other), other);
    }
}

TEST(Address, IsReadFromDigitsAndWrittenAsUsual) {
    for (const auto& [given, host] :
         std::vector<std::pair<std::string, std::string>>{{"10.0.0.1", "10.0.0.1"},
                                                          {"0:0:0:0:0:0:0:1", "::1"},
                                                          {"FD00::2", "fd00::2"},
                                                          {"::ffff:10.0.0.1", "10.0.0.1"},
                                                          {"fe80::1%lo", "fe80::1%lo"}}) {
        EXPECT_EQ(address(given).host(), host);
    }
    EXPECT_EQ(numeric_address("::1", 7)->port(), 7);
    EXPECT_EQ(numeric_address("127.0.0.1", 7)->port(), 7);
    for (const char* name : {"localhost", "node7", "", "fe80::1%no-such-link", "10.0.0.1:5"}) {
        EXPECT_FALSE(numeric_address(name)) << name;
    }
}

TEST(Address, KnowsLoopbackAndLinkLocal) {
    for (const char* loopback :
         {"127.0.0.1", "127.0.1.1", "127.255.0.3", "::1", "::ffff:127.0.0.1"}) {
        EXPECT_TRUE(address(loopback).is_loopback()) << loopback;
    }
    for (const char* other : {"10.0.0.1", "128.0.0.1", "::", "0.0.0.0", "fe80::1", "fd00::1"}) {
        EXPECT_FALSE(address(other).is_loopback()) << other;
    }
    EXPECT_TRUE(address("fe80::1%lo").is_link_local());
    EXPECT_FALSE(address("fd00::1").is_link_local());
    EXPECT_FALSE(address("169.254.0.1").is_link_local());
}

TEST(Address, OfOneHostWhateverPortAndSpelling) {
    EXPECT_TRUE(address("::ffff:10.0.0.1").is_same_host(address("10.0.0.1")));
    EXPECT_TRUE(numeric_address("::1", 1)->is_same_host(*numeric_address("0::1", 2)));
    EXPECT_TRUE(address("fe80::1").is_same_host(address("fe80::1%lo")));
    EXPECT_FALSE(address("10.0.0.1").is_same_host(address("10.0.0.2")));
    EXPECT_FALSE(address("::1").is_same_host(address("127.0.0.1")));
}

TEST(Address, FamiliesAlternateBehindTheFirst) {
    const auto order = [](const std::vector<std::string>& given) {
        std::vector<SocketAddress> addresses;
        for (const std::string& one : given) addresses.push_back(address(one));
        return hosts_of(alternate_families(addresses));
    };
    EXPECT_THAT(order({"fd00::1", "fd00::2", "fd00::3", "10.0.0.1", "10.0.0.2"}),
                ElementsAre("fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2", "fd00::3"));
    EXPECT_THAT(order({"10.0.0.1", "10.0.0.2", "fd00::1"}),
                ElementsAre("10.0.0.1", "fd00::1", "10.0.0.2"));
    EXPECT_THAT(order({"10.0.0.2", "10.0.0.1"}), ElementsAre("10.0.0.2", "10.0.0.1"));
    EXPECT_THAT(order({}), ElementsAre());
}

TEST(Address, ANameHasEachOfItsAddressesOnceAndTheyAreLookedUpAnew) {
    const bool allowed =
        in_own_network({.hosts = "10.77.0.1 node7\n10.77.0.2 node7\n10.77.0.1 node7\n"}, [] {
            EXPECT_THAT(hosts_of(resolve("node7", 5).addresses),
                        ::testing::UnorderedElementsAre("10.77.0.1", "10.77.0.2"));
            EXPECT_EQ(resolve("node7", 5).addresses.front().port(), 5);
            ASSERT_TRUE(ddp::testing::write_text("/etc/hosts", "10.77.0.3 node7\n"));
            EXPECT_THAT(hosts_of(resolve("node7", 5).addresses), ElementsAre("10.77.0.3"));
        });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces";
}

TEST(Address, ANameThatStandsForNothingSaysSoInTheResolversWords) {
    const bool allowed = in_own_network({}, [] {
        const Resolved found = resolve("no-such-host", 5);
        EXPECT_TRUE(found.addresses.empty());
        EXPECT_EQ(found.trouble, ::gai_strerror(EAI_NONAME));
    });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces";
}

}  // namespace
