// The server under strain: strangers that say nothing, clients that do not read, no descriptors
// left.
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <vector>

#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

constexpr std::size_t most_silent = 64;

bool is_open(RawClient& client) {
    client.send(hello + u8(13) + u32(5));
    return client.receive(4) == u32(5);
}

TEST(StoreServer, ClosesTheOldestOfTooManySilentConnections) {
    DrivenServer server;
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < most_silent + 3; ++i) silent.emplace_back(server);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(silent[i].closed_by_server()) << i;
    EXPECT_TRUE(is_open(silent[3]));
    EXPECT_TRUE(is_open(silent.back()));
}

TEST(StoreServer, SilentConnectionsOfTheOldAttemptDoNotCountInTheNew) {
    DrivenServer server;
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < most_silent; ++i) silent.emplace_back(server);
    server.server.start_attempt(1);
    RawClient first{server};
    for (std::size_t i = 1; i < most_silent; ++i) silent.emplace_back(server);
    EXPECT_TRUE(is_open(first));
}

TEST(StoreServer, AClientThatHasSpokenIsNeverTakenForASilentOne) {
    DrivenServer server;
    RawClient spoken{server};
    ASSERT_TRUE(is_open(spoken));
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < 2 * most_silent; ++i) silent.emplace_back(server);
    spoken.send(u8(7));
    EXPECT_EQ(spoken.receive(8), i64(0));
}

TEST(StoreServer, AHalfToldHelloIsStillSilence) {
    DrivenServer server;
    RawClient half{server};
    half.send(hello.substr(0, 4));
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < most_silent; ++i) silent.emplace_back(server);
    EXPECT_TRUE(half.closed_by_server());
}

TEST(StoreServer, KeepsTheSilentSecondConnectionsOfOldClients) {
    DrivenServer server;
    std::vector<RawClient> speaking;
    std::vector<RawClient> silent;
    for (std::size_t i = 0; i < most_silent + 10; ++i) {
        speaking.emplace_back(server);
        speaking.back().send(u8(3) + str("init/") + i64(1));
        ASSERT_EQ(speaking.back().receive(8).size(), 8U);
        silent.emplace_back(server);
    }
    std::vector<RawClient> strangers;
    for (std::size_t i = 0; i < most_silent; ++i) strangers.emplace_back(server);
    for (auto& client : silent) {
        client.send(u8(7) + str("k"));
        ASSERT_EQ(client.receive(1), u8(3));
    }
}

// Connections that wait to be accepted, while the process may open only `spare` descriptors more.
class NoDescriptorLeft : public testing::Test {
protected:
    void connect_arrivals(int count) {
        for (int i = 0; i < count; ++i) {
            int error = 0;
            const auto deadline = base::Deadline::after(std::chrono::seconds{10});
            arrivals.push_back(
                base::try_connect_tcp("127.0.0.1", server.server.port(), deadline, error));
            ASSERT_TRUE(arrivals.back());
        }
    }
    void run_server_with_descriptors_for(int spare) {
        rlimit before{};
        ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
        rlimit tight = before;
        const int lowest_free = base::UniqueFd{::dup(server.server.fd())}.get();
        tight.rlim_cur = static_cast<rlim_t>(lowest_free + spare);
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &tight), 0);
        int calls = 0;
        pollfd ready{server.server.fd(), POLLIN, 0};
        for (; ::poll(&ready, 1, 0) > 0 && calls < 1000; ++calls) server.server.run_ready();
        ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
        EXPECT_LT(calls, 1000) << "it spins";
    }
    static bool closed_by_server(const base::UniqueFd& fd) {
        char byte = 0;
        return ::recv(fd.get(), &byte, 1, MSG_DONTWAIT) == 0;
    }

    DrivenServer server;
    std::vector<base::UniqueFd> arrivals;
};

TEST_F(NoDescriptorLeft, NewConnectionsAreTurnedAwayAndOthersServed) {
    RawClient old{server};
    ASSERT_TRUE(is_open(old));
    connect_arrivals(20);
    run_server_with_descriptors_for(0);
    for (const auto& arrival : arrivals) EXPECT_TRUE(closed_by_server(arrival));
    old.send(u8(7));
    EXPECT_EQ(old.receive(8), i64(0));
    RawClient fresh{server};
    EXPECT_TRUE(is_open(fresh));
}

