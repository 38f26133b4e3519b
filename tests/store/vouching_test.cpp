// Clients on other hosts that need a voucher: who is asked about, in which order, what is read
// before, and what an answer does.
#include "store/admission/vouching.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <chrono>
#include <string>
#include <tuple>
#include <vector>

#include "base/net/socket.hpp"
#include "other_host.hpp"
#include "raw_client.hpp"
#include "support/own_network.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using ::testing::ElementsAre;

const Vouching::Clock::time_point start{};
const std::string get_5 = hello + u8(13) + u32(5);  // PING, which is answered with its number

void add(Vouching& vouching, ClientId id, const std::string& address,
         Vouching::Clock::time_point now = start) {
    vouching.add({.client = id, .there = {}, .here = {}}, address, now);
}

std::vector<ClientId> questions(Vouching& vouching) {
    std::vector<ClientId> all;
    while (const auto question = vouching.take_question(start)) all.push_back(question->client);
    return all;
}

TEST(Vouching, EachIsAskedAboutOnce) {
    Vouching vouching;
    for (const ClientId id : {1, 2, 3}) add(vouching, id, "a");
    EXPECT_THAT(questions(vouching), ElementsAre(1, 2, 3));
    EXPECT_THAT(questions(vouching), ElementsAre());
    vouching.remove(1, start);
    vouching.remove(4, start);  // it does not wait
    EXPECT_EQ(vouching.first_to_go(), 2U);
}

TEST(Vouching, OfAnAddressManyWaitForTheirTurn) {
    Vouching vouching;
    const ClientId most = Vouching::most_asked;
    for (ClientId id = 1; id <= most + 3; ++id) add(vouching, id, "a");
    add(vouching, 900, "b");
    EXPECT_EQ(questions(vouching).size(), most + 1) << "those of other hosts do not wait for them";
    vouching.remove(most + 1, start);  // has gone before its turn
    vouching.remove(7, start);
    EXPECT_THAT(questions(vouching), ElementsAre(most + 2));
    vouching.remove(900, start);
    EXPECT_THAT(questions(vouching), ElementsAre());
    vouching.remove(1, start);
    vouching.remove(2, start);
    EXPECT_THAT(questions(vouching), ElementsAre(most + 3));
}

TEST(Vouching, AnAnswerTakesNoLongerThanFiveSeconds) {
    Vouching vouching;
    EXPECT_FALSE(vouching.wakes_at());
    add(vouching, 1, "a");
    add(vouching, 2, "a", start + 1s);
    EXPECT_EQ(vouching.wakes_at(), start + 5s);
    std::ignore = vouching.take_question(start + 4500ms);
    EXPECT_THAT(vouching.overdue(start + 4999ms), ElementsAre());
    EXPECT_THAT(vouching.overdue(start + 5s), ElementsAre(1));
    vouching.remove(1, start + 5s);
    EXPECT_EQ(vouching.wakes_at(), start + 6s);
    for (ClientId id = 3; id <= Vouching::most_asked + 2; ++id) add(vouching, id, "a", start + 5s);
    std::ignore = vouching.take_question(start + 6s);
    EXPECT_THAT(vouching.overdue(start + 6s), ElementsAre(2)) << "who has no turn may wait longer";
    vouching.remove(2, start + 60s);
    std::ignore = vouching.take_question(start + 64s);
    EXPECT_EQ(vouching.overdue(start + 64s).size(), Vouching::most_asked - 1);
    std::ignore = vouching.take_question(start + 65s);
    EXPECT_EQ(vouching.overdue(start + 65s).size(), Vouching::most_asked);
    vouching.clear();
    EXPECT_FALSE(vouching.wakes_at());
    EXPECT_FALSE(vouching.first_to_go());
}

