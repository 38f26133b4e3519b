// Lines, and what is left of bars, as a terminal would show them, wherever the stream is cut.
#include "launcher/console/screen_lines.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Settles = ScreenLines::Settles;

// What comes out of the text, cut in two anywhere, and at every byte.
void expect_lines(const std::string& text, const std::string& lines, const std::string& last = "") {
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        ScreenLines screen;
        std::string out = screen.feed(text.substr(0, cut));
        out += screen.feed(text.substr(cut));
        EXPECT_EQ(out, lines) << cut;
        EXPECT_EQ(screen.finish(), last) << cut;
        EXPECT_EQ(screen.finish(), "") << cut;
    }
    ScreenLines screen;
    std::string out;
    for (const char byte : text) out += screen.feed({&byte, 1});
    EXPECT_EQ(out, lines);
    EXPECT_EQ(screen.finish(), last);
}

TEST(ScreenLines, LinesComeOutWholeWhereverTheStreamIsCut) {
    expect_lines("one\n\ntwo \r\nthree\nlast", "one\n\ntwo \r\nthree\n", "last\n");
    expect_lines("\x1b[31mred\x1b[0m\n\x1b[2Kx\n\x1b\n\x1b[",
                 "\x1b[31mred\x1b[0m\n\x1b[2Kx\n\x1b\n", "\x1b[\n");
    expect_lines(std::string("a\0b\n", 4), std::string("a\0b\n", 4));
}

TEST(ScreenLines, ALineLongerThanTheLimitComesInPieces) {
    ScreenLines screen(8);
    EXPECT_EQ(screen.feed("1234567"), "");
    EXPECT_EQ(screen.feed("89"), "123456789");
    EXPECT_EQ(screen.feed("abc"), "");
    EXPECT_EQ(screen.feed("\nnext"), "abc\n");
    EXPECT_EQ(screen.finish(), "next\n");
    EXPECT_EQ(screen.feed("12345678"), "12345678");
    EXPECT_EQ(screen.finish(), "\n");
}

TEST(ScreenLines, ARedrawnLineCollapsesToItsLastState) {
    expect_lines("one\n\r10 %\r20 %\r30 %\ntwo\r\n\r\n1\r2\r\nlast", "one\n30 %\ntwo\r\n\r\n2\r\n",
                 "last\n");
}

TEST(ScreenLines, TheStateOfAnUnfinishedLineCanBeSeen) {
    ScreenLines screen;
    screen.feed("\r10 %");
    EXPECT_THAT(screen.rows(), ElementsAre("10 %"));
    screen.feed("\r20 %\r");
    EXPECT_THAT(screen.rows(), ElementsAre("20 %"));
    EXPECT_TRUE(screen.redrawn());
}

TEST(ScreenLines, ABarThatHasEndedIsHeldUntilItIsKnownToBeNoOuterOne) {
    ScreenLines screen;
    EXPECT_EQ(screen.feed("\r99 %\r100 %\n"), "");
    EXPECT_THAT(screen.rows(), ElementsAre("100 %"));
    EXPECT_EQ(screen.settles(), Settles::soon);
    EXPECT_EQ(screen.settle(), "100 %\n");
    EXPECT_THAT(screen.rows(), IsEmpty());
    EXPECT_EQ(screen.settles(), Settles::never);
    EXPECT_FALSE(screen.redrawn());
    EXPECT_EQ(screen.feed("\r100 %\nplain"), "100 %\n");
    EXPECT_THAT(screen.rows(), ElementsAre("plain"));
    EXPECT_EQ(screen.finish(), "plain\n");
}

TEST(ScreenLines, BarsThatFollowEachOtherAreALineEach) {
    expect_lines("\r1a\r1b\n\r2a\r2b\n\r3a\r3b\ndone\n", "1b\n2b\n3b\ndone\n");
    expect_lines("\r1\n\r2\n\n\n\r3\n", "1\n2\n\n\n", "3\n");
    expect_lines("\r1 %\n\n\ntext\n", "1 %\n\n\ntext\n");
}

