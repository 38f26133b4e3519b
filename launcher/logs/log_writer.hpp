// What the agent holds of the log writer (log_writer_process.hpp): a socket that never makes it
// wait, and a bounded queue before it. A file system that is slow makes the workers slow: full()
// says to leave their pipes unread, and nothing is lost. One that takes nothing for stuck_time
// costs lines from then on, which are counted, until it takes something again.
#pragma once

#include "base/frame.hpp"
#include "base/unique_fd.hpp"
#include "launcher/logs/log_writer_process.hpp"
#include "launcher/process/poller.hpp"

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::launcher {

class LogWriter {
public:
    using Clock = std::chrono::steady_clock;
    using Time = Clock::time_point;
    static constexpr std::chrono::milliseconds stuck_time{5000};
    static constexpr std::size_t most_waiting_bytes = std::size_t{1} << 20;

    // Without a process: takes everything and keeps nothing.
    LogWriter() = default;
    ~LogWriter();  // SIGKILL, if it is still there; waits for nobody
    LogWriter(const LogWriter&) = delete;
    LogWriter& operator=(const LogWriter&) = delete;

    // Forks it, single-threaded. `tree` is wanted. Throws SystemError.
    void start(const LogTree& tree, const Options& options = {});
    bool started() const { return pid_ != 0; }
    // 0: there is none, or no more. It is to be excluded by whoever reaps or kills children.
    pid_t pid() const { return ended_ ? 0 : pid_; }

    void open(int workers, int attempt);
    void append(int local_rank, Stream stream, std::string_view bytes);
    void write_report(std::string json);
    void copy_error_files(int workers, int attempt, std::string folder);

    int fd() const { return socket_.get(); }  // -1 when nothing comes from it any more
    bool wants_to_send() const { return socket_ && sent_ < out_.size(); }
    // Adds the socket to the poller, and says there what it waits for.
    void keep_watched(Poller& events, Poller::Tag tag);
    void run_ready();             // sends and receives what goes without waiting
    void look_at_time(Time now);  // whether it is stuck by now
    std::optional<Time> next_due() const;

    bool full() const { return requests_.bytes > most_waiting_bytes && !unresponsive(); }
    // How much was asked until now; whether that is done; whether waiting for it makes no sense.
    std::uint64_t asked() const { return requests_.asked; }
    bool completed(std::uint64_t asked) const { return requests_.completed >= asked; }
    bool unresponsive() const { return stuck_ || !socket_; }

    // How the caller lets time pass, at most until then: it calls run_ready() and look_at_time().
    using Wait = std::function<void(std::optional<Time> until)>;
    // Until all that was asked is done, or it makes no sense. `hurried` may become true meanwhile:
    // then only for a moment.
    void await(const Wait& wait, const bool& hurried) const;
    // Ends the process: by itself when all is written, else by SIGKILL. That, too, is waited for
    // only so long: in a call to a file system that hangs nothing ends it. Returns what is lost,
    // and who could not be killed, for the user; empty when all is well.
    std::string finish(const Wait& wait, const bool& hurried);

    // Why the files of the attempt are not to be had; once.
    std::string take_open_problem() { return std::exchange(open_problem_, {}); }
    // Lines for the user.
    std::string take_news() { return std::exchange(news_, {}); }

    // No more requests; the process ends by itself when all is written.
    void close();
    void kill() const;
    // Whether it has ended (and is reaped); at SIGCHLD. An end before close() is news.
    bool reap();
    // What is lost for good, for the user; empty when nothing is.
    std::string describe_loss() const;

private:
    struct Request {
        std::size_t bytes;
        std::size_t lines;
    };
    // What is asked and not yet completed, in order.
    struct Requests {
        std::deque<Request> waiting;
        std::size_t bytes = 0;  // of those that wait
        std::uint64_t asked = 0;
        std::uint64_t completed = 0;
        Time progress_at{};  // while something waits

        void add(Request request);
        void complete(std::uint32_t count);
    };

    void ask(const LogRequest& request, std::size_t lines);
    void send();
    void receive();
    void take(const LogAnswer& answer);
    void say(const std::string& line);

    pid_t pid_ = 0;
    base::UniqueFd socket_;
    base::FrameReader answers_{max_log_request_bytes};
    std::string out_;
    std::size_t sent_ = 0;
    Requests requests_;
    std::optional<std::uint32_t> watched_;  // the events of the socket in the poller
    bool stuck_ = false;
    bool stuck_said_ = false;
    bool closed_ = false;
    bool ended_ = false;
    std::uint64_t lost_lines_ = 0;
    std::string open_problem_;
    std::string news_;
};

}  // namespace ddp::launcher
