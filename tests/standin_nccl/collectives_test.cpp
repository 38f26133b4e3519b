// What the stand-in's operations compute, with ranks as threads.
#include "standin_nccl/ranks.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace {

using ddp::testing::nccl_type;
using ddp::testing::NcclRank;
using ddp::testing::on_ranks;

constexpr int most_ranks = 4;
constexpr std::size_t count = 20001;  // more than fits into one message, in no round way

// Small enough that every sum and product of four is exact in every type.
int value(int rank, std::size_t i) {
    return 1 + static_cast<int>((i + static_cast<std::size_t>(rank)) % 3);
}

template <class T>
std::vector<T> inputs(int rank, std::size_t elements = count) {
    std::vector<T> result(elements);
    for (std::size_t i = 0; i < elements; ++i) result[i] = T(static_cast<float>(value(rank, i)));
    return result;
}

int reduced(ncclRedOp_t op, int ranks, std::size_t i) {
    int result = value(0, i);
    for (int rank = 1; rank < ranks; ++rank) {
        const int next = value(rank, i);
        if (op == ncclProd) result *= next;
        if (op == ncclSum) result += next;
        if (op == ncclMin) result = std::min(result, next);
        if (op == ncclMax) result = std::max(result, next);
    }
    return result;
}

template <class T>
std::vector<T> all_reduced(ncclRedOp_t op, int ranks) {
    std::vector<T> result(count);
    for (std::size_t i = 0; i < count; ++i) {
        result[i] = T(static_cast<float>(reduced(op, ranks, i)));
    }
    return result;
}

template <class T>
std::vector<T> part_of(const std::vector<T>& all, std::size_t part, std::size_t elements) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part * elements);
    return {begin, begin + static_cast<std::ptrdiff_t>(elements)};
}

template <class T>
class StandInCollectives : public ::testing::Test {};
using Types = ::testing::Types<float, double, ddp::float16, ddp::bfloat16, std::int8_t,
                               std::uint8_t, std::int32_t, std::int64_t>;
TYPED_TEST_SUITE(StandInCollectives, Types);

TYPED_TEST(StandInCollectives, AllReduceReduces) {
    using T = TypeParam;
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        on_ranks(ranks, [&](NcclRank& own) {
            for (const ncclRedOp_t op : {ncclSum, ncclProd, ncclMin, ncclMax}) {
                T* const in = own.holding(inputs<T>(own.rank));
                T* const out = own.memory<T>(count);
                ASSERT_EQ(ncclAllReduce(in, out, count, nccl_type<T>, op, own.comm, own.stream),
                          ncclSuccess);
                ASSERT_EQ(ncclAllReduce(in, in, count, nccl_type<T>, op, own.comm, own.stream),
                          ncclSuccess);
                EXPECT_EQ(own.read(out, count), all_reduced<T>(op, ranks)) << op;
                EXPECT_EQ(own.read(in, count), all_reduced<T>(op, ranks)) << op << " in place";
            }
        });
    }
}

TYPED_TEST(StandInCollectives, ReduceAndBroadcastHaveARoot) {
    using T = TypeParam;
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        on_ranks(ranks, [&](NcclRank& own) {
            for (int root = 0; root < ranks; ++root) {
                T* const in = own.holding(inputs<T>(own.rank));
                T* const out = own.memory<T>(count);
                ASSERT_EQ(ncclReduce(in, own.rank == root ? out : nullptr, count, nccl_type<T>,
                                     ncclSum, root, own.comm, own.stream),
                          ncclSuccess);
                if (own.rank == root) {
                    EXPECT_EQ(own.read(out, count), all_reduced<T>(ncclSum, ranks));
                }
                ASSERT_EQ(ncclBroadcast(in, out, count, nccl_type<T>, root, own.comm, own.stream),
                          ncclSuccess);
                EXPECT_EQ(own.read(out, count), inputs<T>(root));
            }
        });
    }
}

