// Whole lines from a stream cut anywhere, and the exceptions.
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
    LineCutter cutter(8);
    EXPECT_EQ(cutter.feed("1234567"), "");
    EXPECT_EQ(cutter.feed("89"), "123456789");
    EXPECT_EQ(cutter.feed("abc"), "");
    EXPECT_EQ(cutter.feed("\nnext"), "abc\n");
    EXPECT_EQ(cutter.finish(), "next\n");
}

TEST(LineCutter, ALongLineThatEndsAtAPieceStillGetsItsNewline) {
    LineCutter cutter(4);
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

}  // namespace
}  // namespace ddp::launcher
