// What several clients say to one server, in order, and the bytes that each of them gets after each
// word: waits that others end or that are cancelled, queues, barriers, watches. Where both
// numberings have the operations, each speaker speaks each of them.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <vector>

#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

std::string key_list(const std::vector<std::string>& keys) {
    std::string bytes = u64(keys.size());
    for (const auto& key : keys) bytes += str(key);
    return bytes;
}

struct Step {
    std::size_t who;
    std::string says;
    std::map<std::size_t, std::string> heard = {};  // who is not listed hears nothing
};

struct Conversation {
    std::string name;
    std::vector<std::string> openings;  // one a client, sent with its first word
    std::vector<Step> steps;
};
void PrintTo(const Conversation& conversation, std::ostream* out) { *out << conversation.name; }

// `w` waits, `o` is the other one.
std::vector<Conversation> waiting(const Opcodes& w, const Opcodes& o) {
    const auto wait = [&](const std::vector<std::string>& keys) {
        return u8(w.wait) + key_list(keys);
    };
    const auto set = [&](const std::string& key) { return u8(o.set) + str(key) + str("v"); };
    const std::string cancel = u8(w.cancel);
    const std::string came = u8(0);
    const std::string cancelled = u8(1);
    std::vector<Conversation> table{
        {"ASetEndsAWait", {}, {{0, wait({"k"})}, {1, set("k"), {{0, came}}}, {1, set("k")}}},
        {"AWaitForNothingIsOver", {}, {{0, wait({}), {{0, came}}}}},
        {"ACancelEndsAWait",
         {},
         {{0, wait({"k"})},
          {0, cancel, {{0, cancelled}}},
          {1, set("k")},
          {0, wait({"k"}), {{0, came}}}}},
        {"ACancelWithoutAWaitIsAnswered",
         {},
         {{0, cancel, {{0, cancelled}}}, {0, cancel + cancel, {{0, cancelled + cancelled}}}}},
        {"ACancelAfterTheEndIsAnsweredToo",
         {},
         {{0, wait({"k"})}, {1, set("k"), {{0, came}}}, {0, cancel, {{0, cancelled}}}}},
        {"AWaitIsOverWhenTheLastKeyCame",
         {},
         {{0, wait({"a", "b", "c"})}, {1, set("c")}, {1, set("a")}, {1, set("b"), {{0, came}}}}},
        {"ASecondWaitTakesTheFirstOnesPlace",
         {},
         {{0, wait({"a"})}, {0, wait({"b"})}, {1, set("a")}, {1, set("b"), {{0, came}}}}},
        {"WhoWaitsMayAskMeanwhile",
         {},
         {{0, wait({"k"})},
          {0, u8(w.num_keys), {{0, i64(0)}}},
          {0, u8(w.add) + str("n") + i64(2), {{0, i64(2)}}},
          {1, set("k"), {{0, came}}}}},
        {"ADeletedKeyIsWaitedForAgain",
         {},
         {{1, set("k")},
          {1, u8(o.delete_key) + str("k"), {{1, i64(1)}}},
          {0, wait({"k"})},
          {1, set("k"), {{0, came}}}}},
        {"AddEndsAWait",
         {},
         {{0, wait({"n"})}, {1, u8(o.add) + str("n") + i64(0), {{0, came}, {1, i64(0)}}}}},
        {"ACompareSetThatSetsEndsAWait",
         {},
         {{0, wait({"k"})},
          {1, u8(o.compare_set) + str("k") + str("x") + str("v"), {{1, str("x")}}},
          {1, u8(o.compare_set) + str("k") + str("") + str("v"), {{0, came}, {1, str("v")}}}}},
        {"AppendEndsAWait",
         {},
         {{0, wait({"k"})}, {1, u8(o.append) + str("k") + str("v"), {{0, came}}}}},
        {"OneMultiSetEndsTheWaitsOfTwo",
         {},
         {{0, wait({"a"})},
          {2, wait({"a", "b"})},
          {1,
           u8(o.multi_set) + u64(2) + str("a") + str("1") + str("b") + str("2"),
           {{0, came}, {2, came}}},
          {1, u8(o.multi_get) + key_list({"b", "a"}), {{1, str("2") + str("1")}}}}},
        {"EveryOneWhoWaitsIsTold",
         {},
         {{0, wait({"k"})}, {2, wait({"k"})}, {1, set("k"), {{0, came}, {2, came}}}}},
        {"ReadersSeeWhatTheOtherWrote",
         {},
         {{1, set("k")},
          {0, u8(w.get) + str("k"), {{0, str("v")}}},
          {0, u8(w.check) + key_list({"k"}), {{0, u8(0)}}},
          {0, u8(w.check) + key_list({"k", "l"}), {{0, u8(1)}}},
          {0, u8(w.compare_set) + str("k") + str("v") + str(""), {{0, str("")}}},
          {1, u8(o.get) + str("k"), {{1, str("")}}},
          {1, u8(o.num_keys), {{1, i64(1)}}}}},
    };
    for (auto& conversation : table) {
        conversation.name += "_" + w.name + o.name;
        conversation.openings = {w.opening, o.opening, w.opening};
    }
    return table;
}

