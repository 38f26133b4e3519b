// Near words are found, far ones are not.
#include "launcher/options/did_you_mean.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::launcher {
namespace {

TEST(DidYouMean, DistanceCountsInsertDeleteReplaceAndSwap) {
    EXPECT_EQ(edit_distance("train", "train"), 0U);
    EXPECT_EQ(edit_distance("train", "trains"), 1U);
    EXPECT_EQ(edit_distance("train", "rain"), 1U);
    EXPECT_EQ(edit_distance("train", "brain"), 1U);
    EXPECT_EQ(edit_distance("train", "tarin"), 1U);
    EXPECT_EQ(edit_distance("", "abc"), 3U);
    EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

TEST(DidYouMean, TheNearestCandidateIsNamedAndAFarOneIsNot) {
    const std::vector<std::string> names{"--nproc-per-node", "--standalone", "--help"};
    EXPECT_EQ(did_you_mean("--nproc-per-nod", names), "--nproc-per-node");
    EXPECT_EQ(did_you_mean("--stand-alone", names), "--standalone");
    EXPECT_EQ(did_you_mean("--hlep", names), "--help");
    EXPECT_EQ(did_you_mean("--log-dir", names), std::nullopt);
    EXPECT_EQ(did_you_mean("x", names), std::nullopt);
}

TEST(DidYouMean, AQuarterOfTheWordMayDifferOrOneLetter) {
    const std::vector<std::string> names{"abcdefgh"};
    EXPECT_EQ(did_you_mean("abcdefxy", names), "abcdefgh");
    EXPECT_EQ(did_you_mean("abcdexyz", names), std::nullopt);
    EXPECT_EQ(did_you_mean("abcdefg", names), "abcdefgh");
    EXPECT_EQ(did_you_mean("xbcdefg", names), std::nullopt);
}

TEST(DidYouMean, OfEquallyNearOnesTheFirstIsNamed) {
    EXPECT_EQ(did_you_mean("bat", std::vector<std::string>{"cat", "bar", "hat"}), "cat");
}

TEST(DidYouMean, ABeginningStandsForTheShortestNameThatHasIt) {
    const std::vector<std::string> names{"--master-address", "--master-addr", "--master-port"};
    EXPECT_EQ(did_you_mean("--mas", names), "--master-addr");
    EXPECT_EQ(did_you_mean("--", names), std::nullopt);
}

TEST(DidYouMean, AOneLetterNameIsNotReplacedByAnother) {
    EXPECT_EQ(did_you_mean("a", std::vector<std::string>{"b"}), std::nullopt);
}

}  // namespace
}  // namespace ddp::launcher
