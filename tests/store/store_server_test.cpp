// The server, bytes in and bytes out: every operation of both numberings over a real connection,
// cut at every byte.
#include "store/server/store_server.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

enum class Numbering { modern, legacy };

struct Exchange {
    std::string name;
    Numbering numbering;
    std::string before;  // sent first; its replies are not looked at
    std::string request;
    std::string reply;
};
void PrintTo(const Exchange& exchange, std::ostream* out) { *out << exchange.name; }

const std::string claim = "world_size 2\nrank 1\nprocess 7\npid 4711\n";
const std::string set_k = str("k") + str("v");

std::vector<Exchange> modern_exchanges() {
    const auto m = Numbering::modern;
    const auto set = u8(1) + set_k;
    return {
        {"set_has_no_reply", m, "", set, ""},
        {"set_then_get", m, set, u8(3) + str("k"), str("v")},
        {"compare_set_equal", m, set, u8(2) + str("k") + str("v") + str("w"), str("w")},
        {"compare_set_other", m, set, u8(2) + str("k") + str("x") + str("w"), str("v")},
        {"compare_set_new", m, "", u8(2) + str("k") + str("") + str("w"), str("w")},
        {"compare_set_lies", m, "", u8(2) + str("k") + str("x") + str("w"), str("x")},
        {"get_absent", m, "", u8(3) + str("k"), str("")},
        {"get_binary", m, u8(1) + str("k") + str(std::string{"\x00\xFF\x01", 3}), u8(3) + str("k"),
         str(std::string{"\x00\xFF\x01", 3})},
        {"add_new", m, "", u8(4) + str("k") + i64(7), i64(7)},
        {"add_again", m, u8(4) + str("k") + i64(7), u8(4) + str("k") + i64(-10), i64(-3)},
        {"add_keeps_decimal", m, u8(4) + str("k") + i64(-12), u8(3) + str("k"), str("-12")},
        {"check_ready", m, set, u8(5) + u64(1) + str("k"), u8(0)},
        {"check_not_ready", m, set, u8(5) + u64(2) + str("k") + str("l"), u8(1)},
        {"check_none", m, "", u8(5) + u64(0), u8(0)},
        {"wait_ready", m, set, u8(6) + u64(1) + str("k"), u8(0)},
        {"num_keys", m, set, u8(7), i64(1)},
        {"delete_present", m, set, u8(8) + str("k"), i64(1)},
        {"delete_absent", m, "", u8(8) + str("k"), i64(0)},
        {"append_has_no_reply", m, set, u8(9) + str("k") + str("w"), ""},
        {"append_then_get", m, set + u8(9) + str("k") + str("w"), u8(3) + str("k"), str("vw")},
        {"append_new", m, u8(9) + str("k") + str("w"), u8(3) + str("k"), str("w")},
        {"multi_get", m, set, u8(10) + u64(3) + str("k") + str("absent") + str("k"),
         str("v") + str("") + str("v")},
        {"multi_set_has_no_reply", m, "", u8(11) + u64(2) + set_k + str("l") + str("w"), ""},
        {"multi_set_then_get", m, u8(11) + u64(2) + set_k + str("l") + str("w"),
         u8(10) + u64(2) + str("l") + str("k"), str("w") + str("v")},
        {"cancel_wait_without_wait", m, "", u8(12), u8(1)},
        {"ping", m, "", u8(13) + u32(0xCAFE), u32(0xCAFE)},
        {"queue_push_has_no_reply", m, "", u8(14) + set_k, ""},
        {"queue_pop_empty", m, "", u8(15) + str("k"), i64(0)},
        {"queue_pop_oldest", m, u8(14) + set_k + u8(14) + str("k") + str("w"), u8(15) + str("k"),
         i64(2) + str("v")},
        {"queue_len", m, u8(14) + set_k, u8(16) + str("k"), i64(1)},
        {"queue_len_after_pop", m, u8(14) + set_k + u8(15) + str("k"), u8(16) + str("k"), i64(0)},
        {"queue_counts_as_present", m, u8(14) + set_k, u8(5) + u64(1) + str("k"), u8(0)},
        {"queue_satisfies_wait", m, u8(14) + set_k, u8(6) + u64(1) + str("k"), u8(0)},
        {"queue_is_no_key", m, u8(14) + set_k, u8(7), i64(0)},
        {"list_keys", m, set, u8(17), i64(1) + str("k")},
        {"barrier_of_one", m, "", u8(18) + str("k") + i64(1), u8(0)},
        {"join", m, "", u8(65) + str(claim), u8(0) + str("")},
        {"join_twice", m, u8(65) + str(claim), u8(65) + str(claim),
         u8(1) + str("this connection has joined before")},
        {"barrier_counts_in_the_map", m, u8(18) + str("k") + i64(1), u8(3) + str("k"), str("1")},
    };
}