std::string push(const std::string& key, const std::string& value) {
    return u8(14) + str(key) + str(value);
}
std::string pop(const std::string& key) { return u8(15) + str(key); }
std::string length(const std::string& key) { return u8(16) + str(key); }
std::string barrier(const std::string& key, std::int64_t size) {
    return u8(18) + str(key) + i64(size);
}

std::vector<Conversation> of_the_newer_numbering() {
    const std::string list = u8(17);
    std::vector<Conversation> table{
        {"AQueueIsFirstInFirstOut",
         {},
         {{0, push("q", "1") + push("q", "")},
          {1, length("q"), {{1, i64(2)}}},
          {1, pop("q"), {{1, i64(2) + str("1")}}},
          {0, pop("q"), {{0, i64(1) + str("")}}},
          {1, pop("q"), {{1, i64(0)}}},
          {1, length("q"), {{1, i64(0)}}},
          {1, u8(5) + key_list({"q"}), {{1, u8(1)}}}}},
        {"AQueueAndAKeyOfOneNameAreTwo",
         {},
         {{0, push("k", "queued") + u8(1) + str("k") + str("set")},
          {1, u8(3) + str("k"), {{1, str("set")}}},
          {1, u8(8) + str("k"), {{1, i64(1)}}},
          {1, u8(3) + str("k"), {{1, str("")}}},
          {1, pop("k"), {{1, i64(1) + str("queued")}}}}},
        {"APushEndsTheWaitOfTheOneWhoWaitedLongest",
         {},
         {{0, u8(6) + key_list({"q"})},
          {1, u8(6) + key_list({"q"})},
          {2, push("q", "1"), {{0, u8(0)}}},
          {2, push("q", "2"), {{1, u8(0)}}}}},
        {"APushPassesByWhoHasCancelled",
         {},
         {{0, u8(6) + key_list({"q"})},
          {1, u8(6) + key_list({"q"})},
          {0, u8(12), {{0, u8(1)}}},
          {2, push("q", "1"), {{1, u8(0)}}}}},
        {"AWaitForAQueueAndAKeyNeedsBoth",
         {},
         {{0, u8(6) + key_list({"q", "k"})},
          {1, push("q", "1")},
          {1, u8(1) + str("k") + str("v"), {{0, u8(0)}}}}},
        {"ABarrierOpensForAllAtOnceAndStaysOpen",
         {},
         {{0, barrier("b", 3)},
          {1, barrier("b", 3)},
          {2, barrier("b", 3), {{0, u8(0)}, {1, u8(0)}, {2, u8(0)}}},
          {0, barrier("b", 3), {{0, u8(0)}}},
          {1, u8(3) + str("b"), {{1, str("4")}}}}},
        {"TwoBarriersDoNotMix",
         {},
         {{0, barrier("a", 2)},
          {1, barrier("b", 2)},
          {2, barrier("b", 2), {{1, u8(0)}, {2, u8(0)}}},
          {2, barrier("a", 2), {{0, u8(0)}, {2, u8(0)}}}}},
        {"WhoCancelsABarrierIsCountedButNotTold",
         {},
         {{0, barrier("b", 2)}, {0, u8(12), {{0, u8(1)}}}, {1, barrier("b", 2), {{1, u8(0)}}}}},
        {"ABarrierOfNobodyIsOpen",
         {},
         {{0, barrier("a", 0), {{0, u8(0)}}}, {0, barrier("b", -1), {{0, u8(0)}}}}},
        {"TheListHoldsKeysAndNoQueues",
         {},
         {{0, list, {{0, i64(0)}}},
          {0, push("q", "1") + u8(4) + str("init/") + i64(1), {{0, i64(1)}}},
          {1, list, {{1, i64(1) + str("init/")}}},
          {1, u8(8) + str("init/"), {{1, i64(1)}}},
          {1, list, {{1, i64(0)}}}}},
        {"APingComesBack",
         {},
         {{0, u8(13) + u32(0) + u8(13) + u32(0xFFFFFFFF), {{0, u32(0) + u32(0xFFFFFFFF)}}}}},
    };
    for (auto& conversation : table) conversation.openings = {hello, hello, hello};
    return table;
}

