// What the server knows, without a network: what is left behind by clients that go, and what is
// counted against the limits. The replies to each operation are in store_server_test.cpp.
#include "store/store_data.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

class StoreDataTest : public testing::Test {
protected:
    // The replies that the request causes, to whomever.
    Replies run(ClientId client, const Request& request, Era era = Era::modern) {
        Replies replies;
        data.execute(client, era, request, replies);
        return replies;
    }
    std::string only_reply(ClientId client, const Request& request) {
        const auto replies = run(client, request);
        EXPECT_EQ(replies.size(), 1U);
        EXPECT_EQ(replies.at(0).to, client);
        return replies.at(0).bytes;
    }

    StoreData data;
};

TEST_F(StoreDataTest, PoppedValuesNoLongerCountAgainstTheLimit) {
    const std::string value(max_value_bytes, 'v');
    const auto more_than_fit = 2 * StoreLimits{}.map_bytes / max_value_bytes;
    for (std::size_t i = 0; i < more_than_fit; ++i) {
        run(1, {.op = Opcode::queue_push, .keys = {"q"}, .values = {value}});
        ASSERT_EQ(run(1, {.op = Opcode::queue_pop, .keys = {"q"}}).at(0).bytes,
                  i64(1) + str(value));
    }
}

TEST_F(StoreDataTest, QueuedValuesCountAgainstTheLimit) {
    const Request push{
        .op = Opcode::queue_push, .keys = {"q"}, .values = {std::string(max_value_bytes, 'v')}};
    std::size_t pushed = 0;
    const auto push_until_full = [&] {
        while (pushed < 100) {
            run(1, push);
            ++pushed;
        }
    };
    EXPECT_THROW(push_until_full(), UsageError);
    EXPECT_LT(pushed * max_value_bytes, StoreLimits{}.map_bytes);
    EXPECT_EQ(only_reply(1, {.op = Opcode::queue_len, .keys = {"q"}}),
              i64(static_cast<std::int64_t>(pushed)));
}

TEST_F(StoreDataTest, AReplyOfMoreThan64MiBIsRefused) {
    run(1, {.op = Opcode::set, .keys = {"k"}, .values = {std::string(max_value_bytes, 'v')}});
    const auto replies = run(1, {.op = Opcode::multi_get, .keys = StoreKeys(7, "k")});
    ASSERT_EQ(replies.size(), 1U);
    EXPECT_EQ(replies[0].size(), 7 * (max_value_bytes + 8));
    EXPECT_THROW(run(1, {.op = Opcode::multi_get, .keys = StoreKeys(8, "k")}), UsageError);
}

TEST_F(StoreDataTest, AWatcherIsToldOnceHoweverOftenItAsked) {
    for (int i = 0; i < 2; ++i) {
        run(1, {.op = Opcode::watch_key, .keys = {"k"}}, Era::legacy);
    }
    EXPECT_EQ(run(2, {.op = Opcode::set, .keys = {"k"}, .values = {"v"}}).size(), 1U);
}

TEST_F(StoreDataTest, OneClientWatchesABoundedNumberOfKeys) {
    const auto watch = [&](std::size_t i) {
        run(1, {.op = Opcode::watch_key, .keys = {std::to_string(i)}}, Era::legacy);
    };
    for (std::size_t i = 0; i < max_watches_per_client; ++i) watch(i);
    EXPECT_THROW(watch(max_watches_per_client), UsageError);
}

TEST_F(StoreDataTest, AForgottenClientIsToldNothing) {
    run(1, {.op = Opcode::watch_key, .keys = {"k"}}, Era::legacy);
    run(1, {.op = Opcode::wait, .keys = {"k"}}, Era::legacy);
    data.forget(1);
    EXPECT_TRUE(run(2, {.op = Opcode::set, .keys = {"k"}, .values = {"v"}}).empty());
}

TEST_F(StoreDataTest, ABarrierThatIsOverLetsEveryoneThrough) {
    EXPECT_TRUE(run(1, {.op = Opcode::barrier, .keys = {"b"}, .number = 2}).empty());
    EXPECT_EQ(run(2, {.op = Opcode::barrier, .keys = {"b"}, .number = 2}).size(), 2U);
    EXPECT_EQ(only_reply(1, {.op = Opcode::barrier, .keys = {"b"}, .number = 2}), u8(0));
}

TEST_F(StoreDataTest, AKeyDeletedWhileOthersAreAwaitedHasComeAllTheSame) {
    run(1, {.op = Opcode::wait, .keys = {"a", "b"}});
    run(2, {.op = Opcode::set, .keys = {"a"}, .values = {"v"}});
    run(2, {.op = Opcode::delete_key, .keys = {"a"}});
    const auto replies = run(2, {.op = Opcode::set, .keys = {"b"}, .values = {"v"}});
    ASSERT_EQ(replies.size(), 1U);
    EXPECT_EQ(replies[0].to, 1U);
}

}  // namespace
}  // namespace ddp::store