std::vector<Exchange> legacy_exchanges() {
    const auto l = Numbering::legacy;
    const auto set = u8(0) + set_k;
    return {
        {"set_has_no_reply", l, "", set, ""},
        {"set_then_get", l, set, u8(2) + str("k"), str("v")},
        {"compare_set_equal", l, set, u8(1) + str("k") + str("v") + str("w"), str("w")},
        {"compare_set_other", l, set, u8(1) + str("k") + str("x") + str("w"), str("v")},
        {"compare_set_new", l, "", u8(1) + str("k") + str("") + str("w"), str("w")},
        {"compare_set_lies", l, "", u8(1) + str("k") + str("x") + str("w"), str("x")},
        {"add_new", l, "", u8(3) + str("k") + i64(-7), i64(-7)},
        {"add_keeps_decimal", l, u8(3) + str("k") + i64(-12), u8(2) + str("k"), str("-12")},
        {"add_again", l, u8(3) + str("k") + i64(1), u8(3) + str("k") + i64(1), i64(2)},
        {"check_not_ready", l, "", u8(4) + u64(1) + str("k"), u8(1)},
        {"check_ready", l, set, u8(4) + u64(1) + str("k"), u8(0)},
        {"check_none", l, "", u8(4) + u64(0), u8(0)},
        {"wait_ready", l, set, u8(5) + u64(1) + str("k"), u8(0)},
        {"num_keys", l, set, u8(6), i64(1)},
        {"watch_key", l, "", u8(7) + str("k"), u8(3)},
        {"delete_present", l, set, u8(8) + str("k"), i64(1)},
        {"delete_absent", l, "", u8(8) + str("k"), i64(0)},
        {"append_has_no_reply", l, "", u8(9) + set_k, ""},
        {"append_then_get", l, set + u8(9) + str("k") + str("w"), u8(2) + str("k"), str("vw")},
        {"multi_get", l, set, u8(10) + u64(2) + str("k") + str("k"), str("v") + str("v")},
        {"multi_set_has_no_reply", l, "", u8(11) + u64(1) + set_k, ""},
        {"multi_set_then_get", l, u8(11) + u64(1) + set_k, u8(2) + str("k"), str("v")},
        {"cancel_wait_without_wait", l, "", u8(12), u8(1)},
    };
}

class StoreServerTable : public testing::TestWithParam<Exchange> {};

// CANCEL_WAIT's single byte, 12 in both numberings, marks where the replies end.
const std::string marker = u8(12);
const std::string marked = u8(1);

TEST_P(StoreServerTable, AnswersARequestCutAtAnyByte) {
    const auto& c = GetParam();
    DrivenServer server;
    for (std::size_t cut = 0; cut < c.request.size(); ++cut) {
        server.server.start_attempt(0);
        RawClient client{server};
        const auto opening = c.numbering == Numbering::modern ? hello : "";
        client.send(opening + c.before);
        client.receive_now();
        client.send(c.request.substr(0, cut));
        ASSERT_EQ(client.receive_now(), "") << "cut at " << cut;
        client.send(c.request.substr(cut) + marker);
        ASSERT_EQ(client.receive(c.reply.size() + 1), c.reply + marked) << "cut at " << cut;
    }
}

std::string name_of(const testing::TestParamInfo<Exchange>& param_info) {
    return param_info.param.name;
}
INSTANTIATE_TEST_SUITE_P(Modern, StoreServerTable, testing::ValuesIn(modern_exchanges()), name_of);
INSTANTIATE_TEST_SUITE_P(Legacy, StoreServerTable, testing::ValuesIn(legacy_exchanges()), name_of);

struct Refused {
    std::string name;
    std::string bytes;
    std::string answered;  // before the connection is closed
};
void PrintTo(const Refused& refused, std::ostream* out) { *out << refused.name; }

class StoreServerRefuses : public testing::TestWithParam<Refused> {};

void expect_that_connection_alone_to_be_closed(const Refused& refused) {
    DrivenServer server;
    RawClient bystander{server};
    bystander.send(hello + u8(1) + set_k);
    RawClient client{server};
    client.send(refused.bytes);
    std::string answer;
    EXPECT_TRUE(client.closed_by_server(&answer));
    EXPECT_EQ(answer, refused.answered);
    bystander.send(u8(3) + str("k"));
    EXPECT_EQ(bystander.receive(9), str("v"));
}

TEST_P(StoreServerRefuses, ByClosingThatConnectionAlone) {
    expect_that_connection_alone_to_be_closed(GetParam());
}

