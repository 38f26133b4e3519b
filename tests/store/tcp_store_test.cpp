// The TCP store's client: connecting, its words when something is wrong, and servers that die or
// stay silent.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <netinet/in.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <future>
#include <thread>

#include "scripted_server.hpp"
#include "store/client/job_store.hpp"
#include "store/client/tcp_connection.hpp"
#include "store/patient.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using testing::HasSubstr;
using testing::StartsWith;

std::string address(std::uint16_t port) { return "127.0.0.1:" + std::to_string(port); }

// Bound but not listening: connections are refused, and nobody else gets the port.
struct ClosedPort {
    ClosedPort() {
        sockaddr_in any{};
        any.sin_family = AF_INET;
        any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    }
    base::UniqueFd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    std::uint16_t port() const { return base::local_port(fd.get()); }
    base::UniqueFd accept() const {
        EXPECT_TRUE(base::wait_readable(fd.get(), base::Deadline::after(patient)));
        return base::UniqueFd{::accept4(fd.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }
};

TEST(TcpStore, SaysWhoDidNotAnswerAndForHowLong) {
    const ClosedPort closed;
    const auto start = std::chrono::steady_clock::now();
    try {
        connect_tcp_store({"127.0.0.1", closed.port()}, 200ms);
        FAIL() << "connected to a port that does not listen";
    } catch (const TimeoutError& error) {
        EXPECT_EQ(error.what(), "store: no answer from " + address(closed.port()) +
                                    " after 200 ms (Connection refused); is rank 0 running?");
    }
    const auto took = std::chrono::steady_clock::now() - start;
    EXPECT_GE(took, 200ms);
    EXPECT_LT(took, 10s);
}

TEST(TcpStore, TriesAgainUntilAServerAnswers) {
    const ClosedPort port;
    auto keys = std::async(std::launch::async, [&] {
        return connect_tcp_store({"127.0.0.1", port.port()}, patient)->num_keys();
    });
    ASSERT_EQ(::listen(port.fd.get(), 8), 0);
    port.accept().reset();  // the first connection ends without an answer
    ScriptedServer::Peer peer{port.accept()};
    peer.greet();
    peer.count_in();
    peer.expect(u8(7));
    peer.send(i64(123));
    EXPECT_EQ(keys.get(), 123);
}

TEST(TcpStore, SaysAtOnceThatSomethingElseListens) {
    ScriptedServer http{[](ScriptedServer& server) {
        auto peer = server.accept();
        peer.send("HTTP/1.1 400 Bad Request\r\n\r\n");
        peer.receive(10);
    }};
    try {
        connect_tcp_store({"127.0.0.1", http.port()}, patient);
        FAIL() << "took HTTP for a store";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EPROTO);
        EXPECT_THAT(error.what(), HasSubstr(address(http.port()) + " is neither a ddp nor"));
    }
}

TEST(TcpStore, ATimeoutNamesKeysTimeAndServer) {
    const TcpStoreServer server{{"127.0.0.1", 0}};
    const auto store = connect_tcp_store({"127.0.0.1", server.port()}, patient);
    try {
        store->wait({"a", "b"}, 50ms);
        FAIL() << "the keys are not there";
    } catch (const TimeoutError& error) {
        EXPECT_EQ(error.what(),
                  "store: keys [a, b] were not set within 50 ms at " + address(server.port()));
    }
}

// The launcher's store: a round trip to join, and one a key; no init/.
TEST(TcpStore, AsksTheJobsStoreWithTheHelloAndGetsAKeyInOneExchange) {
    const std::string check = u8(5) + u64(1) + str("/k");
    const std::string get = u8(3) + str("/k");
    const store::RankClaim rank_1 =
        store::claim_of_this_process({.job = "j", .world_size = 2, .rank = 1});
    ScriptedServer jobs{[&](ScriptedServer& server) {
        auto peer = server.accept();
        peer.expect(hello + u8(13));
        const std::string nonce = peer.receive(4);
        peer.expect(u8(65) + str(store::encode_claim(rank_1)));
        peer.send(nonce + u8(0) + str(""));
        peer.expect(check + get);
        peer.send(u8(0) + str("v"));
        peer.expect(check + get);
        peer.send(u8(1) + str(""));  // not there
        auto waiting = server.accept();
        waiting.expect(hello + u8(13));
        const std::string another = waiting.receive(4);
        waiting.expect(u8(65) + str(store::encode_claim(rank_1)) + u8(6) + u64(1) + str("/k"));
        waiting.send(another + u8(0) + str("") + u8(0));
        peer.expect(get);
        peer.send(str("w"));
    }};
    const auto store =
        store::connect_job_store({"127.0.0.1", jobs.port()}, rank_1, store::ServedBy::launcher,
                                 store::StorePeers::same_user, patient)
            .store;
    EXPECT_EQ(store->get("k"), "v");
    EXPECT_EQ(store->get("k"), "w");
}

TEST(TcpStore, LongKeysAndListsAreCutInMessages) {
    const TcpStoreServer server{{"127.0.0.1", 0}};
    const auto store = connect_tcp_store({"127.0.0.1", server.port()}, patient);
    StoreKeys keys;
    for (int i = 0; i < 40; ++i) keys.push_back(std::to_string(i) + std::string(5000, '\x01'));
    try {
        store->wait(keys, 1ms);
        FAIL() << "the keys are not there";
    } catch (const TimeoutError& error) {
        EXPECT_THAT(error.what(), HasSubstr("and 30 more]"));
        EXPECT_THAT(error.what(), HasSubstr("0??????"));
        EXPECT_LT(std::string{error.what()}.size(), 1500U);
    }
}

TEST(TcpStore, WritesASlashBeforeKeysAndCountsItselfOnce) {
    const TcpStoreServer server{{"127.0.0.1", 0}};
    const MasterAddress where{"127.0.0.1", server.port()};
    const auto store = connect_tcp_store(where, patient);
    store->set("k", "v");
    EXPECT_THROW(store->wait({"absent"}, 10ms), TimeoutError);  // opens a connection more
    connect_tcp_store(where, patient);
    const auto deadline = base::Deadline::after(patient);
    store::TcpConnection raw{where, deadline, store::TcpConnection::Refused::try_again};
    raw.send({.op = store::Opcode::multi_get, .keys = {"/k", "init/"}}, deadline, "test");
    EXPECT_EQ(raw.receive_value(deadline, "test"), "v");
    EXPECT_EQ(raw.receive_value(deadline, "test"), "2");
    EXPECT_EQ(store->num_keys(), 2);
}

TEST(TcpStore, AServerThatDiesDuringAWaitEndsIt) {
    ScriptedServer dying{[](ScriptedServer& server) {
        auto main = server.accept();
        main.greet();
        main.count_in();
        main.expect(u8(5) + u64(1) + str("/k"));
        main.send(u8(1));
        auto waiting = server.accept();
        waiting.greet();
        waiting.expect(u8(6) + u64(1) + str("/k"));
    }};
    const auto store = connect_tcp_store({"127.0.0.1", dying.port()}, patient);
    try {
        store->get("k");
        FAIL() << "nobody set the key";
    } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), StartsWith("store: lost the connection to " +
                                             address(dying.port()) + " (waiting for keys [k])"));
    }
    dying.join();
    EXPECT_THROW(store->check({"k"}), SystemError);
}

