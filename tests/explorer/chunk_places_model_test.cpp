// Two ranks send each other messages of a chunk each, in the places that the code itself chooses
// (ChunkPlaces, with swapped slots): the model has the two channels, and the lines of their rooms.
// Each rank sends and receives in an order that the test gives, and waits for each step.
#include "backends/shm/transfer/chunk_places.hpp"
#include "explorer/explorer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace explorer {
namespace {

using ddp::shm::cache_line;
using ddp::shm::channel_slots;
using ddp::shm::ChannelOrders;
using ddp::shm::ChunkPlace;

constexpr auto relaxed = std::memory_order_relaxed;

constexpr std::size_t lines_of_a_chunk = 2;  // of the longest
constexpr std::size_t places_of_a_slot = 3;
constexpr std::size_t lines_of_a_room = channel_slots * places_of_a_slot * lines_of_a_chunk;

struct Channel {
    Atomic<std::uint64_t> written{0}, read{0};
    std::array<Variable<int>, channel_slots> lines;  // of each chunk's message
    std::array<Variable<std::uint32_t>, channel_slots> place;
    std::array<Variable<int>, lines_of_a_room> room;
};

struct Region {
    std::array<Channel, 2> channels;  // by sender
    std::array<std::size_t, 2> swaps{};
};

// What to leave out of the rules or the orders.
struct Weakened {
    ChannelOrders orders = {};
    bool forgets_the_last_read = false;    // in which the peer may be writing
    bool forgets_what_peer_wrote = false;  // into this rank's room
    bool publishes_late = false;           // of the second rank: after its next read
};

// What ChunkPlaces wants of a region, as one rank sees it.
class RegionView {
public:
    RegionView(Region& region, const Weakened& weakened) : region_(region), weakened_(weakened) {
        // A sender goes round in four places; more are there for those that it finds in use.
        tuning_.coloring = {.min_bytes = 0, .footprint_bytes = 0, .swaps = 1};
    }
    const ddp::shm::Tuning& tuning() const { return tuning_; }
    static std::size_t channel_slot_bytes() { return lines_of_a_chunk * cache_line; }
    static std::size_t channel_slot_room() { return places_of_a_slot * channel_slot_bytes(); }
    static std::byte* channel_slot(int, int, std::uint64_t) { return nullptr; }
    const Channel& channel(int from, int) const {
        return weakened_.forgets_what_peer_wrote ? nothing_ : of(from);
    }
    Channel& of(int from) const { return region_.channels.at(static_cast<std::size_t>(from)); }

private:
    Region& region_;
    const Weakened& weakened_;
    ddp::shm::Tuning tuning_{};
    Channel nothing_;
};

class Rank {
public:
    Rank(Region& region, int me, const Weakened& weakened)
        : region_(region),
          me_(me),
          weakened_(weakened),
          view_(region, weakened),
          places_(view_, me, 1 - me) {}

    void send(int lines) {
        Channel& channel = view_.of(me_);
        const auto sees_room = [&] {
            const std::uint64_t read = channel.read.load(weakened_.orders.see_read);
            if (sent_ - read < channel_slots) seen_read_ = read;
            return sent_ - read < channel_slots;
        };
        if (sent_ - seen_read_ >= channel_slots) spin_until(sees_room);
        const auto bytes = static_cast<std::size_t>(lines) * cache_line;
        const std::uint64_t read = seen_read_ + (weakened_.forgets_the_last_read ? 1 : 0);
        const ChunkPlace place = places_.choose({sent_, read, received_}, bytes, bytes);
        region_.swaps.at(static_cast<std::size_t>(me_)) += place.in_receivers_room ? 1 : 0;
        for (int line = 0; line < lines; ++line)
            line_of(place, me_, line) = value(me_, sent_, line);
        channel.lines.at(sent_ % channel_slots) = lines;
        channel.place.at(sent_ % channel_slots) = place.to_word();
        ++sent_;
        if (!weakened_.publishes_late || me_ == 0) publish_written();
    }

    void receive(int lines) {
        const int peer = 1 - me_;
        Channel& channel = view_.of(peer);
        spin_until([&] { return channel.written.load(weakened_.orders.see_written) > received_; });
        require(channel.lines.at(received_ % channel_slots) == lines, "the message's size");
        const ChunkPlace place = ChunkPlace::of_word(channel.place.at(received_ % channel_slots),
                                                     static_cast<std::size_t>(lines) * cache_line);
        for (int line = 0; line < lines; ++line) {
            require(line_of(place, peer, line) == value(peer, received_, line), "the chunk");
        }
        ++received_;
        channel.read.store(received_, weakened_.orders.read);
        places_.note_read(place);
        publish_written();
    }

