// What front and agent take from the socket between them: frames in pieces of any size, and the
// messages in them. Input: how long the pieces are, then the stream.
#include "launcher/channel/channel.hpp"
#include "fuzz/seeds.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

namespace {

using namespace ddp::launcher;

// What was understood means the same when it is said again.
void require_same_again(const Message& message) {
    const std::string once = encode(message);
    if (encode(decode(once)) != once) std::abort();
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    const std::vector<Message> messages{
        StopMessage{SIGTERM, std::chrono::seconds(30)},
        KillMessage{},
        SignalMessage{SIGUSR1},
        OutputMessage{Stream::err, 3, "a line\nand another"},
        OutputMessage{Stream::out, 0, ""},
        StateMessage{WorkerState::started, 1, 4711},
        StateMessage{
            WorkerState::ended, 1, 4711, {.signal = SIGSEGV, .core_dumped = true}, SIGTERM},
        FailureMessage{"rank 1 failed: exit code 3\n"},
        ShownMessage{Stream::out, 2, 4096},
        StatusMessage{1, 640, 12.5},
        NoticeMessage{"left running by the workers: pid 812 (rsync)"},
        NoticeMessage{"rank 1 (pid 812) is held for a debugger", true},
        ClosedMessage{Stream::out},
        DoneMessage{137},
    };
    std::vector<std::string> all;
    std::string together;
    for (const Message& message : messages) {
        std::string frame;
        base::append_frame(frame, encode(message));
        all.push_back("\x40" + frame);
        together += frame;
    }
    all.push_back("\xff" + together);
    all.push_back("\x01" + together);
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const std::size_t piece = std::max<std::size_t>(input.byte(), 1);
    auto ends = make_channel_sockets();
    Channel channel(std::move(ends.agent));
    try {
        while (!input.is_empty()) {
            const std::string_view bytes = input.text(piece);
            if (::send(ends.front.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) return 0;
            channel.receive();
            while (const auto message = channel.next()) require_same_again(*message);
        }
    } catch (const ddp::UsageError&) {
        return 0;
    }
    return 0;
}
