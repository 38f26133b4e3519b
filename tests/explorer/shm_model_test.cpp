// Models of how ranks of one host meet (runtime/backends/shm/protocol.md), with the memory orders
// and the eventcount of the code itself: phases and descriptors as ShmBarrier and fill_descriptor,
// a staged all_reduce as all_reduce_staged, a channel as ShmTransfer. The fast path of Waiter::wait,
// some polls before it sleeps, is one poll here.
#include "backends/shm/memory_orders.hpp"
#include "backends/shm/region/region_layout.hpp"
#include "explorer/explorer.hpp"
#include "explorer/model_policy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace explorer {
namespace {

using ddp::shm::ChannelOrders;
using ddp::shm::PhaseOrders;

constexpr auto relaxed = std::memory_order_relaxed;

enum class Fences { asymmetric, light_alone, heavy_alone, none };

// Doorbell, with fences to leave out.
template <Fences fences>
struct DoorbellPolicy : ModelPolicy<ddp::shm::SharedEventcountPolicy> {
    static void light_fence() {
        if (fences == Fences::asymmetric || fences == Fences::light_alone) explorer::light_fence();
    }
    static void heavy_fence() {
        if (fences == Fences::asymmetric || fences == Fences::heavy_alone) explorer::heavy_fence();
    }
};
template <Fences fences>
using Doorbell = ddp::base::BasicEventcount<DoorbellPolicy<fences>>;

// Two ranks that only poll: their descriptors, and the slots and results of a staged all_reduce.
struct Region {
    struct OpDescriptor {
        Atomic<std::uint32_t> arrived{0};
        Variable<int> line{0};
    };
    std::array<std::array<OpDescriptor, 2>, 2> descriptors;  // by rank and parity
    std::array<std::array<Variable<int>, 2>, 2> slots;       // by rank and place
    std::array<std::array<Variable<int>, 2>, 2> results;     // by place and rank
};

struct Rank {
    Region& region;
    std::size_t me;
    PhaseOrders orders;
    std::size_t parities = 2;
    std::uint32_t phase = 0;

