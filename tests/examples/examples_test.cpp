// 01_hello_ranks, 02_all_reduce and 12_launch_from_code print what their first lines promise, by
// ddp-launch, started by hand and alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;

// The output of rank `rank` of 2, as the example's head shows it for rank 0.
std::vector<std::string> all_reduce_lines(const std::string& rank) {
    const std::string me = "rank " + rank + " of 2: ";
    return {me + "sum [3, 30, 300]", me + "average [1.5, 15, 150]", me + "from rank 0 [1, 10, 100]",
            me + "gathered [1, 10, 100, 2, 20, 200]", me + "largest rank 1"};
}

void expect_all_reduce_output(const ProgramResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.err;
    auto expected = all_reduce_lines("0");
    for (const std::string& line : all_reduce_lines("1")) expected.push_back(line);
    EXPECT_THAT(lines_of(result.out), testing::UnorderedElementsAreArray(expected));
}

}  // namespace

TEST(HelloRanks, NamesEachRankOnce) {
    const auto result = run_ranks_of(3, {example("01_hello_ranks")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const auto line_of = [](const std::string& rank) {
        return testing::MatchesRegex("rank " + rank + " of 3, local rank " + rank +
                                     " of 3, pid [0-9]+ on .+, backend shm");
    };
    EXPECT_THAT(lines_of(result.out),
                testing::UnorderedElementsAre(line_of("0"), line_of("1"), line_of("2")));
}

TEST(HelloRanks, IsAWorldOfOneWhenStartedAlone) {
    const auto result = run_program({example("01_hello_ranks")});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, testing::StartsWith("rank 0 of 1, local rank 0 of 1, pid "));
}

TEST(LaunchFromCodeExample, PrintsWhatItsHeadPromises) {
    if (std::string(DDP_LAUNCH).empty()) GTEST_SKIP() << "ddp-launch is not built";
    const auto result = run_program({example("12_launch_from_code"), "3"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    const std::string rest = " of 3: the ranks' numbers add up to 3";
    EXPECT_THAT(lines_of(result.out),
                testing::UnorderedElementsAre("rank 0" + rest, "rank 1" + rest, "rank 2" + rest,
                                              "all 3 workers ended well"));
}

TEST(AllReduceExample, PrintsWhatItsHeadPromises) {
    expect_all_reduce_output(run_ranks_of(2, {example("02_all_reduce")}));
}

TEST(AllReduceExample, RunsWithRanksStartedByHand) {
    expect_all_reduce_output(run_ranks_by_hand(2, {example("02_all_reduce")}));
}
