// One loop over poll(): signals, the agent's end, its messages, and our two outputs. poll() and not
// epoll, because stdout may be a file, which epoll refuses.
#include "launcher/front/front_loop.hpp"

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
#include "contract/exit_code.hpp"
#include "launcher/hosts/start/job_description.hpp"
#include "launcher/process/process_sweep.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds sweep_time{5000};
// After the grace, how long the agent may take to end before the front ends it.
constexpr milliseconds agent_time{20000};
// Of a job whose starter, on another host, has gone: nobody waits for more than its end.
constexpr milliseconds agent_time_without_starter{1000};
// Of an agent that has said that it is done, and from its SIGKILL then.
constexpr milliseconds time_to_leave{1500};
constexpr milliseconds time_to_die_then{500};
// What an agent that has ended by itself leaves behind could not be killed by it either.
constexpr milliseconds second_sweep_time{250};

// Alive or not: of the agent's, whose own helpers have its name.
bool has_child_but_helpers(const ExcludedProcesses& excluded) {
    return std::ranges::any_of(base::children_of(::getpid()), [&](pid_t pid) {
        const auto child = base::stat_of(pid);
        return child && !excluded.contains(pid) && !child->name.starts_with("ddp-");
    });
}

}  // namespace

int Front::run() {
    try {
        strangers_.run(Clock::now(), agent_.pid);
        strangers_.look_soon();
        while (!finished()) wait_and_handle();
    } catch (const std::exception& error) {
        return abandon(error.what());
    }
    if (lost_output()) {
        report("nobody reads stdout any more, and what the job wrote last was lost (SIGPIPE)");
        console_.run(Clock::now(), Clock::now());
    }
    return exit_code();
}

// By a job that ended well before it could be stopped.
bool Front::lost_output() const { return done_ == contract::exit_ok && stdout_ends_the_job(); }

// What of a job that ended well was lost on its way to stdout must not look like success, as in
// any pipeline.
int Front::exit_code() const {
    if (!done_) return exit_code_without_done();
    return lost_output() ? contract::exit_signal_base + SIGPIPE : *done_;
}

// The workers must not outlive a front that cannot go on, and it says why.
int Front::abandon(const std::string& why) {
    base::signal_pidfd(agent_.pidfd.get(), SIGKILL);
    pollfd end{agent_.pidfd.get(), POLLIN, 0};
    constexpr int longest_ms = 5000;  // longer only for one in the middle of a system call
    if (!agent_end_ && ::poll(&end, 1, longest_ms) > 0) handle_agent_end();
    report("cannot go on: " + why + "; the workers were stopped");
    console_.run(Clock::now(), Clock::now());
    return contract::exit_error;
}

bool Front::finished() const { return agent_end_ && channel_drained_ && console_.idle(); }

int Front::wait_time() const {
    constexpr int look_again_ms = 60'000;
    constexpr int look_while_stopping_ms = 100;
    int wait = agent_deadline_.end_by ? look_while_stopping_ms : look_again_ms;
    if (strangers_.possible()) {
        wait = std::min(wait, static_cast<int>(StrangerWatch::time_between_looks.count()));
    }
    if (const auto due = console_.next_due()) {
        const auto left = std::chrono::ceil<milliseconds>(*due - Clock::now());
        wait = static_cast<int>(std::clamp<milliseconds::rep>(left.count(), 0, wait));
    }
    return wait;
}

void Front::wait_and_handle() {
    const std::array<pollfd, 2> outputs = console_.wanted();
    const auto if_wanted = [](bool wanted, int fd) { return wanted ? fd : -1; };
    enum Event { from_signals, agents_end, from_agent, agents_log, out, err, hosts_end, count };
    std::array<pollfd, count> events;
    events[from_signals] = {signals_.fd(), POLLIN, 0};
    events[agents_end] = {if_wanted(!agent_end_, agent_.pidfd.get()), POLLIN, 0};
    const bool may_speak = !channel_drained_ && agent_.channel.open();
    events[from_agent] = {if_wanted(may_speak, agent_.channel.fd()), POLLIN, 0};
    events[agents_log] = {if_wanted(agent_.messages.open(), agent_.messages.fd()), POLLIN, 0};
    events[out] = outputs[0];
    events[err] = outputs[1];
    events[hosts_end] = {if_wanted(!agent_end_, host_.parent_liveness), POLLIN, 0};
    if (::poll(events.data(), events.size(), wait_time()) < 0 && errno != EINTR) {
        throw SystemError("poll", errno);
    }
    if (events[from_signals].revents != 0) handle_signals();
    if (events[hosts_end].revents != 0) handle_end_of_host();
    if (events[agents_end].revents != 0) handle_agent_end();
    if (events[agents_log].revents != 0) handle_agents_log();
    if (!channel_drained_ && (events[from_agent].revents != 0 || agent_end_)) handle_messages();
    end_hanging_agent();
    if (!agent_end_) strangers_.run(Clock::now(), agent_.pid);
    run_console();
}

