// One attempt at the job, or this host's part of one: its workers, from their start until the last
// has ended and nothing that they left behind lives. The agent makes one, and another for each
// restart; what belongs to the attempt alone (control region, pipes, the schedule by which it is
// stopped) goes with it.
#pragma once

#include "contract/control_page.hpp"
#include "launcher/agent/agent_job.hpp"
#include "launcher/agent/attempt/attempt_end.hpp"
#include "launcher/agent/attempt/input_relay.hpp"
#include "launcher/agent/attempt/leftovers.hpp"
#include "launcher/agent/attempt/relay.hpp"
#include "launcher/agent/attempt/stop_sequence.hpp"
#include "launcher/agent/attempt/worker_watch.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/logs/log_writer.hpp"
#include "launcher/process/poller.hpp"
#include "launcher/process/process_sweep.hpp"
#include "launcher/timeline/flight_files.hpp"
#include "launcher/worker/worker.hpp"

#include <sys/resource.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

// What an attempt borrows of the agent; it outlives the attempt.
struct AttemptContext {
    const AgentJob& job;
    const LogTree& tree;
    LogWriter& logs;
    const FlightFiles& flight;
    Channel& channel;
    Poller& events;
    // Tags of the events that the attempt adds to `events`.
    struct Tags {
        Poller::Tag pipes;
        Poller::Tag input;
        std::function<Poller::Tag(std::size_t worker)> worker;
    } tags;
    // In a job of several hosts: told at once of the first failure here.
    std::function<void(const WorkerEnd& end, StopSequence::Time at)> on_failure = {};
    TellHosts tell = {};

    // Between the signal that asks and SIGKILL.
    std::chrono::milliseconds grace() const { return job.options.stop.shutdown_timeout; }
};

class Attempt {
public:
    using Time = StopSequence::Time;

    struct Numbers {
        int attempt = 0;  // 0, 1, ...
        int restarts = 0;
        HostPlace place = {};
    };

    Attempt(AttemptContext context, const Numbers& numbers);
    ~Attempt();
    Attempt(const Attempt&) = delete;
    Attempt& operator=(const Attempt&) = delete;

    // Asks for what the workers' output goes to. Throws UsageError, SystemError.
    void prepare();
    // Throws SpawnError, SystemError; then some may run. `store_socket`: AttemptVariables'.
    void start_workers(const rlimit& users_descriptor_limit, const std::string& store_socket);

    bool all_ended() const { return order_.size() == workers_.size(); }
    bool all_fine() const;  // none of them has failed
    // Waiting longer for who was killed makes no sense.
    bool kill_timed_out(Time now) const { return stop_.kill_timed_out(now); }
    // When apply_stop_sequence() or look_at_workers() has something to do.
    std::optional<Time> wakes_at() const;

    void request_stop(int signal, std::chrono::milliseconds grace);
    // `rank`: that is to blame; -1: another host stops them, and they are asked to go at once.
    void stop_because_of(int rank);
    // They have no right to run any more: the abort word, SIGKILL.
    void end_now();
    void set_lease(Time ends);              // until then they have; see ControlHeader
    void kill_soon();                       // by the stop sequence, which first notes who has ended
    void kill_now() const;                  // at once; neither noted nor announced
    void signal_workers(int signal) const;  // nothing more
    void apply_stop_sequence();
    void look_at_workers();
    bool take_verdict_news() { return watch_.take_verdict_news(); }  // as WorkerWatch's
    // For who judges the ranks of several hosts. Null: they are being stopped.
    WorkerWatch* watch() { return stop_.active() ? nullptr : &watch_; }

    // A worker's pidfd is readable.
    void note_end(std::size_t worker);
    void relay_ready() { relay_.relay_ready(); }
    void hold_output(bool hold);  // leaves the pipes unread, while the log writer is full
    // With --stdin=all; its time may have come without an event.
    void pass_input();
    void on_shown(const ShownMessage& message) { relay_.on_shown(message); }
    void stop_showing(Stream stream) { relay_.stop_showing(stream); }
    // At SIGCHLD: orphans of the workers that ended, and workers that hold themselves.
    void note_children();
    std::optional<Time> stop_may_come_until() const;  // as likely_stop.hpp's, of its workers

    // By the schedule of Leftovers. When to look again; nothing: the rest is for sweep().
    std::optional<Time> end_leftovers(Time now);
    // Then, in this order: kills whatever is left; relays the last words (again and again, as the
    // front has room for them, until it says that all are); says how it all ended.
    void sweep();
    bool drain() { return relay_.drain(); }
    // With a log folder: error files are read from copies from now on. Whether it asked for some.
    bool copy_error_files();
    AttemptEnd end() const;  // valid while the attempt is; before its end: so far
    WatchedWorkers watched() const;

private:
    void send_to_living(int signal);
    std::optional<FirstFailure> failure_so_far() const;
    void tell_of_failure(std::size_t index) const;
    void set_abort_word(int rank);
    void start_failure_stop();
    void announce_stop();
    bool may_be_stopped_from_outside() const;
    ExcludedProcesses excluded() const;
    bool may_read_error_files() const;
    HostWorkers host_workers() const;

    AttemptContext agent_;
    Numbers numbers_;
    ErrorFiles error_files_;
    contract::ControlRegion control_;
    std::vector<Worker> workers_;
    Relay relay_{agent_.channel, workers_, agent_.job.options, agent_.logs};
    std::optional<InputRelay> input_;
    WorkerWatch watch_{agent_.job.progress, numbers_.restarts, agent_.job.options.stop};
    std::vector<std::size_t> order_;  // of their ends, by index
    StopSequence stop_;
    SweepResult killed_orphans_;
    Leftovers leftovers_;
    OomCounts oom_before_;
    bool announces_stop_ = false;  // when a failure makes us stop somebody
    int user_signal_ = 0;          // the first that asked a healthy attempt to stop
};
std::optional<RunView> view_now(const Attempt* attempt);  // nothing: there is none

}  // namespace ddp::launcher
