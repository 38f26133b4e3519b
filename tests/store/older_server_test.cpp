// The TCP store's client and a server of PyTorch before 2.2, byte for byte: it closes on the hello,
// and its numbering ends with DELETE_KEY.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>

#include "scripted_server.hpp"
#include "store/patient.hpp"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using testing::ElementsAre;
using testing::HasSubstr;

const std::string no_keys = u8(4) + u64(0);  // CHECK in the older numbering
const std::string ready = u8(0);
const std::string not_ready = u8(1);

ScriptedServer::Peer accept_older(ScriptedServer& server) {
    auto peer = server.accept();
    peer.expect(no_keys);
    peer.send(ready);
    return peer;
}

ScriptedServer::Peer accept_first(ScriptedServer& server) {
    for (int i = 0; i < 2; ++i) {
        auto refusing = server.accept();
        refusing.expect(hello + u8(13));
        const std::string nonce = refusing.receive(4);
        // With what came before, the length of a key: no machine has 2^63 bytes.
        EXPECT_NE(nonce[2] & 0x80, 0);
    }
    auto peer = accept_older(server);
    peer.expect(u8(3) + str("init/") + i64(1));
    peer.send(i64(1));
    return peer;
}

TEST(TcpStoreOfAnOlderServer, SpeaksItsNumbering) {
    ScriptedServer older{[](ScriptedServer& server) {
        auto peer = accept_first(server);
        peer.expect(u8(0) + str("/k") + str("v"));  // set
        peer.expect(u8(4) + u64(1) + str("/k"));    // get
        peer.send(ready);
        peer.expect(u8(2) + str("/k"));
        peer.send(str("v"));
        peer.expect(u8(3) + str("/n") + i64(-2));
        peer.send(i64(-2));
        peer.expect(u8(1) + str("/k") + str("v") + str("w"));
        peer.send(str("w"));
        peer.expect(u8(6));
        peer.send(i64(3));
        peer.expect(u8(8) + str("/k"));
        peer.send(i64(1));
        peer.expect_end();
    }};
    auto store = connect_tcp_store({"127.0.0.1", older.port()}, patient);
    store->set("k", "v");
    EXPECT_EQ(store->get("k"), "v");
    EXPECT_EQ(store->add("n", -2), -2);
    EXPECT_EQ(store->compare_set("k", "v", "w"), "w");
    EXPECT_EQ(store->num_keys(), 3);
    EXPECT_TRUE(store->delete_key("k"));
    store.reset();
    older.join();
}

TEST(TcpStoreOfAnOlderServer, AsksOneByOneForWhatIsNotThereForSeveral) {
    ScriptedServer older{[](ScriptedServer& server) {
        auto peer = accept_first(server);
        peer.expect(u8(0) + str("/a") + str("1") + u8(0) + str("/b") + str("2"));
        peer.expect(u8(4) + u64(2) + str("/a") + str("/b"));
        peer.send(ready);
        peer.expect(u8(2) + str("/a"));
        peer.send(str("1"));
        peer.expect(u8(2) + str("/b"));
        peer.send(str("2"));
        peer.expect_end();
    }};
    auto store = connect_tcp_store({"127.0.0.1", older.port()}, patient);
    store->multi_set({"a", "b"}, {"1", "2"});
    EXPECT_THAT(store->multi_get({"a", "b"}), ElementsAre("1", "2"));
    try {
        store->append("k", "v");
        FAIL() << "there is no such operation";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EOPNOTSUPP);
        EXPECT_THAT(error.what(), HasSubstr("older than 2.2"));
    }
    store.reset();
    older.join();
}

TEST(TcpStoreOfAnOlderServer, AWaitThatTakesTooLongEndsWithItsConnection) {
    ScriptedServer older{[](ScriptedServer& server) {
        auto peer = accept_first(server);
        for (int i = 0; i < 2; ++i) {
            peer.expect(u8(4) + u64(1) + str("/k"));
            peer.send(not_ready);
            auto waiting = accept_older(server);  // at once: the numbering is known
            waiting.expect(u8(5) + u64(1) + str("/k"));
            if (i == 0) {
                waiting.expect_end();
                peer.expect(u8(4) + u64(1) + str("/k"));  // what is missing, for the message
                peer.send(not_ready);
            } else {
                waiting.send(u8(0));
                waiting.expect_end();  // kept for another wait until the client goes
            }
        }
    }};
    auto store = connect_tcp_store({"127.0.0.1", older.port()}, patient);
    EXPECT_THROW(store->wait({"k"}, 20ms), TimeoutError);
    store->wait({"k"}, patient);
    store.reset();
    older.join();
}

}  // namespace
}  // namespace ddp