// Its owner was stopped: the answers wait for it.
TEST(Vouching, NobodyIsOverdueBecauseNobodyHasLooked) {
    Vouching vouching;
    add(vouching, 1, "a");
    EXPECT_THAT(questions(vouching), ElementsAre(1));
    EXPECT_THAT(vouching.overdue(start + 8s), ElementsAre());
    EXPECT_EQ(vouching.wakes_at(), start + 9s);
    std::ignore = vouching.take_question(start + 8s);
    EXPECT_THAT(vouching.overdue(start + 8999ms), ElementsAre());
    std::ignore = vouching.take_question(start + 9s);
    EXPECT_THAT(vouching.overdue(start + 9s), ElementsAre(1));
}

TEST(Vouching, WhereThereIsNoRoomACrowdsLastOneGoes) {
    Vouching vouching;
    add(vouching, 1, "a");
    const ClientId most = Vouching::most_asked;
    for (ClientId id = 2; id <= most + 3; ++id) add(vouching, id, "b");
    EXPECT_EQ(vouching.first_to_go(), most + 3);
    vouching.remove(most + 3, start);
    EXPECT_EQ(vouching.first_to_go(), most + 2);
    vouching.remove(most + 2, start);
    EXPECT_EQ(vouching.first_to_go(), 2U) << "all have their turn";
    vouching.clear();
    EXPECT_FALSE(vouching.first_to_go());
}

// The servers ---------------------------------------------------------------------------------

struct VouchingServer : DrivenServer {
    explicit VouchingServer(const OtherHost& from)
        : DrivenServer(base::listen_tcp_everywhere(0),
                       {.take_agent = [this](auto, auto bytes) { agents.push_back(bytes); },
                        .needs_vouchers = true}),
          other(from) {
        server.serve_hosts({"10.88.0.2"});
    }
    base::UniqueFd connect(const std::string& from = "10.88.0.2") const {
        return other.connect(from, "10.88.0.1", server.port());
    }
    std::vector<ClientQuestion> questions() {
        settle();
        std::vector<ClientQuestion> all;
        while (auto question = server.take_question()) all.push_back(*std::move(question));
        return all;
    }

    const OtherHost& other;
    std::vector<std::string> agents{};
};

template <class Body>
void with_server(Body body) {
    const bool allowed = ddp::testing::in_own_network({}, [&] {
        const OtherHost other({"10.88.0.1"}, {"10.88.0.2", "10.88.0.3"});
        if (!other.is_there()) ::_exit(77);
        VouchingServer server(other);
        body(server);
    });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces, or has no veth";
}

TEST(NeedsVouchers, AClientIsServedOnceSomebodyVouchesForIt) {
    with_server([](VouchingServer& server) {
        RawClient client(server, server.connect());
        EXPECT_TRUE(server.questions().empty()) << "it has said nothing yet, and may be an agent";
        client.send(get_5);
        const auto asked = server.questions();
        ASSERT_EQ(asked.size(), 1U);
        EXPECT_EQ(asked[0].there.host(), "10.88.0.2");
        EXPECT_EQ(asked[0].there.port(), base::local_port(client.fd()));
        EXPECT_EQ(asked[0].here.host(), "10.88.0.1");
        EXPECT_EQ(asked[0].here.port(), server.server.port());
        EXPECT_TRUE(client.still_open()) << "and has no answer";
        client.send(u8(13) + u32(6));
        EXPECT_TRUE(server.questions().empty());
        server.server.vouch(asked[0].client, true);
        EXPECT_EQ(client.receive(8), u32(5) + u32(6));
    });
}

TEST(NeedsVouchers, ADeniedClientIsClosedAndNothingOfItIsDone) {
    with_server([](VouchingServer& server) {
        RawClient client(server, server.connect());
        client.send(hello + u8(1) + str("/k") + str("v"));
        const auto asked = server.questions();
        ASSERT_EQ(asked.size(), 1U);
        server.server.vouch(asked[0].client, false);
        // With bytes unread the kernel resets the connection.
        char byte = 0;
        EXPECT_LE(::recv(client.fd(), &byte, 1, MSG_DONTWAIT), 0);
        EXPECT_NE(errno, EAGAIN);
        server.server.vouch(asked[0].client, true);  // too late
        RawClient here(server);
        here.send(hello + u8(7));
        EXPECT_EQ(here.receive(8), u64(0)) << "no key was set";
    });
}