// As tqdm draws them: each time down to the inner one, and up again.
TEST(ScreenLines, ABarWithinABarLeavesTheLastStateOfEach) {
    std::string text;
    for (int outer = 0; outer < 3; ++outer) {
        text += "\router " + std::to_string(outer);
        for (int inner = 0; inner < 3; ++inner) {
            text += "\n\r  inner " + std::to_string(inner) + "\x1b[A";
        }
        text += "\n\r         \r\x1b[A";  // cleared
    }
    ScreenLines screen;
    EXPECT_EQ(screen.feed(text), "");
    EXPECT_EQ(screen.settles(), Settles::never);
    EXPECT_THAT(screen.rows(), ElementsAre("outer 2"));
    EXPECT_EQ(screen.feed("\router 3\n"), "");
    EXPECT_EQ(screen.settles(), Settles::soon);
    EXPECT_EQ(screen.feed("done\n"), "outer 3\ndone\n");
    expect_lines(text + "\router 3\ndone\n", "outer 3\ndone\n");
    expect_lines(text + "\router 3\n", "", "outer 3\n");
    expect_lines(text, "", "outer 2\n");
}

TEST(ScreenLines, BothAreThereWhileTheyGrow) {
    ScreenLines screen;
    screen.feed("\router 0\n\r  inner 0\x1b[A");
    EXPECT_THAT(screen.rows(), ElementsAre("outer 0", "  inner 0"));
    screen.feed("\n\r  inner 1");
    EXPECT_THAT(screen.rows(), ElementsAre("outer 0", "  inner 1"));
    EXPECT_EQ(screen.settles(), Settles::late) << "should it stay there";
    screen.feed("\x1b[A\router 1\n\n\r    third\x1b[2A");
    EXPECT_THAT(screen.rows(), ElementsAre("outer 1", "  inner 1", "    third"));
}

// tqdm's leave=True: what the inner one was in the end takes the outer one's row, and that moves on.
TEST(ScreenLines, AnInnerBarThatStaysIsALineOfItsOwn) {
    std::string text = "\router 0";
    for (int i = 1; i < 4; ++i) {
        const std::string number = std::to_string(i);
        text += "\n\r  inner a\x1b[A\n\r  inner b\x1b[A\r  inner " + number + "\n\router " + number;
    }
    expect_lines(text + "\n", "  inner 1\n  inner 2\n  inner 3\n", "outer 3\n");
}

// Both are cleared, in any order, and drawn again below it.
TEST(ScreenLines, WhatIsWrittenBetweenBarsIsALine) {
    const std::string bars = "\router 1\n\r  inner 1\x1b[A";
    const std::string drawn = "\router 2\n\r  inner 2\x1b[A";
    expect_lines(bars + "\r       \r\n\r         \r\x1b[Atext\n" + drawn, "text\n",
                 "outer 2\n  inner 2\n");
    expect_lines(bars + "\n\r         \r\x1b[A\r       \rtext\n" + drawn, "text\n",
                 "outer 2\n  inner 2\n");
    expect_lines("\r10 %\r    \rtext\n\r20 %\r30 %\n", "text\n", "30 %\n");
}

// As rich draws its own: rows again and again, up from the last one.
TEST(ScreenLines, RowsThatAreDrawnAnewStayRows) {
    const std::string again = "\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K";
    ScreenLines screen;
    EXPECT_EQ(screen.feed("one\ntwo\nthree"), "one\ntwo\n") << "nothing is known of it";
    EXPECT_EQ(screen.feed(again + "one 2\ntwo 2\nthree 2"), "");
    EXPECT_EQ(screen.feed(again + "one 3\ntwo 3\nthree 3"), "");
    EXPECT_THAT(screen.rows(), ElementsAre("one 3", "two 3", "three 3"));
    EXPECT_EQ(screen.feed("\nend\n"), "one 3\ntwo 3\nthree 3\nend\n");
}

