// 13_c_trainer prints what its head promises, and learns the same on any number of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "examples/expected_output.hpp"
#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;

std::vector<double> losses_on(int ranks) {
    const auto result = run_ranks_of(ranks, {example("13_c_trainer")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<double> losses;
    for (const std::string& line : lines_of(result.out)) {
        int step = 0;
        double loss = 0;
        if (std::sscanf(line.c_str(), "step %d loss %lf", &step, &loss) == 2) {
            losses.push_back(loss);
        }
    }
    return losses;
}

}  // namespace

TEST(CTrainer, PrintsWhatItsHeadPromises) {
    expect_output(run_ranks_of(2, {example("13_c_trainer")}), expected_output("13_c_trainer"));
}

// Every rank's share has as many points, so the average of the gradients is that of all points.
TEST(CTrainer, HasTheLossesOfOneRankOnFour) {
    const auto one = losses_on(1);
    const auto four = losses_on(4);
    ASSERT_EQ(one.size(), 4U);
    ASSERT_EQ(four.size(), 4U);
    for (std::size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(four[i], one[i], 1e-4) << i;
    EXPECT_LT(four.back(), 0.02 * four.front());
}