void Front::handle_signals() {
    while (const auto signal = signals_.next()) {
        if (*signal == SIGCHLD) {
            look_at_children();
            continue;
        }
        const std::vector<int>& stops = options_.stop.signals_to_handle;
        if (std::find(stops.begin(), stops.end(), *signal) != stops.end()) {
            ask_to_stop(*signal);
        } else {
            agent_.channel.send(SignalMessage{*signal});
        }
    }
}

// A host that dies takes its job along. The one exception: a Ctrl-C that ended the host has asked
// the job to stop as well, and it may take its time for that. Not so with a starter on another
// host, who alone could send a second signal.
void Front::handle_end_of_host() {
    host_.parent_liveness = -1;
    handle_signals();  // one that came to both came before this end
    if (stop_.first_at && !host_.is_starter) return;
    console_.say("the program that launched this job has ended; its workers are killed");
    const auto now = Clock::now();
    stop_.first_at = stop_.first_at.value_or(now);
    limit_agent(now + (host_.is_starter ? agent_time_without_starter : agent_time));
    agent_.channel.send(KillMessage{});
    continue_agent();
}

void Front::report(std::string text) {
    if (host_.failure_policy == contract::FailurePolicy::stop_job) console_.say(text);
    host_.report = std::move(text);
}

void Front::give(const std::vector<std::string>& notices) {
    if (host_.failure_policy == contract::FailurePolicy::tell_host ||
        !base::log_enabled(base::LogLevel::info))
        return;
    for (const std::string& notice : notices) console_.say(notice);
}

contract::LaunchEnd Front::end(int exit_code) const {
    return {.exit_code = exit_code,
            .report = exit_code != contract::exit_ok ? host_.report : "",
            .ends = host_.ends};
}

// Once is a request, twice means now, and a third Ctrl-C does not even trust the agent.
void Front::ask_to_stop(int signal) {
    const auto now = Clock::now();
    if (!stop_.first_at) {
        stop_.first_at = now;
        limit_agent(now + options_.stop.shutdown_timeout + agent_time);
    }
    if (signal == SIGINT) ++stop_.interrupts;
    if (signal != SIGINT || stop_.interrupts == 1) {
        agent_.channel.send(StopMessage{signal, options_.stop.shutdown_timeout});
    } else if (stop_.interrupts == 2) {
        agent_.channel.send(KillMessage{});
        limit_agent(now + agent_time);
    } else {
        agent_deadline_.end_by = now;
    }
    continue_agent();
}

// A stop gives an agent that has said that it is done no more time than it has.
void Front::limit_agent(Clock::time_point end_by) {
    agent_deadline_.end_by = std::min(agent_deadline_.end_by.value_or(end_by), end_by);
}

// A message waits for an agent that is stopped; its signals, too.
void Front::continue_agent() {
    if (agent_stopped_ && !agent_end_) ::kill(agent_.pid, SIGCONT);
}

// An agent that hangs is ended as if it had been killed by somebody else: we inherit its children.
// One that cannot be killed either (in a call to a file system that hangs) is left behind.
void Front::end_hanging_agent() {
    if (agent_end_ || !agent_deadline_.end_by) return;
    const auto now = Clock::now();
    if (agent_deadline_.killed_at) {
        if (now >= *agent_deadline_.killed_at + agent_deadline_.time_to_die) leave_agent();
    } else if (now >= *agent_deadline_.end_by) {
        base::signal_pidfd(agent_.pidfd.get(), SIGKILL);
        agent_deadline_.killed_at = now;
    }
}

void Front::leave_agent() {
    gave_up_ = true;
    agent_end_ = ExitStatus{.signal = SIGKILL};
    const SweepResult below = sweep_below(agent_.pid, base::Deadline::after(second_sweep_time));
    console_.say("the agent (pid " + std::to_string(agent_.pid) +
                 ") cannot be killed (does a file system hang?) and is left behind" +
                 (below.complete ? "" : ", and so are " + describe_survivors(below)));
}

// Orphans of strangers, which nobody else waits for. The agent's own end is its pidfd's to tell.
void Front::look_at_children() {
    look_at_agent();
    strangers_.look_soon();
    for (;;) {
        siginfo_t info{};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        if (info.si_pid == agent_.pid && !agent_end_) return;
        ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    }
}

