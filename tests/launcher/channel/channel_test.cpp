// Every message, whole and damaged, and a stream cut at every byte.
#include "launcher/channel/channel.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <vector>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

std::vector<Message> one_of_each() {
    return {StopMessage{15, milliseconds{30000}},
            KillMessage{},
            SignalMessage{10},
            OutputMessage{Stream::err, 3, std::string("a\0b\nlast\n", 9)},
            StateMessage{WorkerState::ended, 2, 4711, {.signal = 6, .core_dumped = true}, 15},
            FailureMessage{"rank 1 failed\nbadly"},
            DoneMessage{139},
            ShownMessage{Stream::err, 3, 70000},
            StatusMessage{2, 1'000'000'000'000, 12.5},
            NoticeMessage{"3 lines are missing"},
            NoticeMessage{"rank 1 is held for a debugger", true},
            ClosedMessage{Stream::err}};
}

std::vector<std::string> encoded(const std::vector<Message>& messages) {
    std::vector<std::string> result;
    for (const Message& message : messages) result.push_back(encode(message));
    return result;
}

TEST(Channel, EveryMessageSurvivesTheTrip) {
    for (const Message& message : one_of_each()) {
        const Message copy = decode(encode(message));
        EXPECT_EQ(copy.index(), message.index());
        EXPECT_EQ(encode(copy), encode(message));
    }
    const auto line = std::get<OutputMessage>(decode(encode(one_of_each()[3])));
    EXPECT_EQ(line.stream, Stream::err);
    EXPECT_EQ(line.local_rank, 3);
    EXPECT_EQ(line.bytes, std::string("a\0b\nlast\n", 9));
    const auto stop = std::get<StopMessage>(decode(encode(one_of_each()[0])));
    EXPECT_EQ(stop.signal, 15);
    EXPECT_EQ(stop.grace, milliseconds{30000});
    const auto state = std::get<StateMessage>(decode(encode(one_of_each()[4])));
    EXPECT_EQ(state.state, WorkerState::ended);
    EXPECT_EQ(state.local_rank, 2);
    EXPECT_EQ(state.pid, 4711);
    EXPECT_EQ(state.status, (ExitStatus{.signal = 6, .core_dumped = true}));
    EXPECT_EQ(state.stopped_with, 15);
}

TEST(Channel, ATextThatNoFrameHoldsIsCut) {
    const std::string text(12U << 20, 'x');
    const std::string payload = encode(FailureMessage{text});
    const std::string notice = encode(NoticeMessage{text});
    EXPECT_LE(payload.size(), Channel::max_message_bytes);
    EXPECT_LE(notice.size(), Channel::max_message_bytes);
    for (const std::string& cut : {std::get<FailureMessage>(decode(payload)).text,
                                   std::get<NoticeMessage>(decode(notice)).text}) {
        EXPECT_GT(cut.size(), Channel::max_message_bytes / 2);
        EXPECT_NE(cut.find("bytes more)"), std::string::npos);
    }
}

TEST(Channel, MessagesArriveWholeWhereverTheStreamIsCut) {
    std::string bytes;
    for (const Message& message : one_of_each()) base::append_frame(bytes, encode(message));
    for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
        ChannelSockets sockets = make_channel_sockets();
        Channel receiver(std::move(sockets.agent));
        std::vector<Message> got;
        for (const std::string& part : {bytes.substr(0, cut), bytes.substr(cut)}) {
            ASSERT_EQ(::send(sockets.front.get(), part.data(), part.size(), 0),
                      static_cast<ssize_t>(part.size()));
            receiver.receive();
            while (const auto message = receiver.next()) got.push_back(*message);
        }
        EXPECT_EQ(encoded(got), encoded(one_of_each())) << "cut at byte " << cut;
    }
}

TEST(Channel, ADamagedMessageIsRefused) {
    for (const Message& message : one_of_each()) {
        const std::string whole = encode(message);
        for (std::size_t size = 0; size < whole.size(); ++size) {
            EXPECT_THROW(decode(whole.substr(0, size)), UsageError);
        }
        EXPECT_THROW(decode(whole + "x"), UsageError);
    }
    EXPECT_THROW(decode("\x09"), UsageError);
    EXPECT_THROW(decode("\x03\x02"), UsageError);  // no such stream
}

TEST(Channel, WhatWasSentBeforeTheEndArrivesThoughAnAnswerCannot) {
    ChannelSockets sockets = make_channel_sockets();
    std::optional<Channel> sender(std::move(sockets.agent));
    Channel receiver(std::move(sockets.front));
    receiver.send(KillMessage{});  // never read
    sender->send(DoneMessage{3});
    sender.reset();
    receiver.send(KillMessage{});
    EXPECT_TRUE(receiver.open());
    receiver.receive();
    const auto last = receiver.next();
    ASSERT_TRUE(last);
    EXPECT_EQ(std::get<DoneMessage>(*last).exit_code, 3);
    receiver.receive();
    EXPECT_FALSE(receiver.open());
}

TEST(Channel, SendNeverBlocksAndLosesNothing) {
    ChannelSockets sockets = make_channel_sockets();
    Channel sender(std::move(sockets.agent));
    Channel receiver(std::move(sockets.front));
    const std::string text(100'000, 'x');
    int sent = 0;
    constexpr std::size_t much = std::size_t{1} << 20;
    while (sender.queued_bytes() <= much) {
        sender.send(OutputMessage{Stream::out, sent++, text});
        ASSERT_LT(sent, 1000);
    }
    int received = 0;
    while (received < sent) {
        receiver.receive();
        sender.flush();
        while (const auto message = receiver.next()) {
            EXPECT_EQ(std::get<OutputMessage>(*message).local_rank, received++);
            EXPECT_EQ(std::get<OutputMessage>(*message).bytes, text);
        }
        ASSERT_TRUE(receiver.open());
    }
    EXPECT_EQ(sender.queued_bytes(), 0U);
}

TEST(Channel, EndOfFileClosesItAfterTheLastMessage) {
    ChannelSockets sockets = make_channel_sockets();
    Channel receiver(std::move(sockets.front));
    {
        Channel sender(std::move(sockets.agent));
        sender.send(DoneMessage{5});
    }
    receiver.receive();
    EXPECT_FALSE(receiver.open());
    const auto last = receiver.next();
    ASSERT_TRUE(last);
    EXPECT_EQ(std::get<DoneMessage>(*last).exit_code, 5);
    EXPECT_FALSE(receiver.next());
    receiver.send(KillMessage{});  // nobody is there: no signal, no error
    EXPECT_EQ(receiver.queued_bytes(), 0U);
}

}  // namespace
}  // namespace ddp::launcher