    std::size_t other() const { return 1 - me; }
    Region::OpDescriptor& descriptor(std::size_t rank, std::uint32_t of) const {
        return region.descriptors[rank][of % parities];
    }
    void publish(int line) const { descriptor(me, phase + 1).line = line; }
    void arrive() {
        ++phase;
        descriptor(me, phase).arrived.store(phase, orders.arrive);
    }
    void wait() const {
        spin_until(
            [&] { return descriptor(other(), phase).arrived.load(orders.see_arrival) >= phase; });
    }
    int published() const { return descriptor(other(), phase).line; }
};

Result run_ranks(const PhaseOrders& orders, std::size_t parities,
                 const std::function<void(Rank&)>& body) {
    return explore([&](Program& program) {
        auto region = std::make_shared<Region>();
        for (std::size_t me = 0; me < 2; ++me) {
            program.thread([=, &body] {
                Rank rank{*region, me, orders, parities};
                body(rank);
            });
        }
    });
}

// Calls of one phase each, whose data rides in the descriptors.
Result calls_of_one_phase(const PhaseOrders& orders = {}, std::size_t parities = 2) {
    return run_ranks(orders, parities, [](Rank& rank) {
        for (int call = 1; call <= 4; ++call) {
            rank.publish(call);
            rank.arrive();
            rank.wait();
            require(rank.published() == call, "the other's descriptor of this call");
        }
    });
}

TEST(ShmModel, DescriptorsAreReadAsTheyWereWritten) {
    const Result result = calls_of_one_phase();
    EXPECT_EQ(result.verdict, Verdict::passed) << result;
}

TEST(ShmModel, PhasesNeedTheirOrders) {
    EXPECT_EQ(calls_of_one_phase({.arrive = relaxed}).verdict, Verdict::data_race);
    EXPECT_EQ(calls_of_one_phase({.see_arrival = relaxed}).verdict, Verdict::data_race);
}

TEST(ShmModel, DescriptorsNeedTwoLinesByParity) {
    EXPECT_NE(calls_of_one_phase({}, 1).verdict, Verdict::passed);
}

// "What a rank published must be read before arriving at the next phase."
TEST(ShmModel, DescriptorsMustBeReadBeforeTheNextPhase) {
    const Result late = run_ranks({}, 2, [](Rank& rank) {
        for (int call = 1; call <= 4; ++call) {
            rank.publish(call);
            rank.arrive();
            if (call > 1) {
                const int read = rank.descriptor(rank.other(), rank.phase - 1).line;
                require(read == call - 1);
            }
            rank.wait();
        }
    });
    EXPECT_NE(late.verdict, Verdict::passed);
}

// Three calls, of `chunks` each: the next may begin at the same place (CollectiveContext::choose_positions).
Result staged_all_reduce(int chunks, std::size_t places, const PhaseOrders& orders = {}) {
    return run_ranks(orders, 2, [=](Rank& rank) {
        Region& region = rank.region;
        const auto place = [&](int chunk) { return static_cast<std::size_t>(chunk) % places; };
        for (int call = 0; call < 3; ++call) {
            const auto value = [&](int chunk) { return 1 + call * chunks + chunk; };
            const auto stage = [&](int chunk) {
                region.slots[rank.me][place(chunk)] = value(chunk);
            };
            stage(0);
            rank.publish(call);
            rank.arrive();
            rank.wait();
            require(rank.published() == call, "the other's descriptor");
            for (int chunk = 0; chunk < chunks; ++chunk) {
                const int staged = region.slots[rank.other()][place(chunk)];
                require(staged == value(chunk), "what the other has staged");
                region.results[place(chunk)][rank.me] = 2 * staged;
                if (chunk + 1 < chunks) stage(chunk + 1);
                rank.arrive();
                rank.wait();
                const int result = region.results[place(chunk)][rank.other()];
                require(result == 2 * value(chunk), "what the other has reduced");
            }
        }
    });
}

TEST(ShmModel, AStagedAllReduceNeedsOnePlaceForOneChunkAndTwoForSeveral) {
    EXPECT_EQ(staged_all_reduce(1, 1).verdict, Verdict::passed) << staged_all_reduce(1, 1);
    EXPECT_EQ(staged_all_reduce(2, 2).verdict, Verdict::passed) << staged_all_reduce(2, 2);
    EXPECT_EQ(staged_all_reduce(3, 2).verdict, Verdict::passed) << staged_all_reduce(3, 2);
    EXPECT_NE(staged_all_reduce(2, 1).verdict, Verdict::passed);
}

TEST(ShmModel, AStagedAllReduceNeedsThePhasesOrders) {
    EXPECT_EQ(staged_all_reduce(2, 2, {.arrive = relaxed}).verdict, Verdict::data_race);
    EXPECT_EQ(staged_all_reduce(2, 2, {.see_arrival = relaxed}).verdict, Verdict::data_race);
}

// Swapped slots: calls one after another, through the slots that position_of_slot gives.
using PositionOfSlot = ddp::shm::SlotPosition (*)(std::size_t rank, std::uint64_t chunk);

ddp::shm::SlotPosition swapped(std::size_t rank, std::uint64_t chunk) {
    return ddp::shm::position_of_slot(rank, chunk, true);
}

// One rank's calls: what it stages is a number that goes up.
class SwappingRank {
public:
    SwappingRank(Rank& rank, PositionOfSlot position) : rank_(rank), position_(position) {}

    // exchange_staged: a phase a chunk.
    void exchange(int chunks) {
        begin([&] { stage(0); });
        for (int chunk = 0; chunk < chunks; ++chunk) {
            if (chunk > 0) rank_.wait();
            if (chunk + 1 < chunks) {
                stage(chunk + 1);
                rank_.arrive();
            }
            require_staged(chunk);
        }
        next_ += static_cast<std::uint64_t>(chunks);
        staged_ += chunks;
    }

    // all_reduce_staged, from choose_slots on.
    void all_reduce(int chunks) {
        begin([&] { stage(0); });
        for (int chunk = 0; chunk < chunks; ++chunk) {
            require_staged(chunk);
            reduce(chunk);
            if (chunk + 1 < chunks) stage(chunk + 1);
            rank_.arrive();
            rank_.wait();
            copy(chunk);
        }
        next_ += static_cast<std::uint64_t>(chunks);
        next_ += next_ % 2;
        staged_ += chunks;
    }

