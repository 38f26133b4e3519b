// One loop over one epoll set; everything that happens is an event in it. The order of events
// matters in one place: workers' pidfds, whose order says who failed first.
#include "launcher/agent.hpp"

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "contract/control_page.hpp"
#include "contract/exit_code.hpp"
#include "launcher/channel.hpp"
#include "launcher/descriptor_limit.hpp"
#include "launcher/error_folder.hpp"
#include "launcher/outcome.hpp"
#include "launcher/poller.hpp"
#include "launcher/process_sweep.hpp"
#include "launcher/relay.hpp"
#include "launcher/signals.hpp"
#include "launcher/stop_sequence.hpp"
#include "launcher/worker.hpp"
#include "launcher/worker_variables.hpp"
#include "store/store_server.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

namespace ddp::launcher {
namespace {

using Clock = StopSequence::Clock;
using std::chrono::milliseconds;

constexpr milliseconds sweep_time{5000};

enum class Source : std::uint32_t { channel, signals, store, pipes, worker };

constexpr Poller::Tag tag_of(Source source, std::size_t index = 0) {
    return static_cast<Poller::Tag>(source) << 32 | index;
}
constexpr Source source_of(Poller::Tag tag) { return static_cast<Source>(tag >> 32); }
constexpr std::size_t index_of(Poller::Tag tag) { return tag & 0xffffffff; }

class Agent {
public:
    Agent(AgentJob job, base::UniqueFd channel);
    int run();

private:
    bool leash_held() const { return channel_.open(); }
    bool all_ended() const { return order_.size() == workers_.size(); }

    std::optional<Outcome> supervise();
    void start_workers();
    void watch();
    void handle(Poller::Tag tag);
    void handle_messages();
    void handle_signals();
    void request_stop(int signal, milliseconds grace);
    void apply_stop_sequence();
    void note_end(std::size_t index);
    void start_failure_stop(const Worker& failed);
    void send_to_living(int signal);
    void reap_orphans();
    void update_channel_events();

