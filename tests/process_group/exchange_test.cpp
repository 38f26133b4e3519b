// Every collective in every form against a serial model, through ProcessGroup: all types,
// operations, uneven parts, in place or not, in memory of any kind, several in flight at once. And
// what is refused because the ranks disagree.
#include "backends/reduce_model.hpp"
#include "process_group/random_plans.hpp"
#include "process_group/worlds.hpp"
#include "support/seed_for_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>

#include <random>
#include <vector>

namespace {

using namespace ddp;
using namespace ddp::testing;
using backends::Collective;
using ::testing::HasSubstr;

TEST(Exchange, AgreesWithASerialModelInRandomSequences) {
    const unsigned seed = seed_for_ranks();
    on_worlds({1, 2, 3, 4, 7},
              [&](ProcessGroup& group) { check_random_plans(group, seed, 100, 20'000); });
}

TEST(Exchange, AgreesWithASerialModelWherePeersReadDirectly) {
    const ScopedTuning tuning(read_directly);
    const unsigned seed = seed_for_ranks();
    on_worlds({2, 3, 4, 7},
              [&](ProcessGroup& group) { check_random_plans(group, seed, 100, 20'000); });
    run_ranks(4, [&](ProcessGroup& group) {
        ProcessGroup half = group.split({.color = group.rank() % 2, .key = -group.rank()});
        check_random_plans(half, seed, 20, 20'000);
    });
}

TEST(Exchange, AgreesWithASerialModelForEveryKindAndType) {
    constexpr std::size_t max_elements = 5'000;
    const unsigned seed = seed_for_ranks();
    on_worlds({1, 2, 3, 4, 7}, [&](ProcessGroup& group) {
        std::mt19937 random(seed);
        Arenas arenas(group, 1, max_elements);
        const auto kinds = static_cast<unsigned>(Collective::allocate);
        const auto dtypes = static_cast<unsigned>(DType::boolean) + 1;
        for (unsigned i = 0; i < 3 * kinds * dtypes; ++i) {
            CollectivePlan plan;
            do {
                plan = random_plan(random, group.size(), max_elements);
            } while (plan.kind != static_cast<Collective>(i % kinds) ||
                     plan.dtype != static_cast<DType>(i / kinds % dtypes));
            check(group, arenas, {plan});
        }
    });
}

TEST(Exchange, AgreesWithASerialModelInWorldsOfOneToSixteen) {
    const unsigned seed = seed_for_ranks();
    for (int ranks = 1; ranks <= 16; ++ranks) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        run_ranks(ranks, [&](ProcessGroup& group) { check_random_plans(group, seed, 15, 3'000); });
    }
}

TEST(Exchange, ReducesOnSixtyFourRanks) {
    run_ranks(64, [](ProcessGroup& group) {
        for (const std::size_t size : {std::size_t{1}, std::size_t{1'000}, std::size_t{70'001}}) {
            std::vector<std::int64_t> values(size);
            for (std::size_t i = 0; i < size; ++i) {
                values[i] = group.rank() + static_cast<std::int64_t>(i);
            }
            group.all_reduce(values).wait();
            std::size_t wrong = 0;
            for (std::size_t i = 0; i < size; ++i) {
                wrong += values[i] != 64 * 63 / 2 + 64 * static_cast<std::int64_t>(i);
            }
            EXPECT_EQ(wrong, 0U) << size;
        }
    });
}

TEST(Exchange, CoalescesManyTensors) {
    on_worlds({1, 2, 3}, [](ProcessGroup& group) {
        std::vector<std::vector<float>> tensors;
        for (const std::size_t size : {0U, 1U, 13U, 9'000U, 2U}) tensors.emplace_back(size, 1.0F);
        const std::vector<TensorView> views(tensors.begin(), tensors.end());
        group.all_reduce_coalesced(views).wait();
        const auto ranks = static_cast<float>(group.size());
        for (const auto& tensor : tensors) {
            EXPECT_EQ(tensor, std::vector<float>(tensor.size(), ranks));
        }
        group.all_reduce_coalesced({}).wait();
        std::vector<std::int8_t> bytes(5, static_cast<std::int8_t>(group.rank()));
        std::vector<double> doubles(3'000, group.rank());
        const std::vector<TensorView> mixed{bytes, doubles};
        group.broadcast_coalesced(mixed, Root{group.size() - 1}).wait();
        EXPECT_EQ(bytes[4], group.size() - 1);
        EXPECT_EQ(doubles, std::vector<double>(3'000, group.size() - 1));
        EXPECT_THROW(group.all_reduce_coalesced(mixed).wait(), UsageError) << "two dtypes";
        EXPECT_EQ(group.all_reduce(1), group.size()) << "a refused call must not fail the group";
    });
}

template <class Call>
std::string message_of(const Call& call) {
    try {
        call();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Exchange, TellsEveryRankWhenTheirCountsDiffer) {
    run_ranks(3, [](ProcessGroup& group) {
        const bool odd = group.rank() == 1;
        const std::vector<std::size_t> counts =
            odd ? std::vector<std::size_t>{3, 1, 1} : std::vector<std::size_t>{1, 1, 3};
        std::vector<float> input(counts[static_cast<std::size_t>(group.rank())]);
        std::vector<float> output(5);
        const auto text = message_of([&] { group.all_gather(input, output, counts).wait(); });
        EXPECT_THAT(text, HasSubstr("operation 1 of the group differs between ranks: rank 0 called "
                                    "all_gather of 5 float32 in uneven parts, rank 1 called "
                                    "all_gather of 5 float32 in uneven parts (other counts)"));
    });
}

TEST(Exchange, TellsEveryRankWhoSendsWhatAnotherDoesNotExpect) {
    run_ranks(3, [](ProcessGroup& group) {
        const std::vector<std::size_t> sent{2, 2, 2};
        std::vector<std::size_t> received{2, 2, 2};
        if (group.rank() == 2) received[1] = 5;
        std::vector<float> input(6);
        std::vector<float> output(group.rank() == 2 ? 9 : 6);
        const auto text = message_of([&] {
            group.all_to_all(input, output, {sent, received}).wait();
        });
        EXPECT_THAT(text, HasSubstr("all_to_all, operation 1: rank 1 (pid "));
        EXPECT_THAT(text, HasSubstr("sends 2 elements to rank 2 (pid "));
        EXPECT_THAT(text, HasSubstr("which expects 5"));
    });
}

TEST(Exchange, RefusesWhatIsNotDefinedOnAType) {
    ProcessGroup group = init_process_group(WorkerEnv{}, nullptr);
    std::vector<std::uint8_t> memory(64);
    for (unsigned d = 0; d <= static_cast<unsigned>(DType::boolean); ++d) {
        for (unsigned o = 0; o <= ReduceOp::premul_sum; ++o) {
            const auto dtype = static_cast<DType>(d);
            const ReduceOp op = static_cast<ReduceOp::Kind>(o);
            const TensorView tensor(memory.data(), Shape{4}, dtype);
            const std::string refused =
                std::string(to_string(op)) + " is not defined on " + to_string(dtype);
            const auto expected = is_defined(op, dtype) ? std::string("accepted") : refused;
            EXPECT_THAT(message_of([&] { group.all_reduce(tensor, op).wait(); }),
                        HasSubstr(expected));
            EXPECT_THAT(message_of([&] { group.reduce(tensor, tensor, {}, op).wait(); }),
                        HasSubstr(expected));
            EXPECT_THAT(message_of([&] { group.reduce_scatter(tensor, tensor, op).wait(); }),
                        HasSubstr(expected));
        }
    }
}

TEST(Exchange, RefusesPartsThatDoNotFit) {
    ProcessGroup group = init_process_group(WorkerEnv{}, nullptr);
    std::vector<float> three(3), four(4);
    const std::vector<std::size_t> of_three{3}, of_four{4}, two_ranks{3, 0};
    EXPECT_THAT(message_of([&] { group.all_gather(three, four, of_four).wait(); }),
                HasSubstr("this rank gives 3 elements, but counts[0] is 4"));
    EXPECT_THAT(message_of([&] { group.all_gather(three, three, two_ranks).wait(); }),
                HasSubstr("2 counts of 3 elements together"));
    EXPECT_THAT(message_of([&] {
                    group.all_to_all(three, four, {of_four, of_four}).wait();
                }),
                HasSubstr("for an input of 3 elements and 1 ranks"));
    EXPECT_THAT(message_of([&] { group.gather(three, three, Root{1}).wait(); }),
                HasSubstr("gather: root 1 is not a rank of a group of 1"));
    EXPECT_THAT(message_of([&] { group.scatter(three, four).wait(); }),
                HasSubstr("need a tensor of 4 elements, not 3"));
}

// Part of the one in part of the other: which elements come out would depend on sizes and backends.
TEST(Exchange, RefusesMemoryThatOverlaps) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> memory(100);
        const auto part = [&](std::size_t first, std::size_t count) {
            return std::span<float>(memory).subspan(first, count);
        };
        const auto mine = static_cast<std::size_t>(group.rank());
        const auto expect_refused = [](const auto& call, const std::string& what) {
            EXPECT_THAT(message_of(call), HasSubstr(what + ": input and output overlap"));
        };
        expect_refused([&] { group.all_reduce(part(0, 50), part(49, 50), ReduceOp::sum).wait(); },
                       "all_reduce");
        expect_refused([&] { group.all_gather(part(10, 20), part(0, 40)).wait(); }, "all_gather");
        expect_refused([&] { group.all_gather(part(20 * (1 - mine), 20), part(0, 40)).wait(); },
                       "all_gather");
        expect_refused([&] { group.reduce_scatter(part(0, 40), part(1, 20)).wait(); },
                       "reduce_scatter");
        expect_refused([&] { group.all_to_all(part(0, 40), part(0, 40)).wait(); }, "all_to_all");
        expect_refused([&] { group.reduce(part(0, 40), part(39, 40), Root{group.rank()}).wait(); },
                       "reduce");
        group.all_reduce(part(0, 50), part(50, 50), ReduceOp::sum).wait();
        group.all_reduce(part(0, 50), part(0, 50), ReduceOp::sum).wait();
        group.all_gather(part(20 * mine, 20), part(0, 40)).wait();
        group.reduce_scatter(part(0, 40), part(20 * mine, 20)).wait();
        group.all_to_all(part(0, 40), part(40, 40)).wait();
    });
}

TEST(Exchange, RefusesTensorsOfOneCallThatOverlap) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> memory(100);
        const auto part = [&](std::size_t first, std::size_t count) {
            return TensorView(std::span<float>(memory).subspan(first, count));
        };
        const auto expect_refused = [&](const std::vector<TensorView>& list,
                                        const std::string& which) {
            const std::string words = "_coalesced: tensors " + which + " of the list overlap";
            EXPECT_THAT(message_of([&] { group.all_reduce_coalesced(list).wait(); }),
                        HasSubstr("all_reduce" + words));
            EXPECT_THAT(message_of([&] { group.broadcast_coalesced(list).wait(); }),
                        HasSubstr("broadcast" + words));
        };
        expect_refused({part(0, 10), part(10, 10), part(19, 10)}, "1 and 2");
        expect_refused({part(50, 10), part(0, 100), part(0, 0)}, "0 and 1");
        expect_refused({part(0, 10), part(20, 10), part(0, 11)}, "0 and 2");
        const std::vector<TensorView> twice{part(0, 10), part(20, 10), part(0, 10)};
        EXPECT_THAT(message_of([&] { group.all_reduce_coalesced(twice).wait(); }),
                    HasSubstr("tensors 0 and 2 of the list overlap"));
        memory[3] = memory[23] = static_cast<float>(7 + group.rank());
        group.broadcast_coalesced(twice).wait();
        EXPECT_EQ(memory[3], 7);
        EXPECT_EQ(memory[23], 7);
        const std::vector<TensorView> apart{part(50, 10), part(0, 50), part(20, 0), part(60, 40)};
        group.all_reduce_coalesced(apart).wait();
        group.broadcast_coalesced(apart).wait();
    });
}

TEST(Exchange, RefusesToSendItselfWhatItDoesNotExpect) {
    ProcessGroup group = init_process_group(WorkerEnv{}, nullptr);
    std::vector<float> three(3), four(4);
    const std::vector<std::size_t> of_three{3}, of_four{4};
    EXPECT_THAT(message_of([&] {
                    group.all_to_all(three, four, {of_three, of_four}).wait();
                }),
                HasSubstr("sends 3 elements to itself, but expects 4"));
}

}  // namespace