std::vector<Conversation> of_the_older_numbering() {
    const std::string watch = u8(7) + str("k");
    const auto event = [](int kind, const std::string& before, const std::string& after) {
        return u8(kind) + str("k") + str(before) + str(after);
    };
    std::vector<Conversation> table{
        {"WatchersOfBothKindsOfClientsAreTold",
         {},
         {{0, watch, {{0, u8(3)}}},
          {0, watch, {{0, u8(3)}}},
          {1, u8(0) + str("k") + str("1"), {{0, event(1, "", "1")}}},
          {2, u8(4) + str("k") + i64(1), {{0, event(0, "1", "2")}, {2, i64(2)}}},
          {2, u8(11) + u64(1) + str("k") + str("3"), {{0, event(0, "2", "3")}}},
          {1, u8(9) + str("k") + str("4"), {{0, event(4, "", "4")}}},
          {2, u8(8) + str("k"), {{0, event(2, "34", "")}, {2, i64(1)}}},
          {2, u8(8) + str("k"), {{2, i64(0)}}}}},
        {"AWatcherMayWaitToo",
         {},
         {{0, watch + u8(5) + key_list({"k"}), {{0, u8(3)}}},
          {1, u8(0) + str("k") + str("1"), {{0, event(1, "", "1") + u8(0)}}}}},
    };
    for (auto& conversation : table) conversation.openings = {"", "", hello};
    return table;
}

std::vector<Conversation> conversations() {
    std::vector<Conversation> all = of_the_newer_numbering();
    const auto add = [&](std::vector<Conversation> more) {
        all.insert(all.end(), more.begin(), more.end());
    };
    add(of_the_older_numbering());
    for (const Opcodes& waiter : {modern, legacy}) {
        for (const Opcodes& other : {modern, legacy}) add(waiting(waiter, other));
    }
    return all;
}

// That many bytes, and whatever comes beyond them.
std::string all_heard(RawClient& client, std::size_t expected) {
    std::string bytes = client.receive(expected);
    return bytes + client.receive_now();
}

class StoreConversation : public testing::TestWithParam<Conversation> {};

TEST_P(StoreConversation, GoesByteForByte) {
    DrivenServer server;
    std::deque<RawClient> clients;
    for (const std::string& opening : GetParam().openings) {
        clients.emplace_back(server).send(opening);
    }
    int number = 0;
    for (const Step& step : GetParam().steps) {
        clients[step.who].send(step.says);
        for (std::size_t who = 0; who < clients.size(); ++who) {
            const auto heard = step.heard.find(who);
            const std::string wanted = heard == step.heard.end() ? "" : heard->second;
            ASSERT_EQ(all_heard(clients[who], wanted.size()), wanted)
                << "step " << number << ", client " << who;
        }
        ++number;
    }
}

INSTANTIATE_TEST_SUITE_P(Table, StoreConversation, testing::ValuesIn(conversations()),
                         [](const auto& param_info) { return param_info.param.name; });

}  // namespace
}  // namespace ddp::store
