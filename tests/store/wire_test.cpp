// The parser of requests: every operation of both numberings, cut at every byte; and what it
// refuses.
#include "store/wire.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "support/seed.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;  // the bytes' names

struct WireCase {
    const char* name;
    Era era;
    std::string bytes;
    Request request;
};
void PrintTo(const WireCase& one, std::ostream* out) { *out << one.name; }

std::vector<WireCase> all_requests() {
    const std::string kv = str("k") + str("v");
    return {
        {"set", Era::modern, u8(1) + kv, {.op = Opcode::set, .keys = {"k"}, .values = {"v"}}},
        {"compare_set",
         Era::modern,
         u8(2) + str("k") + str("a") + str("bc"),
         {.op = Opcode::compare_set, .keys = {"k"}, .values = {"a", "bc"}}},
        {"get", Era::modern, u8(3) + str("k"), {.op = Opcode::get, .keys = {"k"}}},
        {"add",
         Era::modern,
         u8(4) + str("k") + i64(-5),
         {.op = Opcode::add, .keys = {"k"}, .number = -5}},
        {"check",
         Era::modern,
         u8(5) + u64(2) + str("a") + str("b"),
         {.op = Opcode::check, .keys = {"a", "b"}}},
        {"wait", Era::modern, u8(6) + u64(1) + str("a"), {.op = Opcode::wait, .keys = {"a"}}},
        {"wait_for_none", Era::modern, u8(6) + u64(0), {.op = Opcode::wait}},
        {"get_num_keys", Era::modern, u8(7), {.op = Opcode::get_num_keys}},
        {"delete_key", Era::modern, u8(8) + str("k"), {.op = Opcode::delete_key, .keys = {"k"}}},
        {"append", Era::modern, u8(9) + kv, {.op = Opcode::append, .keys = {"k"}, .values = {"v"}}},
        {"multi_get",
         Era::modern,
         u8(10) + u64(2) + str("a") + str(""),
         {.op = Opcode::multi_get, .keys = {"a", ""}}},
        {"multi_set",
         Era::modern,
         u8(11) + u64(2) + str("a") + str("1") + str("b") + str(""),
         {.op = Opcode::multi_set, .keys = {"a", "b"}, .values = {"1", ""}}},
        {"cancel_wait", Era::modern, u8(12), {.op = Opcode::cancel_wait}},
        {"ping", Era::modern, u8(13) + u32(77), {.op = Opcode::ping, .number = 77}},
        {"queue_push",
         Era::modern,
         u8(14) + kv,
         {.op = Opcode::queue_push, .keys = {"k"}, .values = {"v"}}},
        {"queue_pop", Era::modern, u8(15) + str("k"), {.op = Opcode::queue_pop, .keys = {"k"}}},
        {"queue_len", Era::modern, u8(16) + str("k"), {.op = Opcode::queue_len, .keys = {"k"}}},
        {"list_keys", Era::modern, u8(17), {.op = Opcode::list_keys}},
        {"barrier",
         Era::modern,
         u8(18) + str("k") + i64(4),
         {.op = Opcode::barrier, .keys = {"k"}, .number = 4}},
        {"join", Era::modern, u8(65) + str("c"), {.op = Opcode::join, .values = {"c"}}},
        {"set", Era::legacy, u8(0) + kv, {.op = Opcode::set, .keys = {"k"}, .values = {"v"}}},
        // Its key's length begins with the magic's first byte.
        {"set_like_hello",
         Era::legacy,
         u8(0) + str(std::string(0xCE, 'k')) + str("v"),
         {.op = Opcode::set, .keys = {std::string(0xCE, 'k')}, .values = {"v"}}},
        {"compare_set",
         Era::legacy,
         u8(1) + str("k") + str("a") + str("bc"),
         {.op = Opcode::compare_set, .keys = {"k"}, .values = {"a", "bc"}}},
        {"get", Era::legacy, u8(2) + str("k"), {.op = Opcode::get, .keys = {"k"}}},
        {"add",
         Era::legacy,
         u8(3) + str("k") + i64(1),
         {.op = Opcode::add, .keys = {"k"}, .number = 1}},
        {"check", Era::legacy, u8(4) + u64(1) + str("a"), {.op = Opcode::check, .keys = {"a"}}},
        {"wait", Era::legacy, u8(5) + u64(1) + str("a"), {.op = Opcode::wait, .keys = {"a"}}},
        {"get_num_keys", Era::legacy, u8(6), {.op = Opcode::get_num_keys}},
        {"watch_key", Era::legacy, u8(7) + str("k"), {.op = Opcode::watch_key, .keys = {"k"}}},
        {"delete_key", Era::legacy, u8(8) + str("k"), {.op = Opcode::delete_key, .keys = {"k"}}},
        {"append", Era::legacy, u8(9) + kv, {.op = Opcode::append, .keys = {"k"}, .values = {"v"}}},
        {"multi_get",
         Era::legacy,
         u8(10) + u64(1) + str("a"),
         {.op = Opcode::multi_get, .keys = {"a"}}},
        {"multi_set",
         Era::legacy,
         u8(11) + u64(1) + kv,
         {.op = Opcode::multi_set, .keys = {"k"}, .values = {"v"}}},
        {"cancel_wait", Era::legacy, u8(12), {.op = Opcode::cancel_wait}},
    };
}