TEST_F(NoDescriptorLeft, TheOldestSilentConnectionMakesRoom) {
    connect_arrivals(20);
    run_server_with_descriptors_for(2);
    EXPECT_TRUE(closed_by_server(arrivals[0]));
    EXPECT_TRUE(closed_by_server(arrivals[17]));
    EXPECT_FALSE(closed_by_server(arrivals[18]));
    EXPECT_FALSE(closed_by_server(arrivals[19]));
}

// Replies of 8 MiB each to a client that reads none of them: its later requests wait, others do
// not.
TEST(StoreServer, AClientThatDoesNotReadDelaysOnlyItself) {
    DrivenServer server;
    RawClient other{server};
    const std::string value(8 << 20, 'v');
    other.send(hello + nothing + u8(1) + str("big") + str(value));
    RawClient slow{server};
    std::string requests;
    for (int i = 0; i < 20; ++i) requests += u8(3) + str("big");
    slow.send(hello + requests + u8(1) + str("last") + str(""));
    other.send(u8(5) + u64(1) + str("last"));
    EXPECT_EQ(other.receive(1), u8(1));  // not yet executed
    for (int i = 0; i < 20; ++i) ASSERT_EQ(slow.receive(8 + value.size()), str(value)) << i;
    other.send(u8(6) + u64(1) + str("last"));
    EXPECT_EQ(other.receive(1), u8(0));
}

