// The shm protocol with ranks as threads of one process over one region: the form in which
// ThreadSanitizer can see all of it (but for memory of `allocate`, which each rank maps for
// itself). Random sequences of collectives on every path and with every slot size that makes
// chunks odd, against a serial model, in part with point-to-point transfers beside them.
#include "backends/shm/shm_backend.hpp"
#include "base/sanitizers.hpp"

#include "support/collective_model.hpp"
#include "support/seed.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp::testing;
using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::backends::Direction;
using ddp::base::Deadline;
using ddp::shm::ShmBackend;
using Sequence = std::vector<CollectivePlan>;

// Sequences altogether. Sanitizers slow each of them down tenfold and more.
#if defined(DDP_SANITIZES_THREADS) || defined(DDP_SANITIZES_ADDRESSES)
constexpr std::size_t all_sequences = 1'500;
#else
constexpr std::size_t all_sequences = 10'000;
#endif
constexpr std::size_t max_elements = 2'500;

// Runs `body(rank, backend)` on a thread a rank; returns the region that they had.
template <class Body>
std::shared_ptr<ddp::shm::SharedRegion> run_threads(int ranks, const std::string& tuning,
                                                    const Body& body) {
    const auto region =
        ddp::shm::SharedRegion::create(ranks, ddp::shm::make_tuning(ranks, 2, tuning));
    for (int rank = 0; rank < ranks; ++rank) region->introduce(rank);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ShmBackend backend(region, rank);
            try {
                body(rank, backend);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
    threads.clear();  // which waits for them
    return region;
}

std::vector<std::string> tunings() {
    std::vector<std::string> all;
    for (const char* const chunk : {"4K", "20K"}) {
        for (const char* const one_phase : {"0", "64", "4K"}) {
            for (const char* const rest :
                 {"streaming_gain_ps=1", "rotating_bytes=0,string_bytes=0",
                  "rotating_bytes=1,streaming_gain_ps=1",
                  "rotating_bytes=100,streaming_output_bytes=1",
                  "rotating_bytes=1,rotating_room=12K,pipelined_bytes=4K",
                  "rotating_bytes=1,rotating_room=1K",
                  "direct_bytes_min=1,direct_bytes_max=1000M,direct_exchange_bytes_max=1000M",
                  "direct_bytes_min=1,direct_bytes_max=1000M,direct_exchange_bytes_max=1000M,"
                  "direct_reduction_bytes_max=3K,rotating_room=1K",
                  "direct_bytes_min=1K,direct_bytes_max=5K,direct_exchange_bytes_max=5K"}) {
                all.push_back(std::string("chunk_bytes=") + chunk +
                              ",one_phase_bytes=" + one_phase + "," + rest);
            }
        }
    }
    return all;
}

std::vector<Sequence> random_sequences(std::mt19937& random, int ranks, std::size_t count) {
    std::vector<Sequence> sequences(count);
    for (Sequence& sequence : sequences) {
        const std::size_t length = 1 + random() % 4;
        while (sequence.size() < length) {
            sequence.push_back(random_collective(random, ranks, max_elements));
        }
    }
    return sequences;
}

// One rank of a group that runs all of them, with memory that is used again and again.
void run_sequences(const std::vector<Sequence>& sequences, int rank, int ranks,
                   ShmBackend& backend) {
    std::uint64_t number = 0;
    const std::size_t bytes = 2 * largest_buffer(ranks, max_elements);
    std::vector<std::byte> ordinary(bytes);
    const auto shared =
        backend.provide_memory({.kind = ddp::backends::Collective::allocate, .elements = bytes},
                               ++number, Deadline::after(60s));
    const Arena arena{ordinary, {static_cast<std::byte*>(shared.get()), bytes}};
    for (const Sequence& sequence : sequences) {
        for (const CollectivePlan& plan : sequence) {
            const PlannedCollective planned(plan, rank, arena);
            backend.run(planned.call(), ++number, Deadline::after(60s));
            const std::string wrong = planned.wrong();
            if (!wrong.empty()) ADD_FAILURE() << wrong << " (operation " << number << ")";
        }
    }
}

// In round i each rank sends to the one `distance` after it.
struct Round {
    int distance;
    std::size_t bytes;
    std::uint8_t first;  // of the bytes, which count upwards
};

std::vector<Round> random_rounds(std::mt19937& random, int ranks) {
    std::vector<Round> rounds(ranks == 1 ? 0 : 100);
    for (Round& round : rounds) {
        const std::size_t most = random() % 10 == 0 ? 500'000 : 2'000;
        round = {1 + static_cast<int>(random() % static_cast<unsigned>(ranks - 1)),
                 random() % 4 == 0 ? random() % 3 : random() % most,
                 static_cast<std::uint8_t>(random())};
    }
    return rounds;
}

// Four rounds at a time are under way.
void run_transfers(const std::vector<Round>& rounds, int rank, int ranks, ShmBackend& backend) {
    constexpr std::size_t at_once = 4;
    for (std::size_t first = 0; first < rounds.size(); first += at_once) {
        const std::size_t count = std::min(at_once, rounds.size() - first);
        std::vector<std::vector<std::uint8_t>> sent(count), got(count);
        std::vector<std::unique_ptr<ddp::backends::PendingTransfer>> pending;
        for (std::size_t i = 0; i < count; ++i) {
            const Round& round = rounds[first + i];
            for (std::size_t k = 0; k < round.bytes; ++k) {
                sent[i].push_back(static_cast<std::uint8_t>(round.first + k));
            }
            got[i].resize(round.bytes);
            const int to = (rank + round.distance) % ranks;
            const int from = (rank + ranks - round.distance) % ranks;
            pending.push_back(
                backend.start_transfer({Direction::send, to, sent[i].data(), round.bytes}));
            pending.push_back(
                backend.start_transfer({Direction::receive, from, got[i].data(), round.bytes}));
        }
        while (!pending.empty()) {
            bool moved = false;
            for (const auto& transfer : pending) moved = transfer->advance() || moved;
            std::erase_if(pending, [](const auto& transfer) { return transfer->is_done(); });
            if (!moved && !pending.empty()) pending.front()->wait_a_little(Deadline::after(60s));
        }
        for (std::size_t i = 0; i < count; ++i) {
            EXPECT_TRUE(got[i] == sent[i]) << "round " << first + i << " on rank " << rank;
        }
    }
}

constexpr std::array worlds{1, 2, 3, 4, 5, 7};
class ShmBackendThreadsOfRanks : public ::testing::TestWithParam<int> {};

TEST_P(ShmBackendThreadsOfRanks, AgreeWithASerialModelInRandomSequences) {
    std::mt19937 random(ddp::store_test::random_seed());
    const int ranks = GetParam();
    const auto all_tunings = tunings();
    const std::size_t groups = worlds.size() * all_tunings.size();
    std::size_t group = 0;
    for (const std::string& tuning : all_tunings) {
        SCOPED_TRACE(tuning);
        const auto sequences =
            random_sequences(random, ranks, (all_sequences + groups - 1) / groups);
        const auto rounds = random_rounds(random, ++group % 3 == 0 ? ranks : 1);
        run_threads(ranks, tuning, [&](int rank, ShmBackend& backend) {
            std::jthread other([&] { run_transfers(rounds, rank, ranks, backend); });
            run_sequences(sequences, rank, ranks, backend);
        });
        ASSERT_FALSE(::testing::Test::HasFailure());
    }
}
INSTANTIATE_TEST_SUITE_P(Shm, ShmBackendThreadsOfRanks, ::testing::ValuesIn(worlds));

// How many KiB of rank 0's slots, which begin as zeros, so many all_reduces of so many KiB write.
std::size_t kib_written(const std::string& tuning, std::size_t kib, int calls) {
    constexpr std::size_t slot_kib = 64;
    const auto region =
        run_threads(2, "chunk_bytes=64K,one_phase_bytes=0," + tuning, [&](int, auto& backend) {
            std::vector<std::uint8_t> ones(kib * 1024, 1);
            const Call call{.kind = Collective::all_reduce,
                            .op = ddp::ReduceOp::max,
                            .elements = ones.size(),
                            .input = ones.data(),
                            .output = ones.data()};
            for (int i = 1; i <= calls; ++i) {
                backend.run(call, static_cast<std::uint64_t>(i), Deadline::after(60s));
            }
        });
    // A rank stages the half that the other one reduces: that of rank 0 is each piece's second.
    std::size_t written = 0;
    for (std::uint64_t chunk = 0; chunk < ddp::shm::slots_per_rank; ++chunk) {
        const std::byte* const slot = region->slot(0, chunk);
        for (std::size_t k = 0; k < slot_kib; ++k) {
            written += std::count(slot + k * 1024, slot + (k + 1) * 1024, std::byte{1}) > 512;
        }
    }
    return 2 * written;
}

TEST(ShmBackendThreads, AnAllReduceGoesThroughAsMuchOfTheSlotsAsTheRoomSays) {
    const auto room = [](const char* bytes) {
        return std::string("swapped_slots=0,streaming_gain_ps=0,rotating_bytes=4K,rotating_room=") +
               bytes;
    };
    // As one chunk in two slots.
    EXPECT_EQ(kib_written(room("256K"), 128, 8), 256U);
    EXPECT_EQ(kib_written(room("128K"), 128, 8), 128U);
    // In chunks of a slot, of which two are under way.
    EXPECT_EQ(kib_written(room("256K"), 256, 2), 256U);
    EXPECT_EQ(kib_written(room("128K"), 256, 2), 128U);
    EXPECT_EQ(kib_written(room("4K"), 256, 2), 128U);
    // Smaller ones, in another part of their slots each time, or always at the beginning.
    EXPECT_EQ(kib_written(room("256K"), 8, 100), 256U);
    EXPECT_EQ(kib_written(room("64K"), 8, 100), 64U);
    EXPECT_EQ(kib_written("rotating_bytes=0", 8, 100), 16U);
}

TEST(ShmBackendThreads, AllSeeBothSignaturesWhenTheirCallsDiffer) {
    const auto different = [](int rank) {
        Call call{.kind = Collective::all_reduce, .dtype = ddp::DType::uint8};
        if (rank == 2) call.kind = Collective::barrier;
        return call;
    };
    run_threads(3, "chunk_bytes=4K", [&](int rank, ShmBackend& backend) {
        try {
            backend.run(different(rank), 1, Deadline::after(60s));
            ADD_FAILURE() << "rank " << rank << " went on";
        } catch (const ddp::UsageError& error) {
            EXPECT_THAT(error.what(),
                        ::testing::HasSubstr("rank 0 called all_reduce of 0 uint8 (sum), rank 2 "
                                             "called barrier"));
        }
    });
}

}  // namespace