void expect_same(const Request& got, const Request& wanted) {
    EXPECT_EQ(got.op, wanted.op);
    EXPECT_EQ(got.keys, wanted.keys);
    EXPECT_EQ(got.values, wanted.values);
    EXPECT_EQ(got.number, wanted.number);
}

std::string opening(Era era) { return era == Era::modern ? hello : ""; }

class RequestParserTable : public testing::TestWithParam<WireCase> {};

TEST_P(RequestParserTable, TakesARequestCutAtAnyByte) {
    const auto& c = GetParam();
    const auto bytes = opening(c.era) + c.bytes;
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        RequestParser parser;
        Request request;
        parser.feed(bytes.substr(0, cut));
        ASSERT_EQ(parser.next(request), RequestParser::Status::incomplete) << "cut at " << cut;
        parser.feed(bytes.substr(cut));
        ASSERT_EQ(parser.next(request), RequestParser::Status::request) << "cut at " << cut;
        EXPECT_EQ(parser.era(), c.era);
        expect_same(request, c.request);
        EXPECT_EQ(parser.next(request), RequestParser::Status::incomplete);
    }
}

TEST_P(RequestParserTable, TakesARequestByteByByteAndThenAnother) {
    const auto& c = GetParam();
    RequestParser parser;
    Request request;
    int requests = 0;
    for (const char byte : opening(c.era) + c.bytes + c.bytes) {
        parser.feed({&byte, 1});
        const auto status = parser.next(request);
        ASSERT_NE(status, RequestParser::Status::refused) << parser.refusal();
        if (status != RequestParser::Status::request) continue;
        ++requests;
        expect_same(request, c.request);
    }
    EXPECT_EQ(requests, 2);
}

TEST_P(RequestParserTable, TheEncoderMakesTheSameBytes) {
    EXPECT_EQ(encode_request(GetParam().request, GetParam().era), GetParam().bytes);
}

INSTANTIATE_TEST_SUITE_P(BothEras, RequestParserTable, testing::ValuesIn(all_requests()),
                         [](const auto& param_info) {
                             const std::string era =
                                 param_info.param.era == Era::modern ? "modern_" : "legacy_";
                             return era + param_info.param.name;
                         });

TEST(RequestParser, TheTableNamesEveryOperation) {
    std::vector<bool> named(opcode_count, false);
    for (const auto& c : all_requests()) named[static_cast<std::size_t>(c.request.op)] = true;
    named[static_cast<std::size_t>(Opcode::validate)] = true;  // in each opening
    EXPECT_EQ(std::count(named.begin(), named.end(), false), 0);
}

TEST(RequestParser, TakesManyRequestsThatCameAtOnce) {
    RequestParser parser;
    auto bytes = hello;
    for (std::uint32_t i = 0; i < 1000; ++i) bytes += u8(13) + u32(i);
    parser.feed(bytes);
    Request request;
    for (std::uint32_t i = 0; i < 1000; ++i) {
        ASSERT_EQ(parser.next(request), RequestParser::Status::request);
        ASSERT_EQ(request.number, i);
    }
    EXPECT_EQ(parser.next(request), RequestParser::Status::incomplete);
}

// As a server does that has memory for all.
RequestParser::Status next_with_grants(RequestParser& parser, Request& request) {
    auto status = parser.next(request);
    while (status == RequestParser::Status::needs_memory) {
        parser.grant_memory(parser.wanted_memory());
        status = parser.next(request);
    }
    return status;
}

TEST(RequestParser, TakesTheLargestKeyValueAndList) {
    RequestParser parser;
    Request request;
    const std::string key(max_key_bytes, 'k');
    const std::string value(max_value_bytes, 'v');
    parser.feed(hello + nothing + u8(1) + str(key) + str(value));
    ASSERT_EQ(parser.next(request), RequestParser::Status::request);
    ASSERT_EQ(next_with_grants(parser, request), RequestParser::Status::request);
    EXPECT_EQ(request.keys.front(), key);
    EXPECT_EQ(request.values.front(), value);
    auto list = u8(5) + u64(max_keys_per_request);
    for (std::size_t i = 0; i < max_keys_per_request; ++i) list += str("k");
    parser.feed(list);
    ASSERT_EQ(next_with_grants(parser, request), RequestParser::Status::request);
    EXPECT_EQ(request.keys.size(), max_keys_per_request);
}

struct Hostile {
    std::string name;
    std::string bytes;
};
void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

class HostileBytes : public testing::TestWithParam<Hostile> {};

TEST_P(HostileBytes, AreRefusedAndStayRefused) {
    RequestParser parser;
    Request request;
    parser.feed(GetParam().bytes);
    auto status = RequestParser::Status::request;
    while (status == RequestParser::Status::request) status = parser.next(request);
    EXPECT_EQ(status, RequestParser::Status::refused);
    EXPECT_FALSE(parser.refusal().empty());
    parser.feed(hello + u8(7));
    EXPECT_EQ(parser.next(request), RequestParser::Status::refused);
}