// Not in the table: each test's process would make it.
TEST(StoreServer, RefusesAnAppendBeyond8MiBByClosingThatConnectionAlone) {
    const std::string first = u8(9) + str("a") + str(std::string(8 << 20, 'x'));
    expect_that_connection_alone_to_be_closed(
        {"", hello + nothing + first + u8(9) + str("a") + str("y"), ""});
}

const std::vector<Refused> refused{
    {"http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", ""},
    {"tls_hello", std::string{"\x16\x03\x01\x02\x00", 5}, ""},
    {"reserved_hello", "\xDD", ""},
    {"unknown_opcode", hello + u8(13) + u32(7) + u8(99), u32(7)},
    {"huge_key", hello + u8(3) + u64(~std::uint64_t{0}), ""},
    {"huge_list", hello + u8(5) + u64(std::uint64_t{1} << 63), ""},
    {"add_to_text", hello + u8(1) + set_k + u8(4) + str("k") + i64(1), ""},
    {"add_beyond_64_bits", hello + u8(4) + str("n") + i64(INT64_MAX) + u8(4) + str("n") + i64(1),
     i64(INT64_MAX)},
    {"legacy_get_of_absent_key", u8(2) + str("absent"), ""},
    {"legacy_multi_get_of_absent_key", u8(0) + set_k + u8(10) + u64(2) + str("k") + str("absent"),
     ""},
    {"barrier_on_text", hello + u8(1) + set_k + u8(18) + str("k") + i64(2), ""},
};