// Requests come faster than they are carried out, and their replies are read: nobody else waits
// for their end.
TEST(StoreServer, AClientThatAsksWithoutEndDelaysOnlyItself) {
    DrivenServer server{{.limits = {.longest_turn = std::chrono::microseconds{0}}}};
    RawClient other{server};
    other.send(hello + nothing);
    RawClient busy{server};
    constexpr std::size_t requests = 2000;
    const std::string bytes = hello + std::string(requests, '\7');
    ASSERT_EQ(::send(busy.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    const std::string ping = u8(13) + u32(5);
    ASSERT_EQ(::send(other.fd(), ping.data(), ping.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(ping.size()));
    server.pump(1000);
    server.pump(1000);
    char reply[4];
    EXPECT_EQ(::recv(other.fd(), reply, sizeof reply, MSG_DONTWAIT), 4);
    std::string replies(8 * requests, '\0');
    const auto got = ::recv(busy.fd(), replies.data(), replies.size(), MSG_DONTWAIT);
    EXPECT_GT(got, 0);
    EXPECT_LT(got, static_cast<ssize_t>(replies.size())) << "its turn was over before";
    EXPECT_EQ(busy.receive(replies.size() - static_cast<std::size_t>(got)).size() +
                  static_cast<std::size_t>(got),
              replies.size());
}

TEST(StoreServer, AClientThatHasAskedForMuchAsItIsAcceptedIsServedToTheEnd) {
    DrivenServer server{{.limits = {.longest_turn = std::chrono::microseconds{0}}}};
    int error = 0;
    const base::UniqueFd client = base::try_connect_tcp(
        "127.0.0.1", server.server.port(), base::Deadline::after(std::chrono::seconds{10}), error);
    const std::string bytes = hello + u8(1) + str("k") + str("v") + u8(3) + str("k");
    ASSERT_EQ(::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    server.settle();
    std::string reply(9, '\0');
    EXPECT_EQ(::recv(client.get(), reply.data(), reply.size(), MSG_DONTWAIT), 9);
    EXPECT_EQ(reply, str("v"));
}

TEST(StoreServer, AWatcherThatNeverReadsIsClosed) {
    DrivenServer server;
    RawClient watcher{server};
    watcher.send(u8(7) + str("k"));
    RawClient setter{server};
    setter.send(nothing);
    for (int i = 0; i < 20; ++i) {
        setter.send(u8(0) + str("k") + str(std::string(8 << 20, static_cast<char>('a' + i))));
    }
    EXPECT_TRUE(watcher.closed_by_server());
    setter.send(u8(8) + str("k"));
    EXPECT_EQ(setter.receive(8), i64(1));
}

TEST(StoreServer, AHalfClosedClientStillGetsItsReplies) {
    DrivenServer server;
    RawClient client{server};
    const std::string value(8 << 20, 'v');
    client.send(hello + nothing + u8(1) + str("big") + str(value) + u8(3) + str("big") + u8(7));
    client.half_close();
    std::string rest;
    EXPECT_TRUE(client.closed_by_server(&rest));
    EXPECT_EQ(rest.size(), (str(value) + i64(1)).size());
    EXPECT_TRUE(rest == str(value) + i64(1));
}

TEST(StoreServer, AFullStoreTakesNoMore) {
    DrivenServer server;
    RawClient filler{server};
    filler.send(hello + nothing);
    const std::string value(8 << 20, 'v');
    for (int i = 0; i < 27; ++i) filler.send(u8(1) + str("k" + std::to_string(i)) + str(value));
    filler.send(u8(7));
    EXPECT_EQ(filler.receive(8), i64(27));
    filler.send(u8(14) + str("q") + str(value));
    EXPECT_TRUE(filler.closed_by_server());
    RawClient fresh{server};
    fresh.send(hello + nothing + u8(8) + str("k0") + u8(14) + str("q") + str(value) + u8(16) +
               str("q"));
    EXPECT_EQ(fresh.receive(16), i64(1) + i64(1));
}

std::size_t resident_bytes() {
    std::ifstream statm{"/proc/self/statm"};
    std::size_t pages = 0;
    std::size_t resident = 0;
    statm >> pages >> resident;
    return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

TEST(StoreServer, AnnouncedLengthsCostNoMemory) {
    DrivenServer server;
    const auto before = resident_bytes();
    std::vector<RawClient> clients;
    for (int i = 0; i < 60; ++i) {
        clients.emplace_back(server);
        // Each is within the limits, and none of it ever comes.
        clients.back().send(hello + nothing + u8(11) + u64(131072) + str("k") + u64(8 << 20));
    }
    const auto after = resident_bytes();
    EXPECT_LT(after, before + (std::size_t{16} << 20));
}

TEST(StoreServer, AThousandStrangersCostNeitherDescriptorsNorMemory) {
    DrivenServer server;
    RawClient old{server};
    ASSERT_TRUE(is_open(old));
    const auto before = resident_bytes();
    for (int i = 0; i < 1000; ++i) {
        RawClient stranger{server};
        stranger.send(i % 2 == 0 ? std::string{"GET / HTTP/1.0\r\n\r\n"}
                                 : u8(3) + u64(~std::uint64_t{0}));
        ASSERT_TRUE(stranger.closed_by_server());
    }
    EXPECT_LT(resident_bytes(), before + (std::size_t{16} << 20));
    old.send(u8(7));
    EXPECT_EQ(old.receive(8), i64(0));
}

// The server's end of a client's connection, in this process.
int other_end_of(const RawClient& client) {
    constexpr int most = 1024;
    for (int fd = 0; fd < most; ++fd) {
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
            peer.sin_family == AF_INET && ntohs(peer.sin_port) == base::local_port(client.fd())) {
            return fd;
        }
    }
    return -1;
}

// A host that vanishes says nothing.
TEST(StoreServer, AsksSilentClientsWhetherTheyAreThere) {
    DrivenServer server;
    const RawClient client{server};
    const int fd = other_end_of(client);
    ASSERT_GE(fd, 0);
    int keep_alive = 0;
    int user_timeout_ms = 0;
    socklen_t size = sizeof(int);
    ASSERT_EQ(::getsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &keep_alive, &size), 0);
    ASSERT_EQ(::getsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout_ms, &size), 0);
    EXPECT_EQ(keep_alive, 1);
    EXPECT_EQ(user_timeout_ms, 60'000);
}

}  // namespace
}  // namespace ddp::store
