// Models of how ranks of one host meet (runtime/backends/shm/protocol.md), with the memory orders
// and the eventcount of the code itself: phases and descriptors as ShmBarrier and fill_descriptor,
// a staged all_reduce as all_reduce_staged, a channel as ShmTransfer. The fast path of Waiter::wait,
// some polls before it sleeps, is one poll here.
#include "backends/shm/memory_orders.hpp"
#include "explorer/explorer.hpp"
#include "explorer/model_policy.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <memory>

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
