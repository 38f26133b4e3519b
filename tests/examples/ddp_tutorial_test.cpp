// 05_ddp_tutorial prints the tutorial's lines from each rank, and knows its options.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "examples/expected_output.hpp"
#include "examples/run_program.hpp"

namespace {

using namespace ddp::tests;

const Command program{example("05_ddp_tutorial")};
Command with_device(const std::string& device) {
    return {example("05_ddp_tutorial"), "--device", device};
}

}  // namespace

TEST(DdpTutorial, PrintsWhatItPromises) {
    expect_output(run_ranks_of(2, with_device("cpu")),
                  expected_output("05_ddp_tutorial", "expected, in any order of the ranks"),
                  LineOrder::any);
}

TEST(DdpTutorial, IsAWorldOfOneWhenStartedAlone) {
    const std::string model = "In Model: input size [30, 5] output size [30, 2]";
    const std::string outside = "Outside: input size [30, 5] output_size [30, 2]";
    expect_output(run_program(program),
                  {"Let's use 1 devices!", model, outside, model, outside, model, outside});
}

TEST(DdpTutorial, RepeatsARowWhereTheRanksDoNotDivideTheRows) {
    std::vector<std::string> expected;
    for (int rank = 0; rank < 4; ++rank) {  // 23 rows each, two of them twice
        expected.push_back("Let's use 4 devices!");
        expected.push_back("In Model: input size [23, 5] output size [23, 2]");
        expected.push_back("Outside: input size [23, 5] output_size [23, 2]");
    }
    expect_output(run_ranks_of(4, with_device("auto")), expected, LineOrder::any);
}

TEST(DdpTutorial, SaysWhatItDoesNotUnderstand) {
    const auto result = run_program(with_device("gpu"));
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, testing::HasSubstr("usage: 05_ddp_tutorial [--device auto|cpu|cuda]"));
}