TEST(TcpStore, AServerThatIsGoneBeforeTheWaitEndsIt) {
    ScriptedServer dying{[](ScriptedServer& server) {
        auto main = server.accept();
        main.greet();
        main.count_in();
        main.expect(u8(5) + u64(1) + str("/k"));
        server.stop_listening();
        main.send(u8(1));
        main.expect_end();
    }};
    auto store = connect_tcp_store({"127.0.0.1", dying.port()}, patient);
    try {
        store->get("k");
        FAIL() << "nobody set the key";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ECONNREFUSED);
        EXPECT_THAT(error.what(), HasSubstr(address(dying.port()) + " is gone"));
    }
    store.reset();
}

TEST(TcpStore, AServerDestroyedAtAnyMomentEndsAllCalls) {
    for (int round = 0; round < 20; ++round) {
        std::optional<TcpStoreServer> server{TcpStoreServer{{"127.0.0.1", 0}}};
        const auto store = connect_tcp_store({"127.0.0.1", server->port()}, patient);
        auto waiting = std::async(std::launch::async, [&] { store->get("never"); });
        auto adding = std::async(std::launch::async, [&] {
            while (true) store->add("n", 1);
        });
        for (int i = 0; i < round; ++i) store->check({"never"});
        server.reset();
        EXPECT_THROW(waiting.get(), SystemError);
        EXPECT_THROW(adding.get(), SystemError);
    }
}

