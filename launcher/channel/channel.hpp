// What front and agent say to each other, and the socket between them. Down: stop, kill, signal,
// shown, closed. Up: output, state, failure, done, status, notice, place. Nothing else is shared.
// Each side takes end of file as the death of the other. Neither side ever blocks in send().
#pragma once

#include "base/frame.hpp"
#include "base/unique_fd.hpp"
#include "launcher/process/exit_status.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace ddp::launcher {

// Down: ask the workers to stop with this signal; SIGKILL after the grace.
struct StopMessage {
    int signal;
    std::chrono::milliseconds grace;
};
// Down: SIGKILL now.
struct KillMessage {};
// Down: pass a signal on to the workers, nothing more.
struct SignalMessage {
    int signal;
};

enum class Stream : std::uint8_t { out, err };
enum class WorkerState : std::uint8_t { started, ended };

// Up: what a worker wrote, in the pieces in which it came. No bytes: the stream has ended.
struct OutputMessage {
    Stream stream;
    int local_rank;
    std::string bytes;
};
// Up: a worker began or ended.
struct StateMessage {
    WorkerState state;
    int local_rank;
    pid_t pid;
    ExitStatus status = {};  // how it ended
    int stopped_with = 0;    // the last signal that we sent it, or 0
};
// Up: something for the user to read, one or more lines without the program's name before them.
// encode() cuts one that no frame could hold.
struct FailureMessage {
    std::string text;
};
// Up, last: no worker and no descendant is left; this is the job's exit code.
struct DoneMessage {
    int exit_code;
    bool is_of_job = false;  // of several hosts: of all, and not of this one alone
};

// Down: so many more bytes of a stream's output need no memory any more.
struct ShownMessage {
    Stream stream;
    int local_rank;
    std::uint32_t bytes;
};
// Up: for the status line.
struct StatusMessage {
    int restarts = 0;
    std::int64_t step = 0;  // the smallest of all ranks
    double steps_per_second = 0;
    int hosts = 0;  // of the job; 0: this is of the host's own part of one of several
    int workers = 0;
    int running = 0;  // of them

    bool operator==(const StatusMessage&) const = default;
};

// Up: as FailureMessage, but not a report of how the job ended.
struct NoticeMessage {
    std::string text;
    bool needed = false;  // the job waits for the user: said whatever DDP_LOG_LEVEL is
};

// Up: the workers that start now are ranks from this one on. In a job of several hosts.
struct PlaceMessage {
    int first_rank;
    int world_size;
};

// Down: this output has lost its reader; no more of it need be sent.
struct ClosedMessage {
    Stream stream;
};

using Message = std::variant<StopMessage, KillMessage, SignalMessage, OutputMessage, StateMessage,
                             FailureMessage, DoneMessage, ShownMessage, StatusMessage,
                             NoticeMessage, ClosedMessage, PlaceMessage>;

// The bytes of a message, without the frame around them. decode() throws UsageError on anything
// that encode() does not make.
std::string encode(const Message& message);
Message decode(std::string_view payload);

// One end of the socket. Single-threaded.
class Channel {
public:
    static constexpr std::size_t max_message_bytes = std::size_t{4} << 20;

    explicit Channel(base::UniqueFd socket);

    int fd() const { return socket_.get(); }
    // False once the other side is gone. Messages that came before that are still handed out.
    bool open() const { return open_; }

    // For the next flush() or send(): many messages of one moment wake the other side once.
    void queue(const Message& message);
    // Sends what the socket takes now.
    void flush();
    void send(const Message& message) {
        queue(message);
        flush();
    }
    std::size_t queued_bytes() const { return out_.size() - sent_; }

    // Takes in what has arrived, a bounded amount a call.
    void receive();
    std::optional<Message> next();

private:
    base::UniqueFd socket_;
    base::FrameReader reader_{max_message_bytes};
    std::string out_;
    std::size_t sent_ = 0;
    bool open_ = true;
    bool unheard_ = false;  // what we send has no reader; what was sent to us may still be there
};

// A connected pair: for the front and for the agent. Close-on-exec. Throws SystemError.
struct ChannelSockets {
    base::UniqueFd front;
    base::UniqueFd agent;
};
ChannelSockets make_channel_sockets();

}  // namespace ddp::launcher