TYPED_TEST(StandInCollectives, GatherAndScatterMoveParts) {
    using T = TypeParam;
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        const std::size_t all = count * static_cast<std::size_t>(ranks);
        std::vector<T> everything;
        for (int rank = 0; rank < ranks; ++rank) {
            const auto part = inputs<T>(rank);
            everything.insert(everything.end(), part.begin(), part.end());
        }
        on_ranks(ranks, [&](NcclRank& own) {
            const auto part = static_cast<std::size_t>(own.rank);
            T* const whole = own.memory<T>(all);
            T* const piece = own.holding(inputs<T>(own.rank));
            ASSERT_EQ(ncclAllGather(piece, whole, count, nccl_type<T>, own.comm, own.stream),
                      ncclSuccess);
            EXPECT_EQ(own.read(whole, all), everything);
            T* const out = own.memory<T>(count);
            const int root = ranks - 1;
            ASSERT_EQ(ncclScatter(whole, out, count, nccl_type<T>, root, own.comm, own.stream),
                      ncclSuccess);
            EXPECT_EQ(own.read(out, count), part_of(everything, part, count));
            T* const gathered = own.memory<T>(all);
            ASSERT_EQ(ncclGather(out, gathered, count, nccl_type<T>, root, own.comm, own.stream),
                      ncclSuccess);
            if (own.rank == root) {
                EXPECT_EQ(own.read(gathered, all), everything);
            }
            // In place, from every rank's own part on.
            T* const mine = whole + part * count;
            ASSERT_EQ(
                ncclReduceScatter(whole, mine, count, nccl_type<T>, ncclSum, own.comm, own.stream),
                ncclSuccess);
            std::vector<T> sums = part_of(everything, part, count);
            for (T& sum : sums) sum = T(static_cast<float>(sum) * static_cast<float>(ranks));
            EXPECT_EQ(own.read(mine, count), sums);
            ASSERT_EQ(ncclAllGather(mine, whole, count, nccl_type<T>, own.comm, own.stream),
                      ncclSuccess);
            EXPECT_EQ(part_of(own.read(whole, all), part, count), sums);
        });
    }
}

TYPED_TEST(StandInCollectives, AllToAllExchangesParts) {
    using T = TypeParam;
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        const std::size_t all = count * static_cast<std::size_t>(ranks);
        on_ranks(ranks, [&](NcclRank& own) {
            T* const in = own.holding(inputs<T>(own.rank, all));
            T* const out = own.memory<T>(all);
            ASSERT_EQ(ncclAlltoAll(in, out, count, nccl_type<T>, own.comm, own.stream),
                      ncclSuccess);
            const std::vector<T> got = own.read(out, all);
            for (int from = 0; from < ranks; ++from) {
                EXPECT_EQ(part_of(got, static_cast<std::size_t>(from), count),
                          part_of(inputs<T>(from, all), static_cast<std::size_t>(own.rank), count));
            }
        });
    }
}

TEST(StandInReductions, AverageMultipliesFloatsByTheRoundedShareAndDividesIntegers) {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        on_ranks(ranks, [&](NcclRank& own) {
            const float rank = static_cast<float>(own.rank);
            float* const floats = own.holding<float>({rank, 6 * rank});
            std::int32_t* const whole = own.holding<std::int32_t>({own.rank, -7});
            ncclAllReduce(floats, floats, 2, ncclFloat32, ncclAvg, own.comm, own.stream);
            ncclAllReduce(whole, whole, 2, ncclInt32, ncclAvg, own.comm, own.stream);
            const float share = 1 / static_cast<float>(ranks);
            float sum = 0;
            for (int other = 0; other < ranks; ++other) sum += static_cast<float>(other) * share;
            EXPECT_EQ(own.read(floats, 2)[0], sum);
            EXPECT_EQ(own.read(whole, 2), (std::vector<std::int32_t>{(ranks - 1) / 2, -7}));
        });
    }
}

TEST(StandInReductions, PreMulSumTakesItsFactorFromTheHostOrTheDevice) {
    on_ranks(2, [](NcclRank& own) {
        float* const values = own.holding<float>({1, 2, 3});
        float* const place = own.holding<float>({0.25F});
        own.api().synchronize(own.stream);
        float half = 0.5;
        ncclRedOp_t now{};
        ncclRedOp_t later{};
        ASSERT_EQ(
            ncclRedOpCreatePreMulSum(&now, &half, ncclFloat32, ncclScalarHostImmediate, own.comm),
            ncclSuccess);
        half = 100;
        ASSERT_EQ(ncclRedOpCreatePreMulSum(&later, place, ncclFloat32, ncclScalarDevice, own.comm),
                  ncclSuccess);
        float* const out = own.memory<float>(3);
        ncclAllReduce(values, out, 3, ncclFloat32, now, own.comm, own.stream);
        EXPECT_EQ(own.read(out, 3), (std::vector<float>{1, 2, 3}));
        ncclAllReduce(values, out, 3, ncclFloat32, later, own.comm, own.stream);
        EXPECT_EQ(own.read(out, 3), (std::vector<float>{0.5, 1, 1.5}));
        EXPECT_EQ(ncclRedOpDestroy(now, own.comm), ncclSuccess);
        EXPECT_EQ(ncclRedOpDestroy(now, own.comm), ncclInvalidArgument);
        EXPECT_EQ(ncclAllReduce(values, out, 3, ncclFloat32, now, own.comm, own.stream),
                  ncclInvalidArgument);
    });
}

