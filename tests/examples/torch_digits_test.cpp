// The LibTorch example as a whole: it learns, and ranks agree to the bit.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <set>
#include <string>

#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;

class TorchDigitsRanks : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Counts, TorchDigitsRanks, testing::Values(1, 2));

TEST_P(TorchDigitsRanks, LearnAndEndWithTheSameBits) {
    const auto result = run_ranks_of(GetParam(), {example("10_torch_digits")});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    std::set<std::string> weights;
    const auto lines = lines_of(result.out);
    EXPECT_EQ(lines.size(), static_cast<std::size_t>(GetParam())) << result.out;
    for (const std::string& line : lines) {
        double accuracy = 0;
        std::array<char, 17> digest{};
        ASSERT_EQ(std::sscanf(line.c_str(), "rank %*d of %*d: accuracy %lf weights %16s", &accuracy,
                              digest.data()),
                  2)
            << line;
        EXPECT_GE(accuracy, 0.97) << line;
        weights.insert(digest.data());
    }
    EXPECT_EQ(weights.size(), 1U) << result.out;
}

}  // namespace
