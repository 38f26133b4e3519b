// Whole lines from a stream cut anywhere, and the two exceptions.
#include "launcher/channel/line_cutter.hpp"

#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

TEST(LineCutter, LinesComeOutWholeWhereverTheStreamIsCut) {
    const std::string text = "one\n\ntwo \r\nthree\nlast";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        LineCutter cutter;
        const std::string first = cutter.feed(text.substr(0, cut));
        const std::string second = cutter.feed(text.substr(cut));
        EXPECT_TRUE(first.empty() || first.back() == '\n') << cut;
        EXPECT_EQ(first + second, "one\n\ntwo \r\nthree\n") << cut;
        EXPECT_EQ(cutter.finish(), "last\n") << cut;
        EXPECT_EQ(cutter.finish(), "") << cut;
    }
}

TEST(LineCutter, ATerminatedLastLineGetsNoSecondNewline) {
    LineCutter cutter;
    EXPECT_EQ(cutter.feed("done\n"), "done\n");
    EXPECT_EQ(cutter.finish(), "");
}

TEST(LineCutter, ALineLongerThanTheLimitComesInPieces) {
    LineCutter cutter(CarriageReturns::keep, 8);
    EXPECT_EQ(cutter.feed("1234567"), "");
    EXPECT_EQ(cutter.feed("89"), "123456789");
    EXPECT_EQ(cutter.feed("abc"), "");
    EXPECT_EQ(cutter.feed("\nnext"), "abc\n");
    EXPECT_EQ(cutter.finish(), "next\n");
}

TEST(LineCutter, ALongLineThatEndsAtAPieceStillGetsItsNewline) {
    LineCutter cutter(CarriageReturns::keep, 4);
    EXPECT_EQ(cutter.feed("1234"), "1234");
    EXPECT_EQ(cutter.finish(), "\n");
    EXPECT_EQ(cutter.feed("5678"), "5678");
    EXPECT_EQ(cutter.feed("\n"), "\n");
    EXPECT_EQ(cutter.finish(), "");
}

TEST(LineCutter, NulBytesAreBytes) {
    LineCutter cutter;
    const std::string text("a\0b\n", 4);
    EXPECT_EQ(cutter.feed(text), text);
}

TEST(LineCutter, ARedrawnLineCollapsesToItsLastStateWhereverItIsCut) {
    const std::string text = "one\n\r10 %\r20 %\r30 %\ntwo\r\n\r\n1\r2\r\nlast";
    for (std::size_t cut = 0; cut <= text.size(); ++cut) {
        LineCutter cutter(CarriageReturns::collapse);
        const std::string first = cutter.feed(text.substr(0, cut));
        const std::string second = cutter.feed(text.substr(cut));
        EXPECT_EQ(first + second, "one\n30 %\ntwo\r\n\r\n2\r\n") << cut;
        EXPECT_EQ(cutter.finish(), "last\n") << cut;
    }
}

TEST(LineCutter, TheStateOfAnUnfinishedLineCanBeSeen) {
    LineCutter cutter(CarriageReturns::collapse);
    cutter.feed("\r10 %");
    EXPECT_EQ(cutter.rest(), "10 %");
    cutter.feed("\r20 %\r");
    EXPECT_EQ(cutter.rest(), "20 %");
    EXPECT_TRUE(cutter.redrawn());
    EXPECT_EQ(cutter.feed("\n"), "20 %\r\n");
    EXPECT_FALSE(cutter.redrawn());
}

TEST(LineCutter, APartThatIsOutIsNotHandedOutAgain) {
    LineCutter cutter(CarriageReturns::collapse);
    EXPECT_EQ(cutter.feed("Password: "), "");
    EXPECT_EQ(cutter.take_rest(), "Password: ");
    EXPECT_TRUE(cutter.in_line());
    EXPECT_EQ(cutter.take_rest(), "");
    EXPECT_EQ(cutter.feed("accepted\nnext"), "accepted\n");
    EXPECT_FALSE(cutter.in_line());
    EXPECT_EQ(cutter.take_rest(), "next");
    EXPECT_EQ(cutter.finish(), "\n");
}

TEST(LineCutter, ALineWhoseBeginningIsOutGoesBackToItsStartBeforeItsLastState) {
    LineCutter cutter(CarriageReturns::collapse);
    cutter.feed("begin");
    cutter.take_rest();
    EXPECT_EQ(cutter.feed("\r10 %\r20 %"), "");
    EXPECT_EQ(cutter.feed("\nnext\n"), "\r20 %\nnext\n");
}

}  // namespace
}  // namespace ddp::launcher
