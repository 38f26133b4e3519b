// Addresses of a job on one host: how they are written, and what is this host.
#include "launcher/options/endpoint.hpp"

#include "launcher/parse_words.hpp"

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

TEST(Endpoint, HasAHostAndMaybeAPort) {
    EXPECT_EQ(endpoint_of("node7").host, "node7");
    EXPECT_EQ(endpoint_of("node7").port, std::nullopt);
    EXPECT_EQ(endpoint_of("node7:29500").host, "node7");
    EXPECT_EQ(endpoint_of("node7:29500").port, 29500);
    EXPECT_EQ(endpoint_of("[fe80::1]:0").host, "fe80::1");
    EXPECT_EQ(endpoint_of("[fe80::1]:0").port, 0);
    EXPECT_EQ(endpoint_of("[::1]").port, std::nullopt);
    for (const char* bad :
         {":1", "a:", "a:b", "a:65536", "a:-1", "[::1", "[::1]1", "::1", "[]:1"}) {
        EXPECT_THROW(endpoint_of(bad), UsageError) << bad;
    }
}

TEST(Endpoint, ThisHostGoesByManyNames) {
    for (const std::string& name : {std::string("localhost"), std::string("127.0.0.1"),
                                    std::string("127.0.1.1"), std::string("::1"), own_name()}) {
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

}  // namespace
}  // namespace ddp::launcher
