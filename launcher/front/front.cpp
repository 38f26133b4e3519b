#include "launcher/front/front.hpp"

#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
#include "launcher/agent/agent.hpp"
#include "launcher/agent/containment.hpp"
#include "launcher/agent/rendezvous.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/console/console.hpp"
#include "launcher/front/front_loop.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/process/process_sweep.hpp"
#include "launcher/process/signals.hpp"
#include "launcher/timeline/flight_files.hpp"
#include "launcher/timeline/timeline_files.hpp"
#include "launcher/worker/worker_terminal.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

struct MessagePipe {
    base::UniqueFd read_end;
    base::UniqueFd write_end;
};

MessagePipe make_message_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw SystemError("pipe for the agent", errno);
    MessagePipe pipe{base::UniqueFd(ends[0]), base::UniqueFd(ends[1])};
    if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) throw SystemError("fcntl of a pipe", errno);
    return pipe;
}

AgentHandle hold_agent(pid_t pid, base::UniqueFd socket, base::UniqueFd messages) {
    base::UniqueFd pidfd(base::open_pidfd(pid));
    if (!pidfd) throw SystemError("pidfd_open for the agent", errno);
    return {pid, std::move(pidfd), Channel(std::move(socket)), OutputPipe(std::move(messages)),
            LineCutter()};
}

std::optional<TerminalForWorker> terminal_for_workers(const Options& options) {
    using Of = TerminalForWorker::Of;
    if (options.input.tty) return TerminalForWorker{Of::both, window_of_terminal()};
    if (::isatty(STDOUT_FILENO) == 0) return std::nullopt;
    return TerminalForWorker{Of::out, window_of_terminal()};
}

// From the fork on nothing that fails is a wrong command line.
int report_to_parent(AgentJob job, const ForkedAgent& me, base::UniqueFd channel) {
    try {
        return run_agent(std::move(job), me, std::move(channel));
    } catch (const UsageError& error) {
        throw Error(error.what());
    }
}

// Those that ask the job to stop, those that are passed on, and the one that tells of children.
std::vector<int> signals_of(const Options& options) {
    std::vector<int> signals = options.stop.signals_to_handle;
    signals.insert(signals.end(), {SIGUSR1, SIGUSR2, SIGCHLD});
    return signals;
}

}  // namespace

int run_front(const Options& options, const JobPlan& plan, std::optional<HostsJob> hosts,
              contract::HostLink& host) {
    if (!hosts || hosts->coordinates) check_timeline_files(options.logs);
    check_flight_files(options);
    prepare_signals(options.stop.signals_to_handle);
    if (const std::string problem = base::missing_pidfd_calls(); !problem.empty()) {
        throw Error(problem);
    }
    // Who was here before us (a shell that exec'ed us may leave children behind) is not ours to
    // kill. As PID 1 we inherit others at any time.
    const bool strangers = ::getpid() == 1 || !base::children_of(::getpid()).empty();
    Rendezvous rendezvous = hosts ? make_rendezvous(*hosts) : make_rendezvous(options);
    std::vector<std::string> notices = plan.notices;
    if (hosts && !host.is_starter()) notices.push_back(hosts->env.line);
    std::optional<MetricsListener> metrics;
    if (options.logs.metrics) metrics.emplace(*options.logs.metrics);
    if (metrics && metrics->has_chosen_port()) notices.push_back("metrics: " + metrics->where());
    ErrorFolder error_folder;
    const bool keeps_timelines = !hosts && wants_timelines(options.logs);
    AgentJob job{.options = options,
                 .plan = plan,
                 .rendezvous = std::move(rendezvous),
                 .hosts = std::move(hosts),
                 .error_folder = error_folder.path(),
                 .terminal = terminal_for_workers(options),
                 .keeps_timelines = keeps_timelines,
                 .failure_policy = host.failure_policy(),
                 .handed = hand_descriptors(options, plan.workers()),
                 .metrics = std::move(metrics)};
    const TerminalModes modes(job.handed.in.get());
    ConsoleSettings console = console_settings(options, plan.workers());
    const bool lent = job.handed.out || job.handed.err;  // nobody else may draw there
    if (lent) console.status = StatusLine::off;
    if (wants_status_line(console) || host.shows_status()) job.progress = Watching::on;
    ChannelSockets sockets = make_channel_sockets();
    MessagePipe messages = make_message_pipe();
    become_subreaper();
    // Before the fork: a signal that comes now waits for the front's loop.
    SignalReader signals(signals_of(options));
    host.greet();
    const ForkedAgent agent = fork_agent(options.stop.contain);
    if (agent.pid == 0) {
        sockets.front.reset();
        messages.read_end.reset();
        host.close();
        become_agent(std::move(messages.write_end));
        return report_to_parent(std::move(job), agent, std::move(sockets.agent));
    }
    sockets.agent.reset();
    messages.write_end.reset();
    job.rendezvous = {};  // the agent's
    job.handed = {};
    job.metrics.reset();
    job.hosts.reset();  // with the token
    Front front(hold_agent(agent.pid, std::move(sockets.front), std::move(messages.read_end)),
                signals, options, StrangerWatch(strangers), std::move(console), host);
    front.give(notices);
    const int exit_code = front.run();
    if (front.gave_up()) error_folder.abandon();
    host.send(front.end(exit_code));
    return exit_code;
}

}  // namespace ddp::launcher
