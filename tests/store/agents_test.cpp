// Other hosts' launchers at a store's port: which connections the server hands over, when, and what
// an attempt at the job leaves alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;
using testing::ElementsAre;

const std::string set_k = u8(1) + str("k") + str("v");
const std::string hello_of_agent = "\xDD hello, round 7";

// A server that takes agents, and those that it took.
class Agents : public testing::Test {
protected:
    struct Agent {
        base::UniqueFd connection;
        std::string first_bytes;
    };

    Agents()
        : server({.is_local_too = true, .take_agent = [this](auto connection, auto bytes) {
                      taken.push_back({std::move(connection), std::move(bytes)});
                      if (then) then();
                  }}) {}

    // Connected, and nothing more.
    base::UniqueFd pending(const std::string& bytes = "") const {
        auto fd = RawClient::connect(server.server);
        EXPECT_EQ(::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
        return fd;
    }
    std::string number_of_keys() {
        RawClient client{server};
        client.send(hello + u8(7));
        return client.receive(8);
    }

    std::vector<Agent> taken;
    std::function<void()> then;
    DrivenServer server;
};

std::string read_all_of(const base::UniqueFd& fd) {
    char bytes[256];
    const auto count = ::recv(fd.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    return count > 0 ? std::string(bytes, static_cast<std::size_t>(count)) : "";
}

TEST_F(Agents, AreHandedOverWithWhatTheyHaveSaid) {
    RawClient agent{server};
    agent.send(hello_of_agent);
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].first_bytes, hello_of_agent);
    EXPECT_NE(::fcntl(taken[0].connection.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(taken[0].connection.get(), F_GETFD) & FD_CLOEXEC, 0);
    ASSERT_EQ(::send(taken[0].connection.get(), "welcome", 7, MSG_NOSIGNAL), 7);
    EXPECT_EQ(agent.receive(7), "welcome");
}

TEST_F(Agents, AreKnownByTheFirstByteAloneAndNotReadAnyMore) {
    RawClient agent{server};
    agent.send(hello_of_agent.substr(0, 1));
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].first_bytes, hello_of_agent.substr(0, 1));
    agent.send(hello_of_agent.substr(1));
    pollfd ready{server.server.fd(), POLLIN, 0};
    EXPECT_EQ(::poll(&ready, 1, 0), 0) << "the server still looks at it";
    EXPECT_EQ(taken.size(), 1U);
    EXPECT_EQ(read_all_of(taken[0].connection), hello_of_agent.substr(1));
}

TEST_F(Agents, AreHandedOverAlsoWhenTheyHaveLeftAlready) {
    auto fd = pending(hello_of_agent);
    fd.reset();
    server.settle();
    // Who closed before it was accepted is nobody's by then.
    EXPECT_LE(taken.size(), 1U);
    RawClient agent{server};
    taken.clear();
    ASSERT_EQ(::send(agent.fd(), "\xDD", 1, MSG_NOSIGNAL), 1);
    agent.close();
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].first_bytes, "\xDD");
    char byte = 0;
    EXPECT_EQ(::recv(taken[0].connection.get(), &byte, 1, MSG_DONTWAIT), 0);
}

TEST_F(Agents, ThatHaveSaidNothingAreNone) {
    RawClient silent{server};
    EXPECT_TRUE(taken.empty());
    EXPECT_TRUE(silent.still_open());
    silent.send(hello_of_agent);
    EXPECT_EQ(taken.size(), 1U);
}

TEST_F(Agents, AreNotWhoSaysTheirByteLater) {
    RawClient client{server};
    client.send(hello + u8(0xDD));
    EXPECT_TRUE(client.closed_by_server());
    EXPECT_TRUE(taken.empty());
}

TEST_F(Agents, CountNeitherAsSilentNorAsStrangers) {
    RawClient silent{server};
    std::vector<base::UniqueFd> crowd;  // no more may be silent
    for (int i = 0; i < 63; ++i) {
        crowd.push_back(pending());
        server.settle();
    }
    std::vector<base::UniqueFd> agents;
    for (int i = 0; i < 250; ++i) {
        agents.push_back(pending(hello_of_agent));
        if (i % 50 == 49) server.settle();
    }
    server.settle();
    EXPECT_EQ(taken.size(), 250U) << "the listener rests";
    EXPECT_TRUE(silent.still_open());
}

TEST_F(Agents, OutliveTheAttemptsAtTheJob) {
    RawClient agent{server};
    agent.send(hello_of_agent);
    server.server.start_attempt(1);
    ASSERT_EQ(taken.size(), 1U);
    ASSERT_EQ(::send(taken[0].connection.get(), "w", 1, MSG_NOSIGNAL), 1);
    EXPECT_EQ(agent.receive(1), "w");
}

TEST_F(Agents, ThatAreConnectingAreNotLostToANewAttempt) {
    RawClient accepted{server};
    auto spoke = pending(hello_of_agent);
    auto silent = pending();
    server.server.start_attempt(1);
    EXPECT_TRUE(taken.empty()) << "only run_ready() hands over";
    server.settle();
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].first_bytes, hello_of_agent);
    ASSERT_EQ(::send(silent.get(), "\xDD silent", 8, MSG_NOSIGNAL), 8);
    server.settle();
    accepted.send("\xDD accepted");
    ASSERT_EQ(taken.size(), 3U);
    EXPECT_EQ(taken[1].first_bytes, "\xDD silent");
    EXPECT_EQ(taken[2].first_bytes, "\xDD accepted");
}

