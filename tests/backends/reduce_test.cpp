// The reduction's order is a promise: these tests would fail for any other.
#include "backends/shm/reduce.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace {

using namespace ddp;

template <class T>
std::vector<T> reduce_all(const std::vector<std::vector<T>>& inputs, ReduceOp op) {
    std::vector<const std::byte*> pointers;
    for (const auto& input : inputs) {
        pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
    }
    std::vector<T> output(inputs[0].size());
    shm::reduce(pointers, reinterpret_cast<std::byte*>(output.data()), output.size(), dtype_of<T>(),
                op);
    return output;
}

std::vector<std::vector<float>> random_inputs(std::size_t ranks, std::size_t elements) {
    std::mt19937 random(17);
    std::uniform_real_distribution<float> values(-1e4F, 1e4F);
    std::vector<std::vector<float>> inputs(ranks, std::vector<float>(elements));
    for (auto& input : inputs) {
        for (float& value : input) value = values(random);
    }
    return inputs;
}

TEST(Reduce, AddsInTheBalancedBinaryTree) {
    const auto in = random_inputs(7, 3000);
    const auto at = [&](std::size_t rank, std::size_t i) { return in[rank][i]; };
    const auto sum = reduce_all(in, ReduceOp::sum);
    std::size_t other_order = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
        const float tree =
            ((at(0, i) + at(1, i)) + (at(2, i) + at(3, i))) + ((at(4, i) + at(5, i)) + at(6, i));
        EXPECT_EQ(sum[i], tree) << i;
        float chain = at(0, i);
        for (std::size_t r = 1; r < 7; ++r) chain += at(r, i);
        other_order += chain != tree;
    }
    EXPECT_GT(other_order, 100U) << "the inputs cannot tell one order from another";
}

TEST(Reduce, SplitsOddWorldsAtTheLargestPowerOfTwo) {
    for (const std::size_t ranks : {1U, 2U, 3U, 5U, 6U}) {
        const auto in = random_inputs(ranks, 10);
        const auto sum = reduce_all(in, ReduceOp::sum);
        const float* v = nullptr;
        std::vector<float> column(ranks);
        for (std::size_t i = 0; i < 10; ++i) {
            for (std::size_t r = 0; r < ranks; ++r) column[r] = in[r][i];
            v = column.data();
            float expected = v[0];
            if (ranks == 2) expected = v[0] + v[1];
            if (ranks == 3) expected = (v[0] + v[1]) + v[2];
            if (ranks == 5) expected = ((v[0] + v[1]) + (v[2] + v[3])) + v[4];
            if (ranks == 6) expected = ((v[0] + v[1]) + (v[2] + v[3])) + (v[4] + v[5]);
            EXPECT_EQ(sum[i], expected) << ranks << " ranks, element " << i;
        }
    }
}

TEST(Reduce, AverageIsTheSumDividedByTheRanks) {
    const auto in = random_inputs(3, 100);
    const auto sum = reduce_all(in, ReduceOp::sum);
    const auto avg = reduce_all(in, ReduceOp::avg);
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_EQ(avg[i], sum[i] / 3.0F);
    EXPECT_EQ((reduce_all<std::int32_t>({{-5}, {-2}}, ReduceOp::avg)[0]), -3);
}

TEST(Reduce, IntegersWrapAround) {
    const std::int32_t most = std::numeric_limits<std::int32_t>::max();
    EXPECT_EQ((reduce_all<std::int32_t>({{most}, {1}}, ReduceOp::sum)[0]),
              std::numeric_limits<std::int32_t>::min());
    EXPECT_EQ((reduce_all<std::uint8_t>({{200}, {100}}, ReduceOp::sum)[0]), 44);
}

TEST(Reduce, ANanOnAnyRankGivesNan) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::min, ReduceOp::max, ReduceOp::sum}) {
        EXPECT_TRUE(std::isnan(reduce_all<double>({{nan}, {1}, {2}}, op)[0]));
        EXPECT_TRUE(std::isnan(reduce_all<double>({{1}, {2}, {nan}}, op)[0]));
    }
}

TEST(Reduce, KeepsToMinMaxAndProduct) {
    EXPECT_EQ((reduce_all<std::int64_t>({{3, -1}, {2, 5}}, ReduceOp::min)),
              (std::vector<std::int64_t>{2, -1}));
    EXPECT_EQ((reduce_all<std::int64_t>({{3, -1}, {2, 5}}, ReduceOp::max)),
              (std::vector<std::int64_t>{3, 5}));
    EXPECT_EQ((reduce_all<std::int64_t>({{3, -1}, {2, 5}}, ReduceOp::product)),
              (std::vector<std::int64_t>{6, -5}));
}

TEST(Reduce, WritesToAnUnalignedOutput) {
    const std::vector<std::int32_t> a{1, 2, 3};
    const std::vector<std::int32_t> b{10, 20, 30};
    const std::byte* inputs[] = {reinterpret_cast<const std::byte*>(a.data()),
                                 reinterpret_cast<const std::byte*>(b.data())};
    std::vector<std::byte> output(13);
    shm::reduce(inputs, output.data() + 1, 3, DType::int32, ReduceOp::sum);
    std::int32_t last = 0;
    std::memcpy(&last, output.data() + 9, sizeof last);
    EXPECT_EQ(last, 33);
}

}  // namespace
