// The inputs of ddp-bench: what must come out, and that a wrong element is seen.
#include "bench/values.hpp"

#include "bench/layout.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace ddp::bench;
using ddp::DType;
using ddp::ReduceOp;

std::vector<std::byte> sequence(const Pattern& pattern, std::size_t first, std::size_t elements) {
    std::vector<std::byte> bytes(elements * pattern.size() / pattern_length);
    write_sequence(bytes.data(), {&pattern, first, elements});
    return bytes;
}

TEST(BenchValues, OneWrongElementIsCounted) {
    const auto patterns = make_patterns(DType::float16, ReduceOp::sum, 3);
    auto bytes = sequence(patterns[1], 11, 10'000);
    const Stretch expected{&patterns[1], 11, 10'000};
    EXPECT_EQ(count_wrong(bytes.data(), expected, DType::float16, ReduceOp::sum), 0U);
    bytes[2 * 9'999] ^= std::byte{1};
    bytes[3] ^= std::byte{0x40};
    EXPECT_EQ(count_wrong(bytes.data(), expected, DType::float16, ReduceOp::sum), 2U);
}

TEST(BenchValues, DataInTheWrongPlaceIsCounted) {
    const auto patterns = make_patterns(DType::int32, ReduceOp::sum, 2);
    for (const std::size_t shift : {1U, 64U, 1024U, 4096U, 65536U}) {
        const auto bytes = sequence(patterns[0], shift, 8192);
        EXPECT_GT(count_wrong(bytes.data(), {&patterns[0], 0, 8192}, DType::int32, ReduceOp::sum),
                  1000U)
            << shift;
    }
}

TEST(BenchValues, AnAverageMayDifferInItsLastBitOnly) {
    const auto patterns = make_patterns(DType::float32, ReduceOp::avg, 3);
    const Pattern average = reduce_patterns(DType::float32, ReduceOp::avg, patterns);
    auto bytes = sequence(average, 0, 1000);
    bytes[0] ^= std::byte{1};   // the last bit
    bytes[6] ^= std::byte{16};  // a higher one
    EXPECT_EQ(count_wrong(bytes.data(), {&average, 0, 1000}, DType::float32, ReduceOp::avg), 1U);
}

TEST(BenchValues, SumsOfManyRanksFitTheSmallestTypes) {
    constexpr int ranks = 64;
    const auto bytes = make_patterns(DType::int8, ReduceOp::sum, ranks);
    const auto wide = make_patterns(DType::int64, ReduceOp::sum, ranks);
    const Pattern narrow_sum = reduce_patterns(DType::int8, ReduceOp::sum, bytes);
    const Pattern wide_sum = reduce_patterns(DType::int64, ReduceOp::sum, wide);
    for (std::size_t i = 0; i < pattern_length; ++i) {
        std::int64_t want = 0;
        std::memcpy(&want, wide_sum.data() + 8 * i, sizeof want);
        ASSERT_EQ(static_cast<std::int8_t>(narrow_sum[i]), want) << i;
    }
}

TEST(BenchLayout, PartsOfAllRanksMakeTheWhole) {
    const Layout gather = layout_of(Kind::all_gather, 1001, 4, 2, 0);
    EXPECT_EQ(gather.elements, 1000U);
    EXPECT_EQ(gather.input, 250U);
    EXPECT_EQ(gather.output, 1000U);
    EXPECT_EQ(layout_of(Kind::scatter, 1000, 4, 2, 0).input, 0U);
    EXPECT_EQ(layout_of(Kind::scatter, 1000, 4, 2, 2).input, 1000U);
    EXPECT_EQ(layout_of(Kind::all_to_all, 1, 4, 2, 0).part, 1U);  // not nothing
    EXPECT_EQ(layout_of(Kind::all_to_all, 0, 4, 2, 0).elements, 0U);
}

TEST(BenchLayout, BandwidthFactorsAreThoseOfNcclTests) {
    EXPECT_DOUBLE_EQ(bus_factor(Kind::all_reduce, 4), 1.5);
    EXPECT_DOUBLE_EQ(bus_factor(Kind::reduce_scatter, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_factor(Kind::gather, 4), 0.75);
    EXPECT_DOUBLE_EQ(bus_factor(Kind::broadcast, 4), 1);
}

}  // namespace
