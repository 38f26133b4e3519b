// The end of a stream, cut anywhere, without what was drawn over.
#include "launcher/worker/last_lines.hpp"

#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

std::string numbered(int from, int to) {
    std::string text;
    for (int i = from; i < to; ++i) text += (i > from ? "\n" : "") + std::to_string(i);
    return text;
}

TEST(LastLines, OnlyTheLastTwentyLinesAreKept) {
    LastLines lines;
    EXPECT_TRUE(lines.empty());
    lines.feed(numbered(0, 100) + "\n");
    EXPECT_EQ(lines.text(), numbered(80, 100));
    lines.feed("100\n");
    EXPECT_EQ(lines.text(), numbered(81, 101));
    EXPECT_FALSE(lines.empty());
}

TEST(LastLines, TheyAreTheSameWhereverTheStreamIsCut) {
    const std::string text = "one\n\r10 %\r20 %\rdone\r\nthree\nlast \r";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        LastLines lines;
        lines.feed(text.substr(0, cut));
        lines.feed(text.substr(cut));
        EXPECT_EQ(lines.text(), "one\ndone\nthree\nlast ") << cut;
    }
}

TEST(LastLines, AProgressBarDoesNotPushOutTheLinesBeforeIt) {
    LastLines lines;
    lines.feed("what matters\n");
    for (int i = 0; i < 10'000; ++i) lines.feed("\r" + std::to_string(i) + " steps done");
    EXPECT_EQ(lines.text(), "what matters\n9999 steps done");
}

TEST(LastLines, LongLinesAreKeptUpToFourKilobytes) {
    LastLines lines;
    const std::string long_line(3000, 'x');
    lines.feed(long_line + "\n" + long_line + "\nlast\n");
    EXPECT_EQ(lines.text(), long_line + "\nlast");
    lines.feed(std::string(100'000, 'y') + "end");
    EXPECT_EQ(lines.text().substr(lines.text().size() - 4), "yend");
    EXPECT_LE(lines.text().size(), 2 * LastLines::max_bytes + LastLines::max_lines);
}

}  // namespace
}  // namespace ddp::launcher
