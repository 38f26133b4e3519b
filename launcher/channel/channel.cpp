// The bytes of the messages and the two directions of the socket. A payload is one byte, the
// message's place in the variant, and its fields in order.
#include "launcher/channel/channel.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>

#include <array>
#include <bit>
#include <cerrno>

namespace ddp::launcher {
namespace {

// What is sent already may stay in front of the queue up to this size.
constexpr std::size_t max_unused_bytes = std::size_t{1} << 20;

// A text may hold what workers wrote. What a frame has no room for is cut, and its length said.
std::string bounded(const std::string& text) {
    constexpr std::size_t limit = Channel::max_message_bytes - 256;
    if (text.size() <= limit) return text;
    return text.substr(0, limit) + " ... (" + std::to_string(text.size() - limit) + " bytes more)";
}

// One byte before each message: its place in the variant.
struct Encoder {
    base::PayloadWriter out;

    void operator()(const StopMessage& m) {
        out.u32(static_cast<std::uint32_t>(m.signal)).i64(m.grace.count());
    }
    void operator()(const KillMessage&) {}
    void operator()(const SignalMessage& m) { out.u32(static_cast<std::uint32_t>(m.signal)); }
    void operator()(const OutputMessage& m) {
        out.u8(static_cast<std::uint8_t>(m.stream));
        out.u32(static_cast<std::uint32_t>(m.local_rank)).str(m.bytes);
    }
    void operator()(const StateMessage& m) {
        out.u8(static_cast<std::uint8_t>(m.state));
        for (const int number :
             {m.local_rank, m.pid, m.status.code, m.status.signal, m.stopped_with}) {
            out.u32(static_cast<std::uint32_t>(number));
        }
        out.u8(m.status.core_dumped ? 1 : 0);
    }
    void operator()(const FailureMessage& m) { out.str(bounded(m.text)); }
    void operator()(const DoneMessage& m) {
        out.u32(static_cast<std::uint32_t>(m.exit_code)).u8(m.is_of_job ? 1 : 0);
    }
    void operator()(const ShownMessage& m) {
        out.u8(static_cast<std::uint8_t>(m.stream));
        out.u32(static_cast<std::uint32_t>(m.local_rank)).u32(m.bytes);
    }
    void operator()(const StatusMessage& m) {
        out.u32(static_cast<std::uint32_t>(m.restarts)).i64(m.step);
        out.i64(std::bit_cast<std::int64_t>(m.steps_per_second));
        for (const int number : {m.hosts, m.workers, m.running}) {
            out.u32(static_cast<std::uint32_t>(number));
        }
    }
    void operator()(const ClosedMessage& m) { out.u8(static_cast<std::uint8_t>(m.stream)); }
    void operator()(const PlaceMessage& m) {
        out.u32(static_cast<std::uint32_t>(m.first_rank));
        out.u32(static_cast<std::uint32_t>(m.world_size));
    }
    void operator()(const NoticeMessage& m) { out.str(bounded(m.text)).u8(m.needed ? 1 : 0); }
};

int take_int(base::PayloadReader& in) { return static_cast<int>(in.u32()); }

template <class Enum>
Enum take_one_of_two(base::PayloadReader& in, Enum last) {
    const std::uint8_t value = in.u8();
    if (value > static_cast<std::uint8_t>(last)) throw UsageError("channel: damaged message");
    return static_cast<Enum>(value);
}

Message take_message(base::PayloadReader& in) {
    switch (in.u8()) {
        case 0: {
            const int signal = take_int(in);
            return StopMessage{signal, std::chrono::milliseconds(in.i64())};
        }
        case 1:
            return KillMessage{};
        case 2:
            return SignalMessage{take_int(in)};
        case 3: {
            const Stream stream = take_one_of_two(in, Stream::err);
            const int local_rank = take_int(in);
            return OutputMessage{stream, local_rank, in.str()};
        }
        case 4: {
            const WorkerState state = take_one_of_two(in, WorkerState::ended);
            StateMessage message{state, take_int(in), 0};
            message.pid = take_int(in);
            message.status.code = take_int(in);
            message.status.signal = take_int(in);
            message.stopped_with = take_int(in);
            message.status.core_dumped = in.u8() != 0;
            return message;
        }
        case 5:
            return FailureMessage{in.str()};
        case 6: {
            const int exit_code = take_int(in);
            return DoneMessage{exit_code, in.u8() != 0};
        }
        case 7: {
            const Stream stream = take_one_of_two(in, Stream::err);
            const int local_rank = take_int(in);
            return ShownMessage{stream, local_rank, in.u32()};
        }
        case 8: {
            const int restarts = take_int(in);
            const std::int64_t step = in.i64();
            StatusMessage status{restarts, step, std::bit_cast<double>(in.i64())};
            for (int* number : {&status.hosts, &status.workers, &status.running}) {
                *number = take_int(in);
            }
            return status;
        }
        case 9: {
            std::string text = in.str();
            return NoticeMessage{std::move(text), in.u8() != 0};
        }
        case 10:
            return ClosedMessage{take_one_of_two(in, Stream::err)};
        case 11: {
            const int first_rank = take_int(in);
            return PlaceMessage{first_rank, take_int(in)};
        }
    }
    throw UsageError("channel: unknown message");
}

}  // namespace

std::string encode(const Message& message) {
    Encoder encoder;
    encoder.out.u8(static_cast<std::uint8_t>(message.index()));
    std::visit(encoder, message);
    return encoder.out.take();
}

Message decode(std::string_view payload) {
    base::PayloadReader in(payload);
    Message message = take_message(in);
    if (!in.at_end()) throw UsageError("channel: message is too long");
    return message;
}

Channel::Channel(base::UniqueFd socket) : socket_(std::move(socket)) {}

void Channel::queue(const Message& message) {
    if (!open_ || unheard_) return;
    base::append_frame(out_, encode(message));
}

void Channel::flush() {
    while (open_ && !unheard_ && sent_ < out_.size()) {
        const ssize_t sent = ::send(socket_.get(), out_.data() + sent_, out_.size() - sent_,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            sent_ += static_cast<std::size_t>(sent);
        } else if (errno == EAGAIN) {
            break;
        } else if (errno != EINTR) {
            unheard_ = true;
        }
    }
    if (sent_ == out_.size() || !open_ || unheard_) {
        out_.clear();
        sent_ = 0;
    } else if (sent_ > max_unused_bytes) {
        out_.erase(0, sent_);
        sent_ = 0;
    }
}

void Channel::receive() {
    std::array<char, 64 * 1024> bytes;
    for (int round = 0; round < 4 && open_; ++round) {
        const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (got > 0) {
            reader_.feed({bytes.data(), static_cast<std::size_t>(got)});
        } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
            open_ = false;
        } else if (errno == EAGAIN) {
            return;
        }
    }
}

std::optional<Message> Channel::next() {
    const auto payload = reader_.next();
    if (!payload) return std::nullopt;
    return decode(*payload);
}

ChannelSockets make_channel_sockets() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        throw SystemError("socketpair between launcher and agent", errno);
    }
    return {base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
}

}  // namespace ddp::launcher
