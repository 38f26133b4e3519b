// Who vouches for a client of the store: which members are asked, what their answers come to, and
// what a member says of a socket of its host.
#include "launcher/hosts/vouchers.hpp"

#include "base/net/socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <tuple>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;

base::SocketAddress at(const std::string& host, std::uint16_t port = 0) {
    return *base::numeric_address(host, port);
}

RankTable table_of(std::vector<HostSize> hosts) { return make_rank_table(hosts); }

Vouchers of_three_hosts() {
    Vouchers vouchers;
    vouchers.begin_round(table_of({{.member = 1, .host = "h1"},  // alone, it needs no address
                                   {.member = 2, .host = "h2", .address = "10.77.0.2"},
                                   {.member = 3, .host = "h2", .address = "10.77.0.2"},
                                   {.member = 4, .host = "h3", .address = "fe80::3%lo"}}));
    return vouchers;
}

TEST(Vouchers, AreTheMembersAtTheClientsAddress) {
    Vouchers vouchers = of_three_hosts();
    EXPECT_THAT(vouchers.ask(1, at("10.77.0.2", 4711)), ElementsAre(2, 3));
    EXPECT_THAT(vouchers.ask(2, at("::ffff:10.77.0.2", 4711)), ElementsAre(2, 3));
    EXPECT_THAT(vouchers.ask(3, at("fe80::3")), ElementsAre(4));
    EXPECT_THAT(vouchers.ask(4, at("10.77.0.1")), ElementsAre());
    EXPECT_EQ(vouchers.answered(4, 1, true), std::nullopt);
}

TEST(Vouchers, OneYesIsEnoughAndAllHaveToSayNo) {
    Vouchers vouchers = of_three_hosts();
    vouchers.ask(1, at("10.77.0.2"));
    EXPECT_EQ(vouchers.answered(1, 2, true), true);
    EXPECT_EQ(vouchers.answered(1, 3, false), std::nullopt) << "it is decided";
    vouchers.ask(2, at("10.77.0.2"));
    EXPECT_EQ(vouchers.answered(2, 3, false), std::nullopt);
    EXPECT_EQ(vouchers.answered(2, 3, false), std::nullopt) << "it has said so already";
    EXPECT_EQ(vouchers.answered(2, 2, false), false);
    vouchers.ask(3, at("10.77.0.2"));
    EXPECT_EQ(vouchers.answered(3, 3, false), std::nullopt);
    EXPECT_EQ(vouchers.answered(3, 2, true), true);
}

TEST(Vouchers, NobodyElsesAnswerCounts) {
    Vouchers vouchers = of_three_hosts();
    vouchers.ask(1, at("10.77.0.2"));
    EXPECT_EQ(vouchers.answered(1, 4, true), std::nullopt) << "of another host";
    EXPECT_EQ(vouchers.answered(5, 2, true), std::nullopt) << "no such question";
    vouchers.begin_round(table_of({{.member = 2, .host = "h2", .address = "10.77.0.2"}}));
    EXPECT_EQ(vouchers.answered(1, 2, true), std::nullopt) << "of an earlier round";
}

// A connection, both of whose ends are here.
struct Pair {
    base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    base::UniqueFd client;
    base::UniqueFd server;

    Pair() {
        const auto address = base::local_address(listener.get());
        client.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::connect(client.get(), address.generic(), address.size), 0);
        server.reset(::accept(listener.get(), nullptr, nullptr));
    }
    VouchMessage question() const {
        return {1, base::local_address(client.get()), base::local_address(server.get())};
    }
};

TEST(Voucher, KnowsTheSocketsOfItsUser) {
    Voucher voucher;
    Pair pair;
    const VouchMessage question = pair.question();
    EXPECT_TRUE(voucher.vouches_for(question));
    VouchMessage other = question;
    other.there.set_port(static_cast<std::uint16_t>(question.there.port() ^ 1));
    EXPECT_FALSE(voucher.vouches_for(other)) << "no such socket";
    other = question;
    other.here.set_port(static_cast<std::uint16_t>(question.here.port() ^ 1));
    EXPECT_FALSE(voucher.vouches_for(other)) << "it is connected to another place";
    EXPECT_FALSE(voucher.vouches_for({1, question.here, {}})) << "a listener";
    pair.client.reset();
    EXPECT_FALSE(voucher.vouches_for(question)) << "nobody has it any more";
}

TEST(Voucher, VouchesForNoOtherUser) {
    if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
    const Pair pair;  // the other's is made below
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    base::UniqueFd ours(ends[0]);
    base::UniqueFd theirs(ends[1]);
    const auto address = base::local_address(pair.listener.get());
    // A process of its own session and no descendant: its parent is gone.
    const pid_t child = ::fork();
    if (child == 0) {
        if (::fork() != 0) ::_exit(0);
        ours.reset();
        const bool other = ::setresuid(65533, 65533, 65533) == 0;
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        ::connect(fd, address.generic(), address.size);
        const auto own = base::local_address(fd);
        char byte = 0;
        if (other && ::write(theirs.get(), &own, sizeof own) == sizeof own) {
            std::ignore = ::read(theirs.get(), &byte, 1);  // until the test ends
        }
        ::_exit(0);
    }
    theirs.reset();
    ::waitpid(child, nullptr, 0);
    base::SocketAddress own;
    ASSERT_EQ(::read(ours.get(), &own, sizeof own), static_cast<ssize_t>(sizeof own));
    Voucher voucher;
    EXPECT_FALSE(voucher.vouches_for({1, own, address}));
}

}  // namespace
}  // namespace ddp::launcher