TEST(ScreenLines, RowsAreWrittenOverFromTheirBeginning) {
    expect_lines("a 1\nb 1\n\x1b[2Aa 2\nb 2\n\x1b[2Aa 3\nb 3\n", "a 1\nb 1\n", "a 3\nb 3\n");
    expect_lines("\rbar 10 %\x1b[Gbar\x1b[K 20 %\n", "", "bar\x1b[K 20 %\n");
}

TEST(ScreenLines, ABarBelowOneThatHasEndedDoesNotHoldItForEver) {
    ScreenLines screen;
    screen.feed("\r99 %\r100 %\n\r0 %");
    EXPECT_EQ(screen.settles(), Settles::late);
    EXPECT_EQ(screen.settle(), "100 %\n");
    EXPECT_EQ(screen.settles(), Settles::never);
    EXPECT_THAT(screen.rows(), ElementsAre("0 %"));
    EXPECT_TRUE(screen.redrawn());
    screen.feed("\n\r  inner\x1b[A\router\n");
    screen.feed("Saving... ");
    EXPECT_EQ(screen.settles(), Settles::late);
    EXPECT_EQ(screen.settle(), "outer\n");
    EXPECT_FALSE(screen.redrawn());
    EXPECT_EQ(screen.take_rest(), "Saving... ");
}

TEST(ScreenLines, WhatIsNoEscapeSequenceIsText) {
    expect_lines("\x1b[\n12\n34\n", "\x1b[\n12\n34\n");
    expect_lines(
        "\x1b[1\x01"
        "A\n",
        "\x1b[1\x01"
        "A\n");
    const std::string too_long = "\x1b[" + std::string(40, '0') + "1A\n";
    expect_lines(too_long, too_long);
}

TEST(ScreenLines, RowsAreNoMoreThanATerminalHas) {
    ScreenLines screen;
    screen.feed("\rbar\x1b[999999999999A");
    screen.feed("\x1b[4000000A\x1b[4000000A\rtop");
    EXPECT_THAT(screen.rows(), ElementsAre("top", "bar"));
    std::string out;
    for (int i = 0; i < 100; ++i) out += screen.feed("\n");
    out += screen.finish();
    EXPECT_TRUE(out.starts_with("top\nbar\n")) << out;
}

TEST(ScreenLines, APartThatIsOutIsNotHandedOutAgain) {
    ScreenLines screen;
    EXPECT_EQ(screen.feed("Password: "), "");
    EXPECT_EQ(screen.take_rest(), "Password: ");
    EXPECT_TRUE(screen.in_line());
    EXPECT_EQ(screen.take_rest(), "");
    EXPECT_EQ(screen.feed("accepted\nnext"), "accepted\n");
    EXPECT_FALSE(screen.in_line());
    EXPECT_EQ(screen.take_rest(), "next");
    EXPECT_EQ(screen.finish(), "\n");
}

TEST(ScreenLines, ALineWhoseBeginningIsOutGoesBackToItsStartBeforeItsLastState) {
    ScreenLines screen;
    screen.feed("begin");
    screen.take_rest();
    EXPECT_EQ(screen.feed("\r10 %\r20 %"), "");
    EXPECT_EQ(screen.feed("\nnext\n"), "\r20 %\nnext\n");
    screen.feed("begin");
    screen.take_rest();
    EXPECT_EQ(screen.feed("\r10 %\n"), "");
    EXPECT_EQ(screen.finish(), "\r10 %\n");
    screen.feed("begin");
    screen.take_rest();
    EXPECT_EQ(screen.feed("\x1b[A\rup"), "\n");
    EXPECT_EQ(screen.finish(), "up\n");
}

}  // namespace
}  // namespace ddp::launcher
