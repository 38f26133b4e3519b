// The comparison of examples with their comments can fail.
#include "examples/expected_output.hpp"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace {

using namespace ddp::tests;
using Lines = std::vector<std::string>;

TEST(ExpectedOutput, IsReadFromTheCommentOfAnExample) {
    const Lines lines = expected_output("07_two_devices", "expected with two devices");
    ASSERT_FALSE(lines.empty());
    EXPECT_EQ(lines[0].find("//"), std::string::npos) << lines[0];
}

TEST(ExpectedOutput, MayHaveEmptyLinesInside) {
    const Lines lines =
        expected_output("06_move_tensors", "expected, with cuda:0 in place of cpu:1 on a GPU");
    EXPECT_EQ(std::ranges::count(lines, ""), 1);
    EXPECT_EQ(lines.back().substr(0, 6), "16 KiB");
}

TEST(ExpectedOutput, IsMissedWhereThereIsNone) {
    EXPECT_NONFATAL_FAILURE(static_cast<void>(expected_output("07_two_devices", "no such label")),
                            "no such label");
}

TEST(ExpectedOutput, ComparesLinesInOrder) {
    EXPECT_EQ(difference({"a", "b"}, {"a", "b"}, LineOrder::fixed), "");
    EXPECT_EQ(difference({"b", "a"}, {"a", "b"}, LineOrder::fixed), "\"b\", not \"a\"");
    EXPECT_EQ(difference({"a"}, {"a", "b"}, LineOrder::fixed), "no line \"b\"");
    EXPECT_EQ(difference({"a", "b"}, {"a"}, LineOrder::fixed), "beyond what is expected: \"b\"");
    EXPECT_EQ(difference({"x.y"}, {"x+y"}, LineOrder::fixed), "\"x.y\", not \"x+y\"");
}

TEST(ExpectedOutput, LetsWordsColumnsAndLinesVary) {
    EXPECT_EQ(difference({"1 KiB    0.25 ms"}, {"1 KiB <ms> ms"}, LineOrder::fixed), "");
    EXPECT_NE(difference({"1 KiB ms"}, {"1 KiB <ms> ms"}, LineOrder::fixed), "");
    EXPECT_NE(difference({"1 KiB 0 25 ms"}, {"1 KiB <ms> ms"}, LineOrder::fixed), "");
    EXPECT_EQ(difference({"a", "x", "y", "b"}, {"a", "...", "b"}, LineOrder::fixed), "");
    EXPECT_EQ(difference({"a"}, {"a", "..."}, LineOrder::fixed), "");
    EXPECT_NE(difference({"a", "x"}, {"a", "...", "b"}, LineOrder::fixed), "");
}

TEST(ExpectedOutput, ComparesLinesInAnyOrderOneByOne) {
    EXPECT_EQ(difference({"b", "a", "a"}, {"a", "<word>", "a"}, LineOrder::any), "");
    EXPECT_NE(difference({"b", "a"}, {"a", "a"}, LineOrder::any), "");
    EXPECT_NE(difference({"b", "a", "a"}, {"a", "b"}, LineOrder::any), "");
}

}  // namespace