TEST(NeedsVouchers, NothingOfAClientIsReadBefore) {
    with_server([](VouchingServer& server) {
        RawClient client(server, server.connect());
        const std::string much(std::size_t{1} << 20, '\x01');
        std::size_t sent = 0;
        ssize_t more = 0;
        for (int pause = 0; pause < 20; ++pause) {  // the buffers of both kernels grow for a while
            while ((more = ::send(client.fd(), much.data(), much.size(), MSG_DONTWAIT)) > 0) {
                sent += static_cast<std::size_t>(more);
                ASSERT_LT(sent, std::size_t{64} << 20) << "somebody reads it";
            }
            server.pump(5);
        }
        EXPECT_EQ(errno, EAGAIN);
        ASSERT_EQ(server.questions().size(), 1U);
        pollfd ready{server.server.fd(), POLLIN, 0};
        EXPECT_EQ(::poll(&ready, 1, 20), 0) << "the server spins";
    });
}

TEST(NeedsVouchers, AgentsAndOtherHostsAreNotAskedAbout) {
    with_server([](VouchingServer& server) {
        RawClient agent(server, server.connect());
        agent.send("\xDD hello");
        EXPECT_THAT(server.agents, ElementsAre("\xDD hello"));
        RawClient stranger(server, server.connect("10.88.0.3"));
        stranger.send(get_5);
        EXPECT_TRUE(server.questions().empty());
        EXPECT_TRUE(stranger.closed_now() || errno == ECONNRESET);
        RawClient here(server);
        here.send(get_5);
        EXPECT_EQ(here.receive(4), u32(5)) << "of this host the kernel tells";
    });
}

TEST(NeedsVouchers, WhoWaitsDoesNotLiveOnInTheNextAttempt) {
    with_server([](VouchingServer& server) {
        RawClient client(server, server.connect());
        client.send(get_5);
        const auto asked = server.questions();
        ASSERT_EQ(asked.size(), 1U);
        server.server.start_attempt(1);
        server.server.serve_hosts({"10.88.0.2"});
        server.server.vouch(asked[0].client, true);
        char byte = 0;
        EXPECT_LE(::recv(client.fd(), &byte, 1, MSG_DONTWAIT), 0);
        EXPECT_NE(errno, EAGAIN);
        RawClient next(server, server.connect());
        next.send(get_5);
        EXPECT_EQ(server.questions().size(), 1U);
    });
}

TEST(NeedsVouchers, WhoLeavesMakesRoomForOthers) {
    with_server([](VouchingServer& server) {
        std::vector<RawClient> crowd;
        for (std::size_t i = 0; i < Vouching::most_asked + 2; ++i) {
            crowd.emplace_back(server, server.connect());
            crowd.back().send(get_5);
        }
        EXPECT_EQ(server.questions().size(), Vouching::most_asked);
        linger at_once{.l_onoff = 1, .l_linger = 0};
        ::setsockopt(crowd.front().fd(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        crowd.front().close();
        const auto next = server.questions();
        ASSERT_EQ(next.size(), 1U);
        server.server.vouch(next[0].client, true);
        EXPECT_EQ(crowd[Vouching::most_asked].receive(4), u32(5));
        EXPECT_EQ(server.questions().size(), 1U);
    });
}

TEST(NeedsVouchers, WithoutAnAnswerAClientIsClosed) {
    with_server([](VouchingServer& server) {
        RawClient client(server, server.connect());
        client.send(get_5);
        ASSERT_EQ(server.questions().size(), 1U);
        const auto asked = std::chrono::steady_clock::now();
        const auto deadline = base::Deadline::after(20s);
        char byte = 0;
        while (::recv(client.fd(), &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN &&
               !deadline.passed()) {
            server.pump(100);
            EXPECT_TRUE(server.questions().empty()) << "it is asked about once";
        }
        EXPECT_FALSE(deadline.passed());
        EXPECT_GE(std::chrono::steady_clock::now() - asked, 4s);
    });
}

}  // namespace
}  // namespace ddp::store