    // One chunk in the slots of two numbers.
    void all_reduce_as_one() {
        if (next_ % 2 != 0) return all_reduce(2);
        begin([&] { stage(0), stage(1); });
        for (const int chunk : {0, 1}) require_staged(chunk), reduce(chunk);
        rank_.arrive();
        rank_.wait();
        for (const int chunk : {0, 1}) copy(chunk);
        next_ += 2;
        staged_ += 2;
    }

private:
    template <class Stage>
    void begin(const Stage& stage_first) {
        stage_first();
        rank_.publish(staged_);
        rank_.arrive();
        rank_.wait();
        require(rank_.published() == staged_, "the other's descriptor");
    }
    std::uint64_t number(int chunk) const {
        return next_ + static_cast<std::uint64_t>(chunk) % ddp::shm::slots_per_rank;
    }
    Variable<int>& slot(std::size_t rank, int chunk) const {
        const ddp::shm::SlotPosition at = position_(rank, number(chunk));
        return rank_.region.slots[at.owner][at.slot];
    }
    // The share of that rank.
    Variable<int>& result(std::size_t rank, int chunk) const {
        const std::uint64_t of = number(chunk);
        const std::size_t place = ddp::shm::are_results_swapped(of) ? 1 - rank : rank;
        return rank_.region.results[of % 2][place];
    }
    int value(int chunk, std::size_t rank) const {
        return 1 + 2 * (staged_ + chunk) + static_cast<int>(rank);
    }
    void stage(int chunk) const { slot(rank_.me, chunk) = value(chunk, rank_.me); }
    void require_staged(int chunk) const {
        require(slot(rank_.other(), chunk) == value(chunk, rank_.other()), "what is staged");
    }
    void reduce(int chunk) const { result(rank_.me, chunk) = value(chunk, rank_.me); }
    void copy(int chunk) const {
        require(result(rank_.other(), chunk) == value(chunk, rank_.other()), "what is reduced");
    }

