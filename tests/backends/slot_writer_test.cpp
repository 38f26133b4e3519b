// Which way what a rank stages goes, by what both ways have cost of late.
#include "backends/shm/transfer/slot_writer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

namespace {

using ddp::backends::Store;
using ddp::shm::SlotWriter;
using ddp::shm::Tuning;

constexpr std::size_t call = 1 << 20;
constexpr std::size_t part = 1 << 18;

Tuning tuning_with(std::uint64_t gain_ps) {
    Tuning tuning{};
    tuning.streaming.min_gain_ps = gain_ps;
    return tuning;
}

// What a byte costs its writer, in picoseconds.
struct Cost {
    double cached, streaming;
};
constexpr Cost near{.cached = 40, .streaming = 35};
constexpr Cost far{.cached = 500, .streaming = 35};

// How many of so many parts went past the caches.
int streamed(SlotWriter& writer, int parts, Cost cost, std::size_t bytes = call) {
    int count = 0;
    for (int i = 0; i < parts; ++i) {
        const Store store = writer.next_store(bytes, part);
        const bool streams = store == Store::streaming;
        count += streams ? 1 : 0;
        writer.record(bytes, store, part, part * (streams ? cost.streaming : cost.cached));
    }
    return count;
}

TEST(SlotWriter, StreamsOnlyNowAndThenWhereCoresAreNear) {
    SlotWriter writer(tuning_with(70));
    const int count = streamed(writer, 6'400, near);
    EXPECT_GE(count, 1) << "nobody would know";
    EXPECT_LE(count, 101);
    EXPECT_EQ(writer.best_store(call, part), Store::cached);
}

TEST(SlotWriter, StreamsAllButAFewWhereCoresAreFar) {
    SlotWriter writer(tuning_with(70));
    EXPECT_GE(streamed(writer, 6'400, far), 6'400 - 110);
    EXPECT_EQ(writer.best_store(call, part), Store::streaming);
}

TEST(SlotWriter, FollowsAMachineThatMoves) {
    SlotWriter writer(tuning_with(70));
    for (int move = 0; move < 5; ++move) {
        streamed(writer, 100, near);
        EXPECT_EQ(writer.best_store(call, part), Store::cached);
        streamed(writer, 100, far);
        EXPECT_EQ(writer.best_store(call, part), Store::streaming);
    }
}

TEST(SlotWriter, IsNotMisledByOnePartThatWasHeldUp) {
    SlotWriter writer(tuning_with(70));
    streamed(writer, 100, near);
    streamed(writer, 1, {.cached = 50'000, .streaming = 50'000});
    EXPECT_EQ(writer.best_store(call, part), Store::cached);
    streamed(writer, 100, far);
    streamed(writer, 1, {.cached = 50'000, .streaming = 50'000});
    EXPECT_EQ(writer.best_store(call, part), Store::streaming);
}

TEST(SlotWriter, LearnsForEachSizeOfItsOwn) {
    SlotWriter writer(tuning_with(70));
    streamed(writer, 100, far, call);
    streamed(writer, 100, near, call / 4);
    EXPECT_EQ(writer.best_store(call, part), Store::streaming);
    EXPECT_EQ(writer.best_store(call / 4, part), Store::cached);
    EXPECT_EQ(writer.best_store(call / 64, part), Store::cached) << "not seen yet";
}

TEST(SlotWriter, CopiesTheSameBytesInBothModes) {
    for (const Tuning& tuning : {tuning_with(0), tuning_with(1), tuning_with(1'000'000)}) {
        SlotWriter writer(tuning);
        for (std::size_t bytes : {0, 1, 4'095, 4'096, 10'001}) {
            for (int i = 0; i < 10; ++i) {
                std::vector<std::byte> from(bytes);
                for (std::size_t at = 0; at < bytes; ++at) {
                    from[at] = static_cast<std::byte>(at * 7 + static_cast<std::size_t>(i));
                }
                std::vector<std::byte> slot(bytes), twice(bytes), also(bytes);
                writer.write(bytes, slot.data(), from.data(), bytes);
                writer.write(bytes, twice.data(), from.data(), bytes, also.data());
                EXPECT_EQ(slot, from);
                EXPECT_EQ(twice, from);
                EXPECT_EQ(also, from);
            }
        }
    }
}

TEST(SlotWriter, DoesNotCompareWhereTheTableSaysSo) {
    SlotWriter never(tuning_with(0));
    EXPECT_EQ(streamed(never, 1'000, far), 0);
}

TEST(SlotWriter, KeepsPartsThatAreTooSmallToGainInTheCaches) {
    SlotWriter writer(tuning_with(70));
    streamed(writer, 100, {.cached = 140, .streaming = 35});
    EXPECT_EQ(writer.best_store(call, part), Store::streaming);
    EXPECT_EQ(writer.best_store(call, 4'096), Store::cached) << "its reader waits longer";
}

}  // namespace
