// Values whose grammar is more than a number. What they refuse is in bad_command_lines.cpp.
#include "launcher/options/option_values.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

template <class Parse>
auto parse_with(Parse parse, const std::string& text) {
    return parse(GivenValue{"--option", text});
}

std::vector<std::string> words_of(const std::string& text) {
    return split_words({"--option", text}, text);
}

TEST(OptionValues, RanksAreListsAndRanges) {
    EXPECT_THAT(parse_with(parse_ranks, "3"), ElementsAre(3));
    EXPECT_THAT(parse_with(parse_ranks, "3,0,3"), ElementsAre(0, 3));
    EXPECT_THAT(parse_with(parse_ranks, "2-5"), ElementsAre(2, 3, 4, 5));
    EXPECT_THAT(parse_with(parse_ranks, "0,10-11,4"), ElementsAre(0, 4, 10, 11));
    for (const char* bad : {"", ",", "1,", "-1", "1-", "5-2", "a", "1 2", "0-99999"}) {
        EXPECT_THROW(parse_with(parse_ranks, bad), UsageError) << bad;
    }
}

TEST(OptionValues, WordsAreSplitAsAShellDoes) {
    EXPECT_THAT(words_of("gdb --args"), ElementsAre("gdb", "--args"));
    EXPECT_THAT(words_of("  a \t b  "), ElementsAre("a", "b"));
    EXPECT_THAT(words_of("a 'b c' \"d e\""), ElementsAre("a", "b c", "d e"));
    EXPECT_THAT(words_of("a'b'\"c\"d"), ElementsAre("abcd"));
    EXPECT_THAT(words_of("''"), ElementsAre(""));
    EXPECT_THAT(words_of("a\\ b \\' \\\\"), ElementsAre("a b", "'", "\\"));
    EXPECT_THAT(words_of(R"("a\"b" "c\d" 'e\f')"), ElementsAre("a\"b", "c\\d", "e\\f"));
    EXPECT_THAT(words_of("$HOME *.c ~"), ElementsAre("$HOME", "*.c", "~"));
    EXPECT_THAT(words_of(""), IsEmpty());
    EXPECT_THROW(words_of("'open"), UsageError);
    EXPECT_THROW(words_of("\"open"), UsageError);
}

TEST(OptionValues, AWrapNamesRanksAndACommand) {
    const Wrap one = parse_with(parse_wrap, "1:gdb -ex 'break main' --args");
    EXPECT_THAT(one.local_ranks, ElementsAre(1));
    EXPECT_THAT(one.command, ElementsAre("gdb", "-ex", "break main", "--args"));
    EXPECT_THAT(parse_with(parse_wrap, "0,2-3:env A=b:c").local_ranks, ElementsAre(0, 2, 3));
    EXPECT_THAT(parse_with(parse_wrap, "0,2-3:env A=b:c").command, ElementsAre("env", "A=b:c"));
    EXPECT_THAT(parse_with(parse_wrap, "all:valgrind").local_ranks, IsEmpty());
}

TEST(OptionValues, SignalsHaveNamesWithOrWithoutSig) {
    EXPECT_THAT(parse_with(parse_signals, "SIGTERM,INT,SIGUSR1"),
                ElementsAre(SIGTERM, SIGINT, SIGUSR1));
}

TEST(OptionValues, BytesHaveSuffixesThatArePowersOf1024) {
    constexpr ByteLimits limits{1 << 20, std::uint64_t{64} << 30};
    const auto bytes = [&](const std::string& text) {
        return parse_bytes(GivenValue{"--option", text}, limits);
    };
    EXPECT_EQ(bytes("1048576"), 1U << 20);
    EXPECT_EQ(bytes("1024K"), 1U << 20);
    EXPECT_EQ(bytes("256M"), 256U << 20);
    EXPECT_EQ(bytes("64G"), std::uint64_t{64} << 30);
    for (const char* bad : {"", "M", "1023K", "64.5G", "65537M", "1T", "0x100000", " 1M", "1M ",
                            "-1M", "99999999999999999999G", "18446744073709551615G"}) {
        EXPECT_THROW(bytes(bad), UsageError) << bad;
    }
}

TEST(OptionValues, SecondsMayHaveFractions) {
    EXPECT_EQ(parse_with(parse_seconds, "2"), std::chrono::milliseconds{2000});
    EXPECT_EQ(parse_with(parse_seconds, "0.05"), std::chrono::milliseconds{50});
    EXPECT_EQ(parse_with(parse_seconds, "0"), std::chrono::milliseconds{0});
    for (const char* bad : {"", "1e3", "inf", "-0", "1,5", "2s"}) {
        EXPECT_THROW(parse_with(parse_seconds, bad), UsageError) << bad;
    }
}

}  // namespace
}  // namespace ddp::launcher