TEST_F(Agents, ThatHaveSpokenUnheardAreNotLostToANewAttempt) {
    RawClient accepted{server};
    ASSERT_EQ(::send(accepted.fd(), "\xDD", 1, MSG_NOSIGNAL), 1);
    server.server.start_attempt(1);
    server.settle();
    EXPECT_EQ(taken.size(), 1U);
}

TEST_F(Agents, LeaveNothingOfAnAttemptBehind) {
    RawClient spoken{server};
    spoken.send(hello + set_k);
    RawClient unheard{server};
    RawClient silent{server};
    ASSERT_GT(::send(unheard.fd(), (hello + set_k).data(), (hello + set_k).size(), MSG_NOSIGNAL),
              0);
    auto old = pending(hello + set_k);
    auto old_and_silent = pending();
    server.server.start_attempt(1);
    // Others come before the server has looked at the old ones.
    auto fresh = pending(hello + u8(1) + str("new") + str("v"));
    server.settle();
    EXPECT_TRUE(spoken.closed_by_server());
    EXPECT_TRUE(unheard.closed_by_server());
    RawClient waited{server, std::move(old)};
    EXPECT_TRUE(waited.closed_by_server());
    EXPECT_TRUE(silent.still_open());
    silent.send(hello + set_k);
    EXPECT_TRUE(silent.closed_by_server());
    RawClient late{server, std::move(old_and_silent)};
    EXPECT_TRUE(late.still_open());
    late.send(hello + set_k);
    EXPECT_TRUE(late.closed_by_server());
    RawClient next{server, std::move(fresh)};
    next.send(u8(7));
    EXPECT_EQ(next.receive(8), i64(1)) << "of this attempt, and nothing but its own key is there";
    EXPECT_EQ(number_of_keys(), i64(1));
}

TEST_F(Agents, DoNotKeepConnectionsByNameAlive) {
    RawClient accepted{server, By::name};
    const auto waits = RawClient::connect(server.server, By::name);
    server.server.start_attempt(1);
    EXPECT_TRUE(accepted.closed_now());
    char byte = 0;
    EXPECT_EQ(::recv(waits.get(), &byte, 1, MSG_DONTWAIT), 0);
    RawClient fresh{server, By::name};
    fresh.send(hello + u8(7));
    EXPECT_EQ(fresh.receive(8), i64(0));
    RawClient agent{server, By::name};
    agent.send("\xDD");
    EXPECT_EQ(taken.size(), 1U);
}

// Its partner, an old client's second connection, was excused.
TEST_F(Agents, LeaveSilentConnectionsWithoutARightToTheirSilence) {
    RawClient old{server};
    RawClient second{server};
    old.send(u8(6));
    EXPECT_EQ(old.receive(8), i64(0));
    server.server.start_attempt(1);
    std::vector<base::UniqueFd> crowd;
    for (int i = 0; i < 63; ++i) {
        crowd.push_back(pending());
        server.settle();
    }
    EXPECT_TRUE(second.still_open());
    crowd.push_back(pending());
    EXPECT_TRUE(second.closed_now());
}

TEST_F(Agents, MayHaveTheServerCalledWhenTheyAreTaken) {
    RawClient client{server};
    client.send(hello + set_k);
    then = [this] {
        server.server.serve_hosts({"10.0.0.2"});
        server.server.start_attempt(1);
        server.server.run_ready();
        taken[0].connection.reset();
    };
    const auto first = pending("\xDD 1");
    RawClient second{server, pending("\xDD 2")};
    server.settle();
    EXPECT_EQ(taken.size(), 2U);
    EXPECT_TRUE(client.closed_by_server());
    EXPECT_EQ(number_of_keys(), i64(0));
}

// All in one turn of the listener, so that they are in hand together.
TEST_F(Agents, AreAllTakenAlsoWhenOneIsNot) {
    then = [this] {
        if (taken.size() == 1) throw std::runtime_error("no room");
    };
    const auto first = pending("\xDD 1");
    const auto second = pending("\xDD 2");
    const auto third = pending("\xDD 3");
    EXPECT_THROW(server.server.run_ready(), std::runtime_error);
    EXPECT_EQ(taken.size(), 1U);
    for (int i = 0; i < 10 && taken.size() < 3; ++i) server.pump(1000);
    std::vector<std::string> said;
    for (const auto& agent : taken) said.push_back(agent.first_bytes);
    EXPECT_THAT(said, ElementsAre("\xDD 1", "\xDD 2", "\xDD 3"));
}

TEST(StoreServer, ClosesAgentsWhereNoneAreTaken) {
    DrivenServer server;
    RawClient agent{server};
    agent.send(hello_of_agent);
    EXPECT_TRUE(agent.closed_by_server());
}

}  // namespace
}  // namespace ddp::store