INSTANTIATE_TEST_SUITE_P(Table, StoreServerRefuses, testing::ValuesIn(refused),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(StoreServer, AWaitIsAnsweredOnceAllItsKeysAreThere) {
    DrivenServer server;
    RawClient waiter{server};
    RawClient setter{server};
    waiter.send(hello + u8(6) + u64(3) + str("a") + str("b") + str("a"));
    setter.send(hello + u8(1) + str("a") + str(""));
    EXPECT_EQ(waiter.receive_now(), "");
    setter.send(u8(4) + str("b") + i64(1));
    EXPECT_EQ(waiter.receive(1), u8(0));
    setter.send(u8(1) + str("b") + str("again"));
    EXPECT_EQ(waiter.receive_now(), "");
}

TEST(StoreServer, EveryOperationThatMakesAKeyWakesAWaiter) {
    const std::vector<std::string> makers{u8(1) + set_k,
                                          u8(2) + str("k") + str("") + str("v"),
                                          u8(4) + str("k") + i64(1),
                                          u8(9) + set_k,
                                          u8(11) + u64(1) + set_k,
                                          u8(14) + set_k,
                                          u8(18) + str("k") + i64(1)};
    for (const auto& maker : makers) {
        DrivenServer server;
        RawClient waiter{server};
        RawClient setter{server};
        waiter.send(hello + u8(6) + u64(1) + str("k"));
        setter.send(hello + maker);
        EXPECT_EQ(waiter.receive(1), u8(0)) << "opcode " << int{maker[0]};
    }
}

TEST(StoreServer, ACompareSetThatSetsNothingWakesNobody) {
    DrivenServer server;
    RawClient waiter{server};
    RawClient setter{server};
    waiter.send(hello + u8(6) + u64(1) + str("k"));
    setter.send(hello + u8(2) + str("k") + str("x") + str("y"));
    EXPECT_EQ(waiter.receive_now(), "");
}

TEST(StoreServer, ACancelledWaitIsNotAnsweredLater) {
    DrivenServer server;
    RawClient waiter{server};
    RawClient setter{server};
    waiter.send(hello + u8(6) + u64(1) + str("k") + u8(12));
    EXPECT_EQ(waiter.receive(1), u8(1));
    setter.send(hello + u8(1) + set_k);
    EXPECT_EQ(waiter.receive_now(), "");
    waiter.send(u8(6) + u64(1) + str("k"));
    EXPECT_EQ(waiter.receive(1), u8(0));
}

TEST(StoreServer, ACancelThatComesTooLateIsAnsweredAfterTheWait) {
    DrivenServer server;
    RawClient waiter{server};
    RawClient setter{server};
    waiter.send(hello + u8(6) + u64(1) + str("k"));
    setter.send(hello + u8(1) + set_k);
    waiter.send(u8(12));
    EXPECT_EQ(waiter.receive(2), u8(0) + u8(1));
}

TEST(StoreServer, ASecondWaitReplacesTheFirst) {
    DrivenServer server;
    RawClient waiter{server};
    RawClient setter{server};
    waiter.send(hello + u8(6) + u64(1) + str("a") + u8(6) + u64(1) + str("b"));
    setter.send(hello + u8(1) + str("a") + str(""));
    EXPECT_EQ(waiter.receive_now(), "");
    setter.send(u8(1) + str("b") + str(""));
    EXPECT_EQ(waiter.receive(1), u8(0));
}

TEST(StoreServer, AQueuePushWakesTheLongestWaiterAlone) {
    DrivenServer server;
    RawClient first{server};
    RawClient second{server};
    RawClient pusher{server};
    first.send(hello + u8(6) + u64(1) + str("q"));
    second.send(hello + u8(6) + u64(1) + str("q"));
    pusher.send(hello + u8(14) + str("q") + str("1"));
    EXPECT_EQ(first.receive(1), u8(0));
    EXPECT_EQ(second.receive_now(), "");
    pusher.send(u8(14) + str("q") + str("2"));
    EXPECT_EQ(second.receive(1), u8(0));
    first.send(u8(15) + str("q"));
    EXPECT_EQ(first.receive(17), i64(2) + str("1"));
}

TEST(StoreServer, ABarrierLetsAllGoWhenTheLastHasCome) {
    DrivenServer server;
    std::vector<RawClient> clients;
    for (int i = 0; i < 3; ++i) clients.emplace_back(server);
    clients[0].send(hello + u8(18) + str("b") + i64(3));
    clients[1].send(hello + u8(18) + str("b") + i64(3));
    EXPECT_EQ(clients[0].receive_now(), "");
    EXPECT_EQ(clients[1].receive_now(), "");
    clients[2].send(hello + u8(18) + str("b") + i64(3));
    for (auto& client : clients) EXPECT_EQ(client.receive(1), u8(0));
}

TEST(StoreServer, AClientThatLeavesNoLongerWaits) {
    DrivenServer server;
    RawClient leaver{server};
    RawClient stayer{server};
    leaver.send(hello + u8(6) + u64(1) + str("q"));
    stayer.send(hello + u8(6) + u64(1) + str("q"));
    leaver.close();
    RawClient pusher{server};
    pusher.send(hello + u8(14) + str("q") + str("1"));
    EXPECT_EQ(stayer.receive(1), u8(0));  // the push woke one: not the one that left
}

TEST(StoreServer, AWatcherIsToldOfEachChange) {
    DrivenServer server;
    RawClient watcher{server};
    RawClient changer{server};
    watcher.send(u8(7) + str("k"));
    EXPECT_EQ(watcher.receive(1), u8(3));
    changer.send(u8(0) + str("k") + str("1"));                     // created
    changer.send(u8(3) + str("k") + i64(1));                       // updated
    changer.send(u8(9) + str("k") + str("0"));                     // appended
    changer.send(u8(1) + str("k") + str("20") + str("x"));         // updated
    changer.send(u8(8) + str("k"));                                // deleted
    changer.send(u8(0) + str("other") + str("1"));                 // not watched
    const auto events = u8(1) + str("k") + str("") + str("1") +    //
                        u8(0) + str("k") + str("1") + str("2") +   //
                        u8(4) + str("k") + str("") + str("0") +    //
                        u8(0) + str("k") + str("20") + str("x") +  //
                        u8(2) + str("k") + str("x") + str("");
    EXPECT_EQ(watcher.receive(events.size()), events);
    EXPECT_EQ(watcher.receive_now(), "");
}

TEST(StoreServer, BothNumberingsSeeOneMap) {
    DrivenServer server;
    RawClient modern{server};
    RawClient legacy{server};
    legacy.send(u8(0) + set_k);
    modern.send(hello + u8(3) + str("k"));
    EXPECT_EQ(modern.receive(9), str("v"));
}

TEST(StoreServer, ANewAttemptClosesEveryConnectionAndEmptiesTheMap) {
    DrivenServer server;
    RawClient client{server};
    client.send(hello + u8(1) + set_k);
    const auto port = server.server.port();
    // This one is not accepted yet, and has already sent a SET of the old attempt.
    int error = 0;
    const auto late = base::try_connect_tcp("127.0.0.1", port,
                                            base::Deadline::after(std::chrono::seconds{10}), error);
    const auto old_set = hello + u8(1) + str("old") + str("1");
    ASSERT_EQ(::send(late.get(), old_set.data(), old_set.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(old_set.size()));
    server.server.start_attempt(0);
    EXPECT_TRUE(client.closed_by_server());
    EXPECT_EQ(server.server.port(), port);
    RawClient fresh{server};
    fresh.send(hello + u8(7));
    EXPECT_EQ(fresh.receive(8), i64(0));
}

TEST(StoreServer, MovesWithItsConnections) {
    DrivenServer first;
    RawClient client{first};
    client.send(hello + u8(1) + set_k);
    StoreServer moved{std::move(first.server)};
    first.server = std::move(moved);
    client.send(u8(3) + str("k"));
    EXPECT_EQ(client.receive(9), str("v"));
}

}  // namespace
}  // namespace ddp::store
