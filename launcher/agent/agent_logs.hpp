// The agent's files: logs, the process that writes them, and the waits for it, in which the agent's
// loop goes on; and what --report, --trace and --flight-recorder ask for.
#pragma once

#include "launcher/channel/channel.hpp"
#include "launcher/logs/log_files.hpp"
#include "launcher/logs/log_writer.hpp"
#include "launcher/options/options.hpp"
#include "launcher/report/outcome.hpp"
#include "launcher/timeline/flight_files.hpp"
#include "launcher/timeline/timeline_files.hpp"
#include "launcher/verdict/rank_observer.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace ddp::launcher {

// What the user asked of the job.
struct UserStop {
    std::optional<int> signal;  // the first that asked it to end
    bool is_hurried = false;    // the user wants the end now
};

class AgentLogs {
public:
    // Borrows the channel and the stop. `wait` lets the loop go on, at most until then.
    AgentLogs(const Options& options, Channel& channel, const UserStop& stop, LogWriter::Wait wait)
        : tree_(options.logs.dir, options.run_id),
          timeline_(options),
          flight_(options.logs),
          channel_(channel),
          stop_(stop),
          wait_(std::move(wait)) {}

    const LogTree& tree() const { return tree_; }
    LogWriter& writer() { return writer_; }

    // Of a job of several hosts that this one coordinates; null: nobody wants one.
    JobTimeline* timeline() { return timeline_.wanted() ? &timeline_.timeline() : nullptr; }

    // Before start().
    void use(LogTree tree) { tree_ = std::move(tree); }
    // Where a tree is wanted. Throws SystemError.
    void start(const Options& options);
    // The workers of an attempt are about to start, or have started without some of their files:
    // too late to refuse.
    void begin_attempt() { workers_started_ = false; }
    void note_workers_started() { workers_started_ = true; }

    void await();
    // Throws Error when the files of the attempt are not to be had. Those that are late come when
    // the file system takes them.
    void await_files();
    void finish();  // what is left to be written is
    void say_news();
    // When say_news() may have something to say, or the writer of logs to do; nothing: not by time.
    std::optional<LogWriter::Time> next_due() const;
    // An attempt of which nothing lives, and what is said of it; empty: nothing.
    void note_end(int attempt, const WatchedWorkers& workers, const std::string& text);
    const FlightFiles& flight() const { return flight_; }
    // Flight records of them now, where they are wanted.
    void record_flight(const WatchedWorkers& workers, const std::string& why,
                       std::chrono::milliseconds limit = FlightFiles::most_time);
    // The same where that signal asks for them; else it does nothing and returns false.
    bool record_flight_on(int signal, const WatchedWorkers& workers);
    // The same of an attempt, or of a part of one, that has ended badly; waits until it is written.
    void record_flight_of_end(const WatchedWorkers& workers);
    // Of the outcome that counts: the reports, and the launcher's own error file.
    void publish(Outcome& outcome);

private:
    void write_timeline();
    void await_flight();

    LogTree tree_;
    LogWriter writer_;
    TimelineFiles timeline_;
    FlightFiles flight_;
    Channel& channel_;
    const UserStop& stop_;
    LogWriter::Wait wait_;
    bool workers_started_ = false;
};

}  // namespace ddp::launcher