    void publish_written() {
        if (published_ == sent_) return;
        published_ = sent_;
        view_.of(me_).written.store(sent_, weakened_.orders.write);
    }

private:
    static int value(int from, std::uint64_t chunk, int line) {
        return 1 + from + 2 * (line + 2 * static_cast<int>(chunk));
    }
    Variable<int>& line_of(const ChunkPlace& place, int sender, int line) const {
        const int owner = place.in_receivers_room ? 1 - sender : sender;
        return view_.of(owner).room.at(place.offset / cache_line + static_cast<std::size_t>(line));
    }

    Region& region_;
    int me_;
    const Weakened& weakened_;
    RegionView view_;
    ddp::shm::BasicChunkPlaces<RegionView> places_;
    std::uint64_t sent_ = 0, published_ = 0, received_ = 0, seen_read_ = 0;
};

// What each rank does: s, S: sends a chunk of one or two lines; r: receives the next.
struct Orders {
    std::string first, second;
};

int lines_of(const std::string& order, int message) {
    for (const char step : order) {
        if (step != 'r' && message-- == 0) return step == 'S' ? 2 : 1;
    }
    return 0;
}

Result exchange(const Orders& orders, const Weakened& weakened = {}) {
    const auto make = [&](Program& program) {
        auto region = std::make_shared<Region>();
        for (const int me : {0, 1}) {
            program.thread([=, &orders, &weakened] {
                Rank rank(*region, me, weakened);
                const std::string& mine = me == 0 ? orders.first : orders.second;
                const std::string& theirs = me == 0 ? orders.second : orders.first;
                int sent = 0, received = 0;
                for (const char step : mine) {
                    if (step == 'r') {
                        rank.receive(lines_of(theirs, received++));
                    } else {
                        rank.send(lines_of(mine, sent++));
                    }
                }
                rank.publish_written();
            });
        }
        program.at_end([=] {
            return std::to_string(region->swaps[0]) + " and " + std::to_string(region->swaps[1]);
        });
    };
    return explore(make, {.max_preemptions = 2});  // with more there are millions of states
}

const Orders goes_round{"sssssr", "rsrrrr"};  // to where the other has written meanwhile
const std::array<Orders, 7> all_orders{{
    goes_round,
    {"srsrsrsrsrsr", "rsrsrsrsrsrs"},  // to and fro
    {"srsrsrsr", "srsrsrsr"},          // at once
    {"sssrrrsr", "sssrrrsr"},          // in bursts
    {"ssrrssrr", "rrssrrss"},          // in bursts, in turn
    {"sSrrsSrr", "SrsrSrsr"},          // of different sizes
    {"ssssrsrr", "srrrrssr"},          // many at the same time; not as many of both
}};

TEST(ChunkPlacesModel, ChunksLieInEachOthersPlacesAndNoneWhereAnotherIsRead) {
    for (const Orders& orders : all_orders) {
        const Result result = exchange(orders);
        EXPECT_EQ(result.verdict, Verdict::passed) << orders.first << ", " << result;
        EXPECT_FALSE(result.outcomes.contains("0 and 0")) << orders.first << ": none was swapped";
    }
}

bool has_data_race(const ChannelOrders& weakened) {
    return std::any_of(all_orders.begin(), all_orders.end(), [&](const Orders& orders) {
        return exchange(orders, {.orders = weakened}).verdict == Verdict::data_race;
    });
}

TEST(ChunkPlacesModel, PlacesNeedEachOfTheChannelsOrders) {
    EXPECT_TRUE(has_data_race({.write = relaxed}));
    EXPECT_TRUE(has_data_race({.see_written = relaxed}));
    EXPECT_TRUE(has_data_race({.read = relaxed}));
    EXPECT_TRUE(has_data_race({.see_read = relaxed}));
}

TEST(ChunkPlacesModel, TheLastChunkReadByThePeerIsInUse) {
    EXPECT_EQ(exchange(goes_round, {.forgets_the_last_read = true}).verdict, Verdict::data_race);
}

TEST(ChunkPlacesModel, WhatThePeerWroteHereIsInUse) {
    EXPECT_EQ(exchange(goes_round, {.forgets_what_peer_wrote = true}).verdict, Verdict::assertion);
}

TEST(ChunkPlacesModel, WhatWasWrittenIsPublishedBeforeTheNextRead) {
    EXPECT_EQ(exchange(goes_round, {.publishes_late = true}).verdict, Verdict::assertion);
}

}  // namespace
}  // namespace explorer