TEST(TcpStore, AWaitThatIsAnsweredWhileItIsCancelledHasSucceeded) {
    ScriptedServer late{[](ScriptedServer& server) {
        auto main = server.accept();
        main.greet();
        main.count_in();
        main.expect(u8(5) + u64(1) + str("/k"));
        main.send(u8(1));
        auto waiting = server.accept();
        waiting.greet();
        waiting.expect(u8(6) + u64(1) + str("/k") + u8(12));
        waiting.send(u8(0) + u8(1));
        // The connection is in step and serves the next wait.
        main.expect(u8(5) + u64(1) + str("/l"));
        main.send(u8(1));
        waiting.expect(u8(6) + u64(1) + str("/l"));
        waiting.send(u8(0));
        main.expect_end();
    }};
    auto store = connect_tcp_store({"127.0.0.1", late.port()}, patient);
    store->wait({"k"}, 20ms);
    store->wait({"l"}, patient);
    store.reset();
    late.join();
}

TEST(TcpStore, AServerThatAnswersNothingIsATimeoutAndThenALostConnection) {
    ScriptedServer mute{[](ScriptedServer& server) {
        auto peer = server.accept();
        peer.greet();
        peer.count_in();
        peer.expect(u8(7));
        peer.expect_end();
    }};
    const auto store = connect_tcp_store({"127.0.0.1", mute.port()}, 200ms);
    try {
        store->num_keys();
        FAIL() << "no answer was sent";
    } catch (const TimeoutError& error) {
        EXPECT_EQ(error.what(), "store: no answer from " + address(mute.port()) +
                                    " after 200 ms (num_keys); is rank 0 running?");
    }
    try {
        store->add("k", 1);
        FAIL() << "the connection is out of step";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), ENOTCONN);
        EXPECT_THAT(error.what(), HasSubstr(address(mute.port())));
    }
}

TEST(TcpStore, AForkedChildIsToldToConnectAnew) {
    const TcpStoreServer server{{"127.0.0.1", 0}};
    const auto store = connect_tcp_store({"127.0.0.1", server.port()}, patient);
    const auto child = ::fork();
    if (child == 0) {
        try {
            store->set("from", "child");
        } catch (const UsageError&) {
            ::_exit(42);
        }
        ::_exit(1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 42);
    EXPECT_FALSE(store->check({"from"}));
}

TEST(TcpStore, SixtyFourClientsMeet) {
    constexpr int world = 64;
    const TcpStoreServer server{{"127.0.0.1", 0}};
    StoreKeys all;
    for (int rank = 0; rank < world; ++rank) all.push_back("rank" + std::to_string(rank));
    std::vector<std::future<std::size_t>> ranks;
    for (const auto& own : all) {
        ranks.push_back(std::async(std::launch::async, [&] {
            const auto store = connect_tcp_store({"127.0.0.1", server.port()}, patient);
            store->add("joined", 1);
            store->set(own, std::string(100, 'x'));
            std::size_t bytes = 0;
            for (const auto& value : store->multi_get(all)) bytes += value.size();
            return bytes;
        }));
    }
    for (auto& rank : ranks) EXPECT_EQ(rank.get(), 6400U);
    const auto store = connect_tcp_store({"127.0.0.1", server.port()}, patient);
    EXPECT_EQ(store->get("joined"), "64");
}

}  // namespace
}  // namespace ddp
