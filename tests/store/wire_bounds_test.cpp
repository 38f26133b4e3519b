// Where the server draws its lines: what each first byte is taken for, each field of each operation
// at its limit and one beyond it, and operations that a numbering lacks.
#include "store/limits.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

// VALIDATE or SET, the older numbering's other operations, or a stranger.
TEST(StoreServer, TheFirstByteDecidesWhoIsAStranger) {
    for (int byte = 0; byte < 256; ++byte) {
        DrivenServer server;
        RawClient client{server};
        client.send(u8(byte));
        if (byte > 12) {
            std::string answer;
            EXPECT_TRUE(client.closed_by_server(&answer)) << byte;
            EXPECT_EQ(answer, "") << byte;
            continue;
        }
        // These two need no more bytes to be answered.
        const std::string answer = byte == 6 ? i64(0) : byte == 12 ? u8(1) : "";
        EXPECT_EQ(client.receive(answer.size()), answer) << byte;
        EXPECT_EQ(client.receive_now(), "") << byte;
        RawClient other{server};
        other.send(hello + u8(7));
        EXPECT_EQ(other.receive(8), i64(0)) << byte;
    }
}

TEST(StoreServer, AfterA0TheMagicDecidesWhichNumbering) {
    for (std::size_t told = 1; told < hello.size(); ++told) {
        DrivenServer server;
        RawClient client{server};
        client.send(hello.substr(0, told));
        EXPECT_EQ(client.receive_now(), "");
        client.send(hello.substr(told) + u8(13) + u32(9));
        EXPECT_EQ(client.receive(4), u32(9)) << "cut at " << told;
    }
    DrivenServer server;
    RawClient set{server};  // the length of its key begins as the magic does
    const std::string key(0x0FCE, 'k');
    set.send(u8(0) + str(key) + str("v") + u8(2) + str(key));
    EXPECT_EQ(set.receive(9), str("v"));
    RawClient wrong{server};
    wrong.send(hello.substr(0, 4) + u8(0x3D) + u32(0));
    EXPECT_TRUE(wrong.closed_by_server());
}

// What comes before the field that is too long, by operation; the field's length is all of it that
// is ever sent.
std::vector<std::string> with_a_key_to_come(const Opcodes& n) {
    std::vector<std::string> requests;
    for (const int op : {n.set, n.compare_set, n.get, n.add, n.delete_key, n.append}) {
        requests.push_back(u8(op));
    }
    for (const int op : {n.check, n.wait, n.multi_get, n.multi_set}) {
        requests.push_back(u8(op) + u64(1));
    }
    const bool is_modern = &n == &modern;
    for (const int op : is_modern ? std::vector{14, 15, 16, 18} : std::vector{7}) {
        requests.push_back(u8(op));
    }
    return requests;
}
std::vector<std::string> with_a_value_to_come(const Opcodes& n) {
    const std::string key = str("k");
    std::vector<std::string> requests{u8(n.set) + key, u8(n.compare_set) + key,
                                      u8(n.compare_set) + key + str("expected"), u8(n.append) + key,
                                      u8(n.multi_set) + u64(1) + key};
    if (&n == &modern) requests.push_back(u8(14) + key);
    return requests;
}
std::vector<std::string> with_a_count_to_come(const Opcodes& n) {
    return {u8(n.check), u8(n.wait), u8(n.multi_get), u8(n.multi_set)};
}

TEST(StoreServer, OneBeyondALimitClosesTheConnectionAndTheLimitItselfDoesNot) {
    const auto expect_limit = [](const Opcodes& n, const std::vector<std::string>& requests,
                                 std::uint64_t limit) {
        for (const std::string& request : requests) {
            DrivenServer server;
            RawClient within{server};
            within.send(n.opening + nothing + request + u64(limit));
            RawClient beyond{server};
            beyond.send(n.opening + nothing + request + u64(limit + 1));
            const std::string where = n.name + " opcode " + std::to_string(int{request[0]});
            EXPECT_TRUE(beyond.closed_by_server()) << where;
            EXPECT_FALSE(within.closed_now()) << where;
        }
    };
    for (const Opcodes* n : {&modern, &legacy}) {
        expect_limit(*n, with_a_key_to_come(*n), max_key_bytes);
        expect_limit(*n, with_a_value_to_come(*n), max_value_bytes);
        expect_limit(*n, with_a_count_to_come(*n), max_keys_per_request);
    }
}

// An operation of the other numbering, or of none, closes the connection of who asked.
TEST(StoreServer, AnOperationThatTheNumberingLacksClosesTheConnection) {
    const auto expect_closed = [](const Opcodes& n, int opcode) {
        DrivenServer server;
        RawClient client{server};
        client.send(n.opening + u8(n.num_keys));
        ASSERT_EQ(client.receive(8), i64(0));
        client.send(u8(opcode));
        std::string answer;
        EXPECT_TRUE(client.closed_by_server(&answer)) << n.name << " opcode " << opcode;
        EXPECT_EQ(answer, "");
    };
    expect_closed(modern, 0);
    for (const int opcode : {19, 20, 127, 128, 255}) expect_closed(modern, opcode);
    for (const int opcode : {13, 14, 18, 19, 127, 128, 255}) expect_closed(legacy, opcode);
}

}  // namespace
}  // namespace ddp::store