TEST(StandInTransfers, ARingInAGroupMovesMoreThanIsKeptOnTheWay) {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
        on_ranks(ranks, [&](NcclRank& own) {
            float* const out = own.holding(inputs<float>(own.rank, 50'000));
            float* const in = own.memory<float>(50'000);
            const int next = (own.rank + 1) % ranks;
            const int last = (own.rank + ranks - 1) % ranks;
            ASSERT_EQ(ncclGroupStart(), ncclSuccess);
            ASSERT_EQ(ncclSend(out, 50'000, ncclFloat32, next, own.comm, own.stream), ncclSuccess);
            ASSERT_EQ(ncclRecv(in, 50'000, ncclFloat32, last, own.comm, own.stream), ncclSuccess);
            ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
            EXPECT_EQ(own.read(in, 50'000), inputs<float>(last, 50'000));
        });
    }
}

TEST(StandInTransfers, MessagesOfAPairKeepTheirOrder) {
    on_ranks(2, [](NcclRank& own) {
        float* const first = own.holding<float>({1, 1});
        float* const second = own.holding<float>({2});
        if (own.rank == 0) {
            ncclSend(first, 2, ncclFloat32, 1, own.comm, own.stream);
            ncclSend(second, 1, ncclFloat32, 1, own.comm, own.stream);
            return;
        }
        float* const in = own.holding<float>({0, 0, 0});
        ncclGroupStart();
        ncclRecv(in + 1, 2, ncclFloat32, 0, own.comm, own.stream);
        ncclRecv(in, 1, ncclFloat32, 0, own.comm, own.stream);
        ncclGroupEnd();
        EXPECT_EQ(own.read(in, 3), (std::vector<float>{2, 1, 1}));
    });
}

TEST(StandInGroups, NothingRunsBeforeTheEndAndAllRunsAfterIt) {
    on_ranks(3, [](NcclRank& own) {
        float* const a = own.holding<float>({1});
        float* const b = own.holding<float>({2});
        own.api().synchronize(own.stream);
        ncclGroupStart();
        ncclGroupStart();
        ncclAllReduce(a, a, 1, ncclFloat32, ncclSum, own.comm, own.stream);
        ncclGroupEnd();
        ncclAllReduce(b, b, 1, ncclFloat32, ncclSum, own.comm, own.stream);
        EXPECT_TRUE(own.api().is_done(ddp::Stream{own.stream}));
        ncclGroupEnd();
        EXPECT_EQ(own.read(a, 1), std::vector<float>{3});
        EXPECT_EQ(own.read(b, 1), std::vector<float>{6});
    });
}

TEST(StandInSplit, ColorsFormGroupsInTheOrderOfTheKeys) {
    on_ranks(4, [](NcclRank& own) {
        for (int round = 0; round < 3; ++round) {
            ncclComm_t half = nullptr;
            ASSERT_EQ(ncclCommSplit(own.comm, own.rank % 2, -own.rank, &half, nullptr),
                      ncclSuccess);
            int rank = -1;
            int ranks = -1;
            EXPECT_EQ(ncclCommUserRank(half, &rank), ncclSuccess);
            EXPECT_EQ(ncclCommCount(half, &ranks), ncclSuccess);
            EXPECT_EQ(ranks, 2);
            EXPECT_EQ(rank, own.rank < 2 ? 1 : 0);
            float* const values = own.holding<float>({static_cast<float>(own.rank)});
            ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, half, own.stream);
            EXPECT_EQ(own.read(values, 1)[0], static_cast<float>(2 * (own.rank % 2) + 2));
            EXPECT_EQ(ncclCommDestroy(half), ncclSuccess);
        }
        ncclComm_t some = nullptr;
        const int color = own.rank == 3 ? NCCL_SPLIT_NOCOLOR : 0;
        ASSERT_EQ(ncclCommSplit(own.comm, color, 0, &some, nullptr), ncclSuccess);
        EXPECT_EQ(some == nullptr, own.rank == 3);
        if (some != nullptr) {
            EXPECT_EQ(ncclCommDestroy(some), ncclSuccess);
        }
    });
}

}  // namespace
