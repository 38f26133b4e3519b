// Where ranks of other hosts are, as bytes.
#include "launcher/hosts/messages/messages.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>

namespace ddp::launcher {
namespace {

StacksMessage some_stacks() {
    StacksMessage message{.round = 3, .question = ~std::uint64_t{0}};
    message.stacks.push_back({.rank = 4, .pid = 4711, .problem = "it has ended"});
    message.stacks.push_back(
        {.rank = 5,
         .pid = 4712,
         .python = {{.tid = 4712,
                     .name = "MainThread",
                     .frames = {"load (train.py:5)", "<module> (train.py:8)"},
                     .own_frame = "load (train.py:5)"}},
         .native = {{.tid = 4712, .frames = {"read", "main"}}, {.tid = 4713, .name = "helper"}},
         .has_all_native = true});
    return message;
}

StacksMessage back(const StacksMessage& message) {
    return std::get<StacksMessage>(decode_from_member(encode(message)));
}

TEST(StacksMessage, CarriesEachField) {
    const StacksMessage sent = some_stacks();
    const StacksMessage got = back(sent);
    EXPECT_EQ(got.round, 3);
    EXPECT_EQ(got.question, ~std::uint64_t{0});
    ASSERT_EQ(got.stacks.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(got.stacks[i].rank, sent.stacks[i].rank);
        EXPECT_EQ(got.stacks[i].pid, sent.stacks[i].pid);
        EXPECT_EQ(got.stacks[i].problem, sent.stacks[i].problem);
        EXPECT_EQ(got.stacks[i].has_all_native, sent.stacks[i].has_all_native);
        EXPECT_EQ(got.stacks[i].native.size(), sent.stacks[i].native.size());
    }
    const ThreadStack& python = got.stacks[1].python.at(0);
    EXPECT_EQ(python.tid, 4712);
    EXPECT_EQ(python.name, "MainThread");
    EXPECT_EQ(python.frames, sent.stacks[1].python[0].frames);
    EXPECT_EQ(python.own_frame, "load (train.py:5)");
    EXPECT_EQ(got.stacks[1].native[1].name, "helper");
}

TEST(StacksMessage, CarriesWhatFits) {
    StacksMessage message;
    RankStacks& high = message.stacks.emplace_back(RankStacks{.rank = 1, .has_all_native = true});
    high.native.assign(100,
                       {.tid = 7, .frames = std::vector<std::string>(200, std::string(2000, 'x'))});
    message.stacks.resize(20, RankStacks{.rank = 2, .problem = "\033"});
    const std::string bytes = encode(message);
    EXPECT_LT(bytes.size(), max_link_message_bytes);
    const StacksMessage got = std::get<StacksMessage>(decode_from_member(bytes));
    ASSERT_EQ(got.stacks.size(), 16U);
    ASSERT_EQ(got.stacks[0].native.size(), 1U) << "the first thread alone";
    EXPECT_FALSE(got.stacks[0].has_all_native);
    EXPECT_EQ(got.stacks[0].native[0].frames.size(), 128U);
    EXPECT_EQ(got.stacks[0].native[0].frames[0].size(), 1024U);
    EXPECT_EQ(got.stacks[1].problem, "?");
}

TEST(StacksMessage, IsRefusedWhereItMakesNoSense) {
    const std::string bytes = encode(some_stacks());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
        EXPECT_THROW(decode_from_member(bytes.substr(0, cut)), UsageError) << cut;
    }
    StacksMessage message = some_stacks();
    message.stacks[0].rank = -1;
    EXPECT_THROW(back(message), UsageError);
}

}  // namespace
}  // namespace ddp::launcher
