// Which way what a rank stages goes, by what both ways have cost of late.
#include "backends/shm/transfer/slot_stores.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace {

using ddp::backends::Store;
using ddp::shm::SlotStores;
using ddp::shm::Tuning;

constexpr std::size_t call = 1 << 20;
constexpr std::size_t part = 1 << 18;

Tuning tuning_with(std::uint64_t gain_ps) {
    Tuning tuning{};
    tuning.streaming_bytes = std::uint64_t{1} << 30;
    tuning.streaming_gain_ps = gain_ps;
    return tuning;
}

// What a byte costs its writer, in picoseconds.
struct Cost {
    double cached, streaming;
};
constexpr Cost near{.cached = 40, .streaming = 35};
constexpr Cost far{.cached = 500, .streaming = 35};

// How many of so many parts went past the caches.
int streamed(SlotStores& stores, int parts, Cost cost, std::size_t bytes = call) {
    int count = 0;
    for (int i = 0; i < parts; ++i) {
        const Store store = stores.next_store(bytes, part);
        const bool streams = store == Store::streaming;
        count += streams ? 1 : 0;
        stores.note(bytes, store, part, part * (streams ? cost.streaming : cost.cached));
    }
    return count;
}

TEST(SlotStores, StreamOnlyNowAndThenWhereCoresAreNear) {
    SlotStores stores(tuning_with(70));
    const int count = streamed(stores, 6'400, near);
    EXPECT_GE(count, 1) << "nobody would know";
    EXPECT_LE(count, 101);
    EXPECT_EQ(stores.store_of(call, part), Store::cached);
}

TEST(SlotStores, StreamAllButAFewWhereCoresAreFar) {
    SlotStores stores(tuning_with(70));
    EXPECT_GE(streamed(stores, 6'400, far), 6'400 - 110);
    EXPECT_EQ(stores.store_of(call, part), Store::streaming);
}

TEST(SlotStores, FollowAMachineThatMoves) {
    SlotStores stores(tuning_with(70));
    for (int move = 0; move < 5; ++move) {
        streamed(stores, 100, near);
        EXPECT_EQ(stores.store_of(call, part), Store::cached);
        streamed(stores, 100, far);
        EXPECT_EQ(stores.store_of(call, part), Store::streaming);
    }
}

TEST(SlotStores, AreNotMisledByOnePartThatWasHeldUp) {
    SlotStores stores(tuning_with(70));
    streamed(stores, 100, near);
    streamed(stores, 1, {.cached = 50'000, .streaming = 50'000});
    EXPECT_EQ(stores.store_of(call, part), Store::cached);
    streamed(stores, 100, far);
    streamed(stores, 1, {.cached = 50'000, .streaming = 50'000});
    EXPECT_EQ(stores.store_of(call, part), Store::streaming);
}

TEST(SlotStores, LearnForEachSizeOfItsOwn) {
    SlotStores stores(tuning_with(70));
    streamed(stores, 100, far, call);
    streamed(stores, 100, near, call / 4);
    EXPECT_EQ(stores.store_of(call, part), Store::streaming);
    EXPECT_EQ(stores.store_of(call / 4, part), Store::cached);
    EXPECT_EQ(stores.store_of(call / 64, part), Store::cached) << "not seen yet";
}

TEST(SlotStores, CopyTheSameBytesEveryWay) {
    Tuning always = tuning_with(0);
    always.streaming_bytes = 0;
    for (const Tuning& tuning : {tuning_with(0), tuning_with(1), tuning_with(1'000'000), always}) {
        SlotStores stores(tuning);
        for (std::size_t bytes : {0, 1, 4'095, 4'096, 10'001}) {
            for (int i = 0; i < 10; ++i) {
                std::vector<std::byte> from(bytes);
                for (std::size_t at = 0; at < bytes; ++at) {
                    from[at] = static_cast<std::byte>(at * 7 + static_cast<std::size_t>(i));
                }
                std::vector<std::byte> slot(bytes), twice(bytes), also(bytes);
                stores.put(bytes, slot.data(), from.data(), bytes);
                stores.put(bytes, twice.data(), from.data(), bytes, also.data());
                EXPECT_EQ(slot, from);
                EXPECT_EQ(twice, from);
                EXPECT_EQ(also, from);
            }
        }
    }
}

TEST(SlotStores, DoNotCompareWhereTheTableSaysSo) {
    SlotStores never(tuning_with(0));
    EXPECT_EQ(streamed(never, 1'000, far), 0);
    const std::size_t large = std::size_t{1} << 30;
    EXPECT_EQ(streamed(never, 1'000, near, large), 1'000);
}

TEST(SlotStores, KeepPartsThatAreTooSmallToGainInTheCaches) {
    SlotStores stores(tuning_with(70));
    streamed(stores, 100, {.cached = 140, .streaming = 35});
    EXPECT_EQ(stores.store_of(call, part), Store::streaming);
    EXPECT_EQ(stores.store_of(call, 4'096), Store::cached) << "its reader waits longer";
}

}  // namespace