    Rank& rank_;
    PositionOfSlot position_;
    std::uint64_t next_ = 0;  // GroupState::next_chunk
    int staged_ = 0;
};

// A letter a call, a digit for its chunks: e: exchange, a: all_reduce; o: an all_reduce as one chunk.
Result calls_in_swapped_slots(const std::string& calls, PositionOfSlot position = swapped,
                              const PhaseOrders& orders = {}) {
    return run_ranks(orders, 2, [=](Rank& rank) {
        SwappingRank swapping(rank, position);
        for (std::size_t i = 0; i < calls.size(); i += 2) {
            const int chunks = calls[i + 1] - '0';
            if (calls[i] == 'e') swapping.exchange(chunks);
            if (calls[i] == 'a') swapping.all_reduce(chunks);
            if (calls[i] == 'o') swapping.all_reduce_as_one();
        }
    });
}

const std::array<const char*, 10> calls_in_a_row{{"e1e1e1e1e1", "a1a1a1a1", "o1o1o1o1", "e7", "a7",
                                                  "e2a3e1o1e3", "a1e1a2e2a1", "o1e1o1e2o1e3o1",
                                                  "e3a1e1a1o1", "a5e5o1"}};

TEST(ShmModel, SwappedSlotsAreNotWrittenWhileTheyAreRead) {
    for (const char* const calls : calls_in_a_row) {
        const Result result = calls_in_swapped_slots(calls);
        EXPECT_EQ(result.verdict, Verdict::passed) << calls << ", " << result;
    }
}

bool finds_what_is_wrong(PositionOfSlot position, const PhaseOrders& orders = {}) {
    for (const char* const calls : calls_in_a_row) {
        if (calls_in_swapped_slots(calls, position, orders).verdict != Verdict::passed) return true;
    }
    return false;
}

TEST(ShmModel, SlotsAreSwappedEverySecondChunkAndNotSooner) {
    EXPECT_TRUE(finds_what_is_wrong([](std::size_t rank, std::uint64_t chunk) {
        return ddp::shm::SlotPosition{(rank + chunk) % 2, chunk % 2};
    }));
    EXPECT_TRUE(finds_what_is_wrong([](std::size_t rank, std::uint64_t chunk) {
        return ddp::shm::SlotPosition{(rank + chunk / 2) % 2, 0};
    }));
    EXPECT_TRUE(finds_what_is_wrong(swapped, {.arrive = relaxed}));
    EXPECT_TRUE(finds_what_is_wrong(swapped, {.see_arrival = relaxed}));
}

// ShmBarrier::arrive and Waiter::wait_slice: each rank sleeps at the other's doorbell.
template <Fences fences>
Result barrier_with_doorbells(std::uint32_t phases, const PhaseOrders& orders = {}) {
    return explore([=](Program& program) {
        struct Shared {
            std::array<std::array<Atomic<std::uint32_t>, 2>, 2> arrived;
            std::array<Doorbell<fences>, 2> doorbells;
        };
        auto shared = std::make_shared<Shared>();
        for (std::size_t me = 0; me < 2; ++me) {
            program.thread([=] {
                for (std::uint32_t phase = 1; phase <= phases; ++phase) {
                    shared->arrived[me][phase % 2].store(phase, orders.arrive);
                    shared->doorbells[me].notify_all();
                    shared->doorbells[1 - me].await([&] {
                        return shared->arrived[1 - me][phase % 2].load(orders.see_arrival) >= phase;
                    });
                }
            });
        }
    });
}

TEST(ShmModel, NoWaiterAtADoorbellIsMissed) {
    const Result result = barrier_with_doorbells<Fences::asymmetric>(2);
    EXPECT_EQ(result.verdict, Verdict::passed) << result;
    // As it was before the eventcount: only a look of 20 us, which no model has, came between.
    EXPECT_EQ(barrier_with_doorbells<Fences::none>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(barrier_with_doorbells<Fences::light_alone>(1).verdict, Verdict::deadlock);
    EXPECT_EQ(barrier_with_doorbells<Fences::heavy_alone>(1).verdict, Verdict::deadlock);
}

// A message of `chunks` through a channel of two.
constexpr int channel_slots = 2;

Result channel(const ChannelOrders& orders = {}, int room = channel_slots, int chunks = 4) {
    return explore([=](Program& program) {
        struct Channel {
            Atomic<int> written{0}, read{0};
            std::array<Variable<int>, channel_slots> message, slots;
        };
        auto shared = std::make_shared<Channel>();
        const auto slot = [](int chunk) { return static_cast<std::size_t>(chunk % channel_slots); };
        program.thread([=] {
            int seen = 0;  // of `read`: looked at only when that leaves no room
            for (int chunk = 0; chunk < chunks; ++chunk) {
                const auto sees_room = [&] {
                    const int read = shared->read.load(orders.see_read);
                    if (chunk - read < room) seen = read;
                    return chunk - read < room;
                };
                if (chunk - seen >= room) spin_until(sees_room);
                shared->slots[slot(chunk)] = chunk + 1;
                shared->message[slot(chunk)] = chunks;
                shared->written.store(chunk + 1, orders.write);
            }
        });
        program.thread([=] {
            for (int chunk = 0; chunk < chunks; ++chunk) {
                spin_until([&] { return shared->written.load(orders.see_written) > chunk; });
                require(shared->message[slot(chunk)] == chunks, "the message's size");
                require(shared->slots[slot(chunk)] == chunk + 1, "the chunk");
                shared->read.store(chunk + 1, orders.read);
            }
        });
    });
}

TEST(ShmModel, AChannelHandsItsChunksOverInOrder) {
    const Result result = channel();
    EXPECT_EQ(result.verdict, Verdict::passed) << result;
}

TEST(ShmModel, AChannelNeedsEachOfItsOrders) {
    EXPECT_EQ(channel({.write = relaxed}).verdict, Verdict::data_race);
    EXPECT_EQ(channel({.see_written = relaxed}).verdict, Verdict::data_race);
    EXPECT_EQ(channel({.read = relaxed}).verdict, Verdict::data_race);
    EXPECT_EQ(channel({.see_read = relaxed}).verdict, Verdict::data_race);
}

TEST(ShmModel, AChannelNeedsAFreeSlotForEachChunk) {
    EXPECT_NE(channel({}, channel_slots + 1).verdict, Verdict::passed);
}

}  // namespace
}  // namespace explorer