    AgentJob job_;
    milliseconds grace_;  // between the signal that asks and SIGKILL
    Channel channel_;
    SignalReader signals_{SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    contract::ControlRegion control_;
    std::optional<store::StoreServer> store_;
    Poller events_;
    std::vector<Worker> workers_;
    Relay relay_{channel_, workers_};
    std::vector<std::size_t> order_;  // of their ends, by index
    StopSequence stop_;
    std::string notice_;   // to be sent if a failure makes us stop somebody
    int user_signal_ = 0;  // the first that asked a healthy job to stop
};

Agent::Agent(AgentJob job, base::UniqueFd channel)
    : job_(std::move(job)),
      grace_(job_.options.shutdown_timeout),
      channel_(std::move(channel)),
      control_(contract::ControlRegion::create(job_.workers)) {
    events_.add(channel_.fd(), EPOLLIN, tag_of(Source::channel));
    events_.add(signals_.fd(), EPOLLIN, tag_of(Source::signals));
    events_.add(relay_.fd(), EPOLLIN, tag_of(Source::pipes));
    if (job_.rendezvous.listener) {
        store_.emplace(std::move(job_.rendezvous.listener));
        events_.add(store_->fd(), EPOLLIN, tag_of(Source::store));
    }
}

int Agent::run() {
    const std::optional<Outcome> failed_start = supervise();
    if (!leash_held()) {
        for (const Worker& worker : workers_) {
            if (!worker.ended) worker.process.signal_group(SIGKILL);
        }
    }
    const SweepResult sweep = sweep_descendants(base::Deadline::after(sweep_time));
    relay_.drain();
    Outcome outcome =
        failed_start ? *failed_start : judge({workers_, order_, user_signal_, job_.error_folder});
    if (!sweep.complete) {
        outcome.text += (outcome.text.empty() ? "" : "\n") + std::string("could not be killed: ") +
                        describe_survivors(sweep);
        if (outcome.exit_code == contract::exit_ok) outcome.exit_code = contract::exit_error;
    }
    if (!outcome.text.empty()) channel_.send(FailureMessage{outcome.text});
    channel_.send(DoneMessage{outcome.exit_code});
    relay_.flush_channel(0);
    return outcome.exit_code;
}

// Until all workers have ended or the front is gone. What it returns is why the job did not start,
// or could not go on.
std::optional<Outcome> Agent::supervise() {
    try {
        start_workers();
        watch();
    } catch (const SpawnError& error) {
        return Outcome{error.exit_code(), error.what()};
    } catch (const std::exception& error) {
        return Outcome{contract::exit_error, error.what()};
    }
    return std::nullopt;
}

void Agent::start_workers() {
    const rlimit users_limit = raise_descriptor_limit();
    require_descriptors_for(job_.workers);
    make_error_folder(job_.error_folder);
    const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) throw SystemError("open /dev/null", errno);
    const std::vector<std::string> inherited = own_environment();
    const JobVariables variables{
        .workers = job_.workers,
        .master_addr = job_.rendezvous.address,
        .master_port = job_.rendezvous.port,
        .agent_store = job_.options.agent_store == AgentStore::on,
        .run_id = make_run_id(),
        .error_folder = job_.error_folder,
        .control = control_.handover(control_.fd()),
    };
    workers_.reserve(static_cast<std::size_t>(job_.workers));
    for (int rank = 0; rank < job_.workers; ++rank) {
        WorkerStart start{job_.program,
                          job_.command,
                          worker_environment(variables, rank, inherited),
                          {.in = null.get(), .out = -1, .err = -1, .inherited = control_.fd()},
                          users_limit};
        const std::size_t index = workers_.size();
        Worker& worker = workers_.emplace_back(start_worker(std::move(start), rank));
        events_.add(worker.process.pidfd(), EPOLLIN, tag_of(Source::worker, index));
        relay_.add_pipes_of(index);
        channel_.send(StateMessage{WorkerState::started, rank, worker.process.pid()});
    }
}

void Agent::watch() {
    while (leash_held() && !all_ended()) {
        update_channel_events();
        for (const Poller::Tag tag : events_.wait(stop_.next())) handle(tag);
        apply_stop_sequence();
        if (stop_.hopeless(Clock::now())) return;
    }
}

void Agent::handle(Poller::Tag tag) {
    switch (source_of(tag)) {
        case Source::channel:
            return handle_messages();
        case Source::signals:
            return handle_signals();
        case Source::store:
            return store_->run_ready();
        case Source::pipes:
            return relay_.relay_ready();
        case Source::worker:
            return note_end(index_of(tag));
    }
}

void Agent::handle_messages() {
    channel_.flush();
    channel_.receive();
    while (const auto message = channel_.next()) {
        if (const auto* stop = std::get_if<StopMessage>(&*message)) {
            request_stop(stop->signal, stop->grace);
        } else if (std::holds_alternative<KillMessage>(*message)) {
            stop_.kill_now(Clock::now());
        } else if (const auto* pass_on = std::get_if<SignalMessage>(&*message)) {
            for (const Worker& worker : workers_) {
                if (!worker.ended) worker.process.signal(pass_on->signal);
            }
        }
    }
}

// Not the way to stop a job, but what a service manager does that signals every process.
void Agent::handle_signals() {
    while (const auto signal = signals_.next()) {
        if (is_stop_signal(*signal)) request_stop(*signal, grace_);
    }
    reap_orphans();
}

void Agent::request_stop(int signal, milliseconds grace) {
    if (!stop_.active()) user_signal_ = signal;
    stop_.on_signal(signal, Clock::now(), grace);
}

void Agent::apply_stop_sequence() {
    while (const auto signal = stop_.due(Clock::now())) send_to_living(*signal);
}

void Agent::send_to_living(int signal) {
    // Who has ended already must not be counted among those that we stopped.
    for (std::size_t i = 0; i < workers_.size(); ++i) note_end(i);
    for (Worker& worker : workers_) {
        if (worker.ended) continue;
        if (!notice_.empty()) channel_.send(FailureMessage{std::exchange(notice_, {})});
        worker.stopped_with = signal;
        worker.process.signal_group(signal);
        // A stopped process sees no other signal than SIGKILL.
        if (signal != SIGKILL) worker.process.signal_group(SIGCONT);
    }
}

void Agent::note_end(std::size_t index) {
    Worker& worker = workers_[index];
    if (worker.ended) return;
    worker.ended = worker.process.reap();
    if (!worker.ended) return;
    order_.push_back(index);
    events_.remove(worker.process.pidfd());
    channel_.send(StateMessage{WorkerState::ended, worker.local_rank, worker.process.pid()});
    if (!worker.ended->ok() && !stop_.active()) start_failure_stop(worker);
    reap_orphans();
}

void Agent::start_failure_stop(const Worker& failed) {
    if (all_ended()) return;
    const auto rank = static_cast<std::uint32_t>(failed.local_rank);
    control_.header().abort_word.store(1 + rank, std::memory_order_release);
    stop_.on_failure(Clock::now(), grace_);
    notice_ = "rank " + std::to_string(failed.local_rank) +
              " failed; stopping the others: SIGTERM now, SIGKILL after " + base::to_string(grace_);
}

// Daemons and other orphans that ended: zombies of ours. A worker among them is left to its pidfd,
// which knows the order.
void Agent::reap_orphans() {
    for (;;) {
        siginfo_t info{};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        const bool is_worker = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
            return !w.ended && w.process.pid() == info.si_pid;
        });
        if (is_worker) return;
        ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    }
}

void Agent::update_channel_events() {
    const bool waiting = channel_.queued_bytes() > 0;
    events_.change(channel_.fd(), waiting ? EPOLLIN | EPOLLOUT : EPOLLIN, tag_of(Source::channel));
    events_.change(relay_.fd(), relay_.paused() ? 0U : EPOLLIN, tag_of(Source::pipes));
}

}  // namespace

void become_agent(base::UniqueFd err) {
    ::setsid();
    ::prctl(PR_SET_NAME, "ddp-agent", 0, 0, 0);
    base::set_log_name("agent");
    become_subreaper();
    const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) throw SystemError("open /dev/null", errno);
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
    ::dup2(err.get(), STDERR_FILENO);
}

int run_agent(AgentJob job, base::UniqueFd channel) {
    Agent agent(std::move(job), std::move(channel));
    return agent.run();
}

}  // namespace ddp::launcher
