// Frames: whatever the pieces in which a stream arrives, the same frames come out.
#include "base/frame.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using ddp::base::append_frame;
using ddp::base::FrameReader;
using ddp::base::PayloadReader;
using ddp::base::PayloadWriter;

TEST(FrameReader, GivesBackFramesSplitAtEveryByte) {
    const std::vector<std::string> frames = {"first", "", std::string(300, 'x'), "last"};
    std::string stream;
    for (const std::string& frame : frames) append_frame(stream, frame);
    for (std::size_t split = 0; split <= stream.size(); ++split) {
        FrameReader reader(1024);
        std::vector<std::string> read;
        for (const std::string& piece : {stream.substr(0, split), stream.substr(split)}) {
            reader.feed(piece);
            while (auto frame = reader.next()) read.push_back(*frame);
        }
        EXPECT_EQ(read, frames) << "split at " << split;
    }
}

TEST(FrameReader, RefusesAFrameBeyondTheLimitBeforeItsBytesCome) {
    FrameReader reader(16);
    reader.feed(std::string("\x11\0\0\0", 4));
    EXPECT_THROW(reader.next(), ddp::UsageError);
}

TEST(PayloadReader, ReadsWhatTheWriterWrote) {
    const std::string bytes =
        PayloadWriter().u8(200).u32(4'000'000'000U).i64(-5).str("text").str("").take();
    PayloadReader reader(bytes);
    EXPECT_EQ(reader.u8(), 200);
    EXPECT_EQ(reader.u32(), 4'000'000'000U);
    EXPECT_EQ(reader.i64(), -5);
    EXPECT_EQ(reader.str(), "text");
    EXPECT_EQ(reader.str(), "");
    EXPECT_TRUE(reader.at_end());
}

TEST(PayloadReader, RefusesAPayloadCutAtAnyByte) {
    const std::string bytes = PayloadWriter().u32(7).str("text").take();
    for (std::size_t size = 0; size < bytes.size(); ++size) {
        PayloadReader reader(std::string_view(bytes).substr(0, size));
        EXPECT_THROW(
            {
                reader.u32();
                reader.str();
            },
            ddp::UsageError)
            << size;
    }
}

}  // namespace