void Front::look_at_agent() {
    const auto id = static_cast<id_t>(agent_.pid);
    siginfo_t info{};
    while (!agent_end_ && ::waitid(P_PID, id, &info, WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
           info.si_pid != 0) {
        agent_stopped_ = info.si_code == CLD_STOPPED;
        if (agent_stopped_ && stop_.first_at) {
            continue_agent();
        } else if (agent_stopped_) {
            const std::string pid = std::to_string(agent_.pid);
            console_.say("the agent (pid " + pid + ") was stopped by " +
                         signal_name(info.si_status) + ", and the job waits for it: kill -CONT " +
                         pid + " continues it, Ctrl-C ends the job");
        }
        info = {};
    }
}

void Front::handle_messages() {
    Channel& channel = agent_.channel;
    channel.receive();
    while (const auto message = channel.next()) handle(*message);
    // The dead send nothing more: what there is, is there. End of file would say the same, but for
    // a descriptor that somebody unkillable still has.
    if (!channel.open()) {
        channel_drained_ = agent_end_.has_value();
    } else if (agent_end_) {
        pollfd entry{channel.fd(), POLLIN, 0};
        channel_drained_ = ::poll(&entry, 1, 0) == 0;
    }
    if (!channel_drained_) return;
    console_.finish();
    if (!done_) {
        if (!survivors_.empty()) console_.say(survivors_);
        const ExitStatus end = *agent_end_;
        report("the agent (pid " + std::to_string(agent_.pid) + ") " +
               (end.signal != 0 ? "was killed by " + signal_name(end.signal)
                                : "ended early with " + to_string(end)) +
               (workers_running_ > 0 ? "; its workers were stopped" : "; no worker was running"));
    }
}

void Front::handle(const Message& message) {
    if (const auto* output = std::get_if<OutputMessage>(&message)) {
        console_.take(*output);
    } else if (const auto* failure = std::get_if<FailureMessage>(&message)) {
        report(failure->text);
    } else if (const auto* notice = std::get_if<NoticeMessage>(&message)) {
        const bool wanted = notice->needed || base::log_enabled(base::LogLevel::warn);
        if (host_.failure_policy == contract::FailurePolicy::stop_job && wanted)
            console_.say(notice->text);
    } else if (const auto* done = std::get_if<DoneMessage>(&message)) {
        done_ = done->exit_code;
        if (host_.is_starter && done->is_of_job) {
            console_.pass_on(end_line_for_starter(host_.greeting, done->exit_code));
        }
        // It has nothing more to wait for, and neither have we.
        agent_deadline_.end_by = Clock::now() + time_to_leave;
        agent_deadline_.time_to_die = time_to_die_then;
    } else if (const auto* state = std::get_if<StateMessage>(&message)) {
        workers_running_ += state->state == WorkerState::started ? 1 : -1;
        if (state->state == WorkerState::ended &&
            host_.failure_policy == contract::FailurePolicy::tell_host) {
            host_.ends.push_back({state->local_rank, state->status, state->stopped_with});
        }
        console_.take(*state);
    } else if (const auto* status = std::get_if<StatusMessage>(&message)) {
        console_.take(*status);
        if (status->hosts == 0 || !host_.shows_status) return;
        console_.pass_on(status_line_for_starter(host_.greeting, *status));
    } else if (const auto* place = std::get_if<PlaceMessage>(&message)) {
        console_.take(*place);
    }
}

// Sweeps first and speaks later: a second of a lost job's workers costs more than a late line.
void Front::handle_agent_end() {
    siginfo_t info{};
    const auto handle = static_cast<id_t>(agent_.pidfd.get());
    if (::waitid(P_PIDFD, handle, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) return;
    agent_end_ = exit_status_of(info);
    // It may not have come to tell of those that it had just started.
    if (workers_running_ == 0 && has_child_but_helpers(strangers_.found())) workers_running_ = 1;
    const bool by_itself = agent_end_->signal == 0;
    const SweepResult sweep = sweep_descendants(
        base::Deadline::after(by_itself ? second_sweep_time : sweep_time), strangers_.found());
    if (sweep.complete) return;
    const std::string survivors = "could not be killed: " + describe_survivors(sweep);
    if (by_itself) {
        survivors_ = survivors;
    } else {
        console_.say(survivors);
    }
}

int Front::exit_code_without_done() const {
    return agent_end_->ok() ? contract::exit_error : agent_end_->exit_code();
}

void Front::handle_agents_log() {
    const OutputPipe::Read read = agent_.messages.read();
    std::string lines = agent_.message_lines.feed(read.bytes);
    if (read.state == OutputPipe::State::ended) lines += agent_.message_lines.finish();
    console_.pass_on(lines);
}

bool Front::stdout_ends_the_job() const {
    return options_.display.on_closed_stdout == ClosedStdout::stop &&
           console_.stdout_lost_its_reader();
}

void Front::handle_closed_outputs() {
    const auto closed = console_.take_closed();
    if (!closed.empty()) handle_signals();  // what ended the reader, a Ctrl-C, came to us as well
    for (const Stream stream : closed) {
        agent_.channel.send(ClosedMessage{stream});
        // Workers that are stopping already may still have something to save.
        const bool ends = stream == Stream::out && stdout_ends_the_job();
        if (ends && !stop_.first_at) ask_to_stop(SIGPIPE);
    }
}

void Front::run_console() {
    console_.run(Clock::now(), stop_.first_at);
    handle_closed_outputs();
    for (const ShownMessage& shown : console_.take_shown()) agent_.channel.send(shown);
    if (agent_.channel.queued_bytes() > 0) agent_.channel.flush();
}

}  // namespace ddp::launcher
