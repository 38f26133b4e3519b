// The shm protocol with ranks as threads of one process over one region: the form in which
// ThreadSanitizer can see all of it. Random sequences of collectives with every slot size that
// makes chunks odd, against a serial model.
#include "backends/shm/shm_backend.hpp"

#include "support/exact_inputs.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <random>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::base::Deadline;
using ddp::testing::exact_input;
using ddp::testing::exact_value;

// Runs `body(rank, backend)` on a thread a rank.
template <class Body>
void run_threads(int ranks, std::size_t slot_bytes, const Body& body) {
    const auto region = ddp::shm::SharedRegion::create(
        ranks, ddp::shm::make_tuning(ranks, 2, "chunk_bytes=" + std::to_string(slot_bytes)));
    for (int rank = 0; rank < ranks; ++rank) region->block(rank).pid.store(::getpid());
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
        threads.emplace_back([&, rank] {
            ddp::shm::ShmBackend backend(region, rank);
            body(rank, backend);
        });
    }
}

struct Plan {
    Collective kind;
    std::size_t elements;
    int root;
};

std::vector<Plan> random_plan(std::mt19937& random, int ranks, int length) {
    std::vector<Plan> plan;
    for (int i = 0; i < length; ++i) {
        plan.push_back({static_cast<Collective>(random() % 5), random() % 5000,
                        static_cast<int>(random() % static_cast<unsigned>(ranks))});
    }
    return plan;
}

std::int64_t sum_over_ranks(int ranks, std::size_t index) {
    std::int64_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += exact_value<std::int64_t>(rank, index);
    return sum;
}

// Runs one collective on this rank and counts the wrong elements.
std::size_t wrong_after(const Plan& plan, std::uint64_t sequence, int rank, int ranks,
                        ddp::shm::ShmBackend& backend) {
    const std::size_t n = plan.elements;
    const auto world = static_cast<std::size_t>(ranks);
    const bool gather = plan.kind == Collective::all_gather;
    const bool scatter = plan.kind == Collective::reduce_scatter;
    const auto input = exact_input<std::int64_t>(rank, scatter ? n * world : n);
    std::vector<std::int64_t> output(gather ? n * world : n, -1);
    const bool broadcast = plan.kind == Collective::broadcast;
    const void* from = broadcast && rank != plan.root ? output.data() : input.data();
    backend.run(
        {plan.kind, ddp::DType::int64, ddp::ReduceOp::sum, plan.root, n, from, output.data()},
        sequence, Deadline::after(60s));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < output.size(); ++i) {
        std::int64_t expected = -1;
        switch (plan.kind) {
            case Collective::all_reduce:
                expected = sum_over_ranks(ranks, i);
                break;
            case Collective::broadcast:
                expected = exact_value<std::int64_t>(plan.root, i);
                break;
            case Collective::all_gather:
                expected = exact_value<std::int64_t>(static_cast<int>(i / n), i % n);
                break;
            case Collective::reduce_scatter:
                expected = sum_over_ranks(ranks, static_cast<std::size_t>(rank) * n + i);
                break;
            case Collective::barrier:
            case Collective::reduce:
            case Collective::gather:
            case Collective::scatter:
            case Collective::all_to_all:
            case Collective::allocate:
                break;
        }
        wrong += output[i] != expected;
    }
    return wrong;
}

TEST(ShmBackendThreads, AgreeWithASerialModelInRandomSequences) {
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (const int ranks : {1, 2, 3, 4, 7}) {
        for (const std::size_t slot_bytes : {std::size_t{4096}, std::size_t{20480}}) {
            const std::vector<Plan> plan = random_plan(random, ranks, 40);
            std::atomic<std::size_t> wrong{0};
            run_threads(ranks, slot_bytes, [&](int rank, ddp::shm::ShmBackend& backend) {
                for (std::size_t i = 0; i < plan.size(); ++i) {
                    wrong += wrong_after(plan[i], i + 1, rank, ranks, backend);
                }
            });
            EXPECT_EQ(wrong.load(), 0U) << ranks << " ranks, slots of " << slot_bytes;
        }
    }
}

TEST(ShmBackendThreads, AllSeeBothSignaturesWhenTheirCallsDiffer) {
    const auto different = [](int rank) {
        Call call{.kind = Collective::all_reduce, .dtype = ddp::DType::uint8};
        if (rank == 2) call.kind = Collective::barrier;
        return call;
    };
    run_threads(3, 4096, [&](int rank, ddp::shm::ShmBackend& backend) {
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