std::vector<Hostile> hostile_bytes() {
    std::vector<Hostile> cases{
        {"http", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {"tls_hello", std::string{"\x16\x03\x01\x02\x00", 5}},
        {"ssh", "SSH-2.0-OpenSSH_9.2\r\n"},
        {"reserved_hello", "\xDD"},
        {"first_byte_13", u8(13) + u32(1)},
        {"first_byte_255", "\xFF"},
        {"modern_opcode_0_again", hello + hello},
        {"modern_opcode_19", hello + u8(19)},
        {"modern_opcode_255", hello + u8(255)},
        {"legacy_opcode_13_later", u8(6) + u8(13)},
        {"modern_key_too_long", hello + u8(3) + u64(max_key_bytes + 1)},
        {"modern_value_too_long", hello + u8(1) + str("k") + u64(max_value_bytes + 1)},
        {"modern_too_many_keys", hello + u8(5) + u64(max_keys_per_request + 1)},
        {"modern_too_many_pairs", hello + u8(11) + u64(max_keys_per_request + 1)},
        {"legacy_set_with_smb_length", std::string{"\x00\x00\x00\x00\x85\xFFSMB", 9}},
    };
    const std::vector<std::pair<std::string, std::uint64_t>> lengths{
        {"2_31", std::uint64_t{1} << 31},
        {"2_32", std::uint64_t{1} << 32},
        {"2_63", std::uint64_t{1} << 63},
        {"2_64_minus_1", ~std::uint64_t{0}},
        {"2_64_minus_8", ~std::uint64_t{7}}};
    for (const auto& [name, length] : lengths) {
        const auto push = [&, &name = name](const std::string& kind, const std::string& bytes) {
            cases.push_back({kind + name, bytes});
        };
        push("key_of_", hello + u8(3) + u64(length));
        push("value_of_", hello + u8(9) + str("k") + u64(length));
        push("keys_", hello + u8(6) + u64(length));
        push("pairs_", hello + u8(11) + u64(length));
        push("legacy_key_of_", u8(2) + u64(length));
        push("legacy_keys_", u8(5) + u64(length));
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(Table, HostileBytes, testing::ValuesIn(hostile_bytes()),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(RequestParser, RefusesARequestOfMoreThan32MiBBeforeItIsAllThere) {
    RequestParser parser;
    Request request;
    parser.feed(hello + nothing + u8(11) + u64(9));
    ASSERT_EQ(parser.next(request), RequestParser::Status::request);
    const auto pair = str("k") + str(std::string(max_value_bytes, 'v'));
    auto status = RequestParser::Status::incomplete;
    int pairs = 0;
    while (status == RequestParser::Status::incomplete && pairs < 9) {
        parser.feed(pair);
        ++pairs;
        status = next_with_grants(parser, request);
    }
    EXPECT_EQ(status, RequestParser::Status::refused);
    EXPECT_EQ(pairs, 4);
}

std::size_t count_requests(RequestParser& parser) {
    Request request;
    std::size_t count = 0;
    while (parser.next(request) == RequestParser::Status::request) ++count;
    return count;
}

TEST(RequestParser, FindsTheSameRequestsInRandomBytesHoweverTheyAreCut) {
    std::mt19937 random{random_seed()};
    std::size_t found = 0;
    for (int round = 0; round < 6000; ++round) {
        RequestParser in_pieces;
        std::string all = random() % 2 == 0 ? hello : "";
        in_pieces.feed(all);
        std::size_t taken = 0;
        for (int piece = 0; piece < 20; ++piece) {
            std::string bytes(random() % 20, '\0');
            // Mostly small numbers and zeros, so that opcodes and lengths are often believable.
            for (auto& byte : bytes) {
                const auto any = random();
                byte = static_cast<char>(any % 16 == 0 ? any >> 8 : (any % 3 == 0 ? any % 19 : 0));
            }
            all += bytes;
            in_pieces.feed(bytes);
            taken += count_requests(in_pieces);
        }
        RequestParser at_once;
        at_once.feed(all);
        ASSERT_EQ(count_requests(at_once), taken);
        found += taken;
    }
    EXPECT_GT(found, 100U) << "the bytes are too random to test anything";
}

TEST(EncodeRequest, RefusesAnOperationThatTheNumberingLacks) {
    EXPECT_THROW(encode_request({.op = Opcode::ping}, Era::legacy), UsageError);
    EXPECT_THROW(encode_request({.op = Opcode::watch_key, .keys = {"k"}}, Era::modern), UsageError);
}

TEST(Request, CostsItsBytesAndSomethingForEachKeyAndValue) {
    const std::size_t one = cost_of({.keys = {""}});
    EXPECT_GE(one, sizeof(std::string));
    EXPECT_LE(one, 10 * sizeof(std::string));
    EXPECT_EQ(cost_of({.values = {""}}), one);
    EXPECT_EQ(cost_of({.keys = {"ab", "c"}, .values = {"def"}}), 3 * one + 6);
}

}  // namespace
}  // namespace ddp::store
