// What the server knows, without a network: what is left behind by clients that go, and what is
// counted against the limits. The replies to each operation are in store_server_test.cpp.
#include "store/server/store_data.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <stdexcept>

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

TEST_F(StoreDataTest, KeysOfEmptiedQueuesNoLongerCountAgainstTheLimit) {
    StoreData small(StoreLimits{.map_bytes = std::size_t{1} << 20});
    const auto before = small.held_bytes();
    for (int i = 0; i < 1000; ++i) {
        const std::string key = std::to_string(i) + std::string(max_key_bytes - 10, 'k');
        Replies replies;
        small.execute(1, Era::modern, {.op = Opcode::queue_push, .keys = {key}, .values = {"v"}},
                      replies);
        small.execute(1, Era::modern, {.op = Opcode::queue_pop, .keys = {key}}, replies);
    }
    EXPECT_EQ(small.held_bytes(), before);
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

Request set_of(const std::string& key, std::size_t bytes) {
    return {.op = Opcode::set, .keys = {key}, .values = {std::string(bytes, 'v')}};
}

std::string refusal_of(StoreData& data, ClientId client, const Request& request) {
    Replies replies;
    try {
        data.execute(client, Era::modern, request, replies);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

TEST(StoreDataLimits, TheLastEighthOfTheMapIsKeptForRanks) {
    StoreData data{{.map_bytes = 80'000}};
    Replies replies;
    for (const auto* key : {"a", "b", "c", "d", "e", "f"}) {
        data.execute(1, Era::modern, set_of(key, 10'000), replies);
    }
    EXPECT_NE(refusal_of(data, 1, set_of("g", 10'000)), "none");
    data.budget().mark_rank(2);
    EXPECT_EQ(refusal_of(data, 2, set_of("g", 10'000)), "none");
    EXPECT_NE(refusal_of(data, 2, set_of("h", 10'000)), "none");
}

TEST(StoreDataLimits, AFullMapNamesWhoFilledItAlsoWhenTheyHaveLeft) {
    StoreData data{{.map_bytes = 80'000}, {.describe = [](ClientId client) {
                       return client == 9 ? "uid 1000, pid 7 (rank)"
                                          : "uid 65534, pid 4711 (python3)";
                   }}};
    Replies replies;
    for (ClientId client = 1; client <= 3; ++client) {
        data.execute(client, Era::modern, set_of(std::to_string(client), 15'000), replies);
        data.forget(client);
    }
    data.execute(9, Era::modern, set_of("mine", 18'000), replies);
    const auto each = 15'000 + 1 + StoreMap::entry_bytes;
    EXPECT_EQ(refusal_of(data, 9, set_of("more", 10'000)),
              "store: full, more than 70000 bytes; most of it, " + std::to_string(3 * each) +
                  " bytes, was set by uid 65534, pid 4711 (python3)");
}

// One item each: what a queue costs beside it counts.
TEST(StoreDataLimits, QueuesOfOneItemCountForWhatTheyCost) {
    constexpr std::size_t least_cost = 780;  // node, bucket, and what a std::deque begins with
    StoreData data{{.map_bytes = 1 << 20}};
    Replies replies;
    std::size_t queues = 0;
    const auto push_until_full = [&] {
        for (; queues < 10'000; ++queues) {
            data.execute(
                1, Era::modern,
                {.op = Opcode::queue_push, .keys = {std::to_string(queues)}, .values = {"v"}},
                replies);
        }
    };
    EXPECT_THROW(push_until_full(), UsageError);
    EXPECT_LT(queues * least_cost, std::size_t{1} << 20);
}

TEST(StoreDataLimits, WhatWasTakenFromAQueueIsNobodysAnyMore) {
    StoreData data{{.map_bytes = 8'000}};
    Replies replies;
    const Request push{.op = Opcode::queue_push, .keys = {"q"}, .values = {"v"}};
    data.execute(1, Era::modern, push, replies);
    for (int i = 0; i < 10; ++i) {
        data.execute(1, Era::modern, push, replies);
        data.execute(1, Era::modern, {.op = Opcode::queue_pop, .keys = {"q"}}, replies);
    }
    const std::string refusal = refusal_of(data, 2, set_of("more", 8'000));
    EXPECT_TRUE(refusal.ends_with("most of it, 65 bytes, was set by connection 1")) << refusal;
}

// Between its last request and its last reply it is no rank any more.
TEST(StoreDataLimits, WhoSendsNothingMoreIsNamedAsItWasThen) {
    std::string name = "rank 3";
    StoreData data{{.map_bytes = 8'000}, {.describe = [&](ClientId) { return name; }}};
    Replies replies;
    data.execute(1, Era::modern, set_of("k", 6'000), replies);
    data.end_input(1);
    name = "uid 0";
    data.forget(1);
    const std::string refusal = refusal_of(data, 2, set_of("more", 1'000));
    EXPECT_TRUE(refusal.ends_with("was set by rank 3")) << refusal;
}

// The hook knows only those that are there.
TEST(StoreDataLimits, WhoLeftAndSetLittleIsAConnection) {
    StoreData data{{.map_bytes = 1'600'000}, {.describe = [](ClientId client) -> std::string {
                       if (client < 3) throw std::out_of_range{"gone"};
                       return "somebody";
                   }}};
    Replies replies;
    for (ClientId client = 1; client <= 2; ++client) {
        data.execute(client, Era::modern, set_of(std::to_string(client), 300 * client), replies);
        data.forget(client);
    }
    EXPECT_EQ(refusal_of(data, 3, set_of("k", 1'500'000)),
              "store: full, more than 1400000 bytes; most of it, " +
                  std::to_string(601 + StoreMap::entry_bytes) + " bytes, was set by connection 2");
}

TEST(StoreDataLimits, AWaitOrWatchForWhichThereIsNoMemoryIsRefused) {
    StoreData data{{.working_bytes = 96 << 10}};
    StoreKeys keys;
    for (int i = 0; i < 30; ++i) keys.push_back(std::to_string(i) + std::string(1000, 'k'));
    EXPECT_EQ(refusal_of(data, 1, {.op = Opcode::wait, .keys = keys}).find("store: no memory"), 0U);
    keys.resize(10);
    EXPECT_EQ(refusal_of(data, 1, {.op = Opcode::wait, .keys = keys}), "none");
    std::size_t watched = 0;
    while (watched < 100 &&
           refusal_of(data, 2,
                      {.op = Opcode::watch_key,
                       .keys = {std::to_string(watched) + std::string(1000, 'k')}}) == "none") {
        ++watched;
    }
    EXPECT_GT(watched, 2U);
    EXPECT_LT(watched, 20U);
}

TEST(StoreDataLimits, WithoutAHookAConnectionIsNamed) {
    StoreData data{{.map_bytes = 8'000}};
    Replies replies;
    data.execute(17, Era::modern,
                 {.op = Opcode::queue_push, .keys = {"q"}, .values = {std::string(5'500, 'v')}},
                 replies);
    EXPECT_EQ(
        refusal_of(data, 18, set_of("k", 1'000)),
        "store: full, more than 7000 bytes; most of it, 5564 bytes, was set by connection 17");
}

TEST_F(StoreDataTest, WhatAClientWaitsForIsChargedUntilItComesOrTheClientGoes) {
    StoreKeys keys;
    for (int i = 0; i < 100; ++i) keys.push_back(std::to_string(i) + std::string(1000, 'k'));
    run(1, {.op = Opcode::wait, .keys = keys});
    EXPECT_GE(data.budget().used_by(1), 2 * 100 * 1000U);
    run(2, {.op = Opcode::multi_set, .keys = keys, .values = StoreValues(100, "v")});
    EXPECT_EQ(data.budget().used_by(1), MemoryBudget::connection_bytes);
    run(1, {.op = Opcode::wait, .keys = {"never"}});
    EXPECT_GT(data.budget().used_by(1), MemoryBudget::connection_bytes);
    run(1, {.op = Opcode::cancel_wait});
    EXPECT_EQ(data.budget().used_by(1), MemoryBudget::connection_bytes);
    run(1, {.op = Opcode::watch_key, .keys = {"never"}}, Era::legacy);
    EXPECT_GT(data.budget().used_by(1), MemoryBudget::connection_bytes);
    data.forget(1);
    EXPECT_EQ(data.budget().used_by(1), 0U);
}

TEST_F(StoreDataTest, OneEventIsSharedByAllWatchersAndCountedOnce) {
    const std::string value(max_value_bytes, 'v');
    for (ClientId client = 1; client <= 50; ++client) {
        run(client, {.op = Opcode::watch_key, .keys = {"k"}}, Era::legacy);
    }
    run(99, {.op = Opcode::set, .keys = {"k"}, .values = {value}});
    data.detached().recount();
    EXPECT_EQ(data.detached().bytes(), 0U);
    {
        const auto events = run(99, {.op = Opcode::set, .keys = {"k"}, .values = {value}});
        ASSERT_EQ(events.size(), 50U);
        for (const auto& event : events) {
            ASSERT_EQ(event.shared.size(), 4U);
            EXPECT_EQ(event.shared[1].value, events[0].shared[1].value);
        }
        EXPECT_GE(data.detached().bytes(), max_value_bytes);  // what was there before
        EXPECT_LT(data.detached().bytes(), max_value_bytes + 1000);
    }
    data.detached().recount();
    EXPECT_EQ(data.detached().bytes(), 0U);
}

TEST_F(StoreDataTest, ASharedValueStaysAsItWasWhenTheKeyChanges) {
    const std::string value(5000, 'v');
    for (const auto& change : {Request{.op = Opcode::set, .keys = {"k"}, .values = {"new"}},
                               Request{.op = Opcode::append, .keys = {"k"}, .values = {"more"}},
                               Request{.op = Opcode::delete_key, .keys = {"k"}}}) {
        run(1, {.op = Opcode::set, .keys = {"k"}, .values = {value}});
        const auto replies = run(1, {.op = Opcode::get, .keys = {"k"}});
        ASSERT_EQ(replies.at(0).shared.size(), 1U);
        run(2, change);
        EXPECT_EQ(replies[0].shared[0].value->bytes, value);
        EXPECT_TRUE(replies[0].shared[0].value->is_detached);
    }
    EXPECT_GE(data.detached().bytes(), value.size());
}

}  // namespace
}  // namespace ddp::store
