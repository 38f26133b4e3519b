// One loop over one epoll set; everything that happens is an event in it.
#include "launcher/agent/agent.hpp"

#include "base/log.hpp"
#include "base/net/address.hpp"
#include "contract/exit_code.hpp"
#include "launcher/agent/agent_logs.hpp"
#include "launcher/agent/attempt/attempt.hpp"
#include "launcher/agent/event_source.hpp"
#include "launcher/agent/front_link.hpp"
#include "launcher/agent/hosts_agent.hpp"
#include "launcher/agent/onlookers.hpp"
#include "launcher/agent/port_watch.hpp"
#include "launcher/agent/restart_policy.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/process/descriptor_limit.hpp"
#include "launcher/process/poller.hpp"
#include "launcher/process/signals.hpp"
#include "store/server/store_server.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using Clock = StopSequence::Clock;
using std::chrono::milliseconds;

constexpr milliseconds time_for_last_words{500};

void log_step(const std::string& step) { base::log_debug("launcher", step); }

struct Problem {
    int exit_code;
    std::string text;
};

class Agent {
public:
    Agent(AgentJob job, const ForkedAgent& me, base::UniqueFd channel);
    int run();

private:
    bool front_lives() const { return front_.is_open(); }
    Channel& channel() { return front_.channel(); }
    CoordinatorRole* role() { return hosts_ ? &hosts_->role() : nullptr; }

    void serve_store();
    void watch_port();
    int run_attempts();
    std::optional<int> run_attempt(int number);
    AttemptContext context();
    std::optional<Problem> run_workers(Attempt& attempt);
    void join_hosts();
    int run_rounds();
    void run_part(const RoundMessage& round);
    void take_welcome(const WelcomeMessage& job);
    std::optional<Problem> supervise(Attempt& attempt);
    void relay_rest(std::optional<Clock::time_point> until);
    std::optional<milliseconds> decide(Outcome& outcome, Clock::duration lasted);
    std::optional<int> prepare_restart(const Attempt& failed, milliseconds delay);
    void pause(milliseconds time);
    void wait_for_own_stop(const Attempt& attempt);
    void end_leftovers(Attempt& attempt);
    void handle_events(std::optional<Clock::time_point> wake_at);
    void handle(Poller::Tag tag);
    void handle_messages();
    void handle_signals();
    void request_stop(int signal, milliseconds grace);
    void update_events();

    AgentJob job_;
    ForkedAgent me_;
    Poller events_;
    FrontLink front_;
    SignalReader signals_;
    std::optional<store::StoreServer> store_;
    std::optional<PortWatch> port_watch_;  // before anybody listens on rank 0's port
    UserStop user_stop_;
    AgentLogs logs_{job_.options, channel(), user_stop_,
                    [this](auto until) { handle_events(until); }};
    std::optional<HostsAgent> hosts_;  // of a job of several hosts
    RestartPolicy restarts_;
    rlimit users_descriptor_limit_ = raise_descriptor_limit();
    std::vector<Stream> closed_outputs_;  // of the front's
    Attempt* attempt_ = nullptr;          // the one that runs; null between two
    Onlookers onlookers_{events_, facts_of(job_), std::move(job_.metrics)};
};

Agent::Agent(AgentJob job, const ForkedAgent& me, base::UniqueFd channel)
    : job_(std::move(job)),
      me_(me),
      front_(std::move(channel), events_, tag_of(Source::channel)),
      signals_({SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGQUIT}),
      restarts_({.max_restarts = job_.options.restart.max_restarts,
                 .delay = job_.options.restart.delay,
                 .same_failure_window = job_.options.restart.same_failure_window}) {
    events_.add(signals_.fd(), EPOLLIN, tag_of(Source::signals));
}

int Agent::run() {
    const int exit_code = job_.hosts ? run_rounds() : run_attempts();
    logs_.finish();
    onlookers_.door().end(front_lives() ? std::optional(exit_code) : std::nullopt);
    log_step("done: exit code " + std::to_string(exit_code));
    channel().send(DoneMessage{exit_code, hosts_ && hosts_->is_told_end()});
    while (front_lives() && channel().queued_bytes() > 0) handle_events(std::nullopt);
    return exit_code;
}

// In the namespaces that the workers get, too, so that users have the numbers that they have there.
void Agent::serve_store() {
    if (job_.rendezvous.listeners.empty()) return;
    store::StoreServerOptions options = store_options(job_.options, job_.plan.workers());
    if (job_.hosts) {
        options.take_agent = [this](base::UniqueFd connection, std::string received) {
            hosts_->role().take_agent(std::move(connection), std::move(received));
        };
        options.needs_vouchers =
            job_.hosts->proof.is_there() && options.peers.peers != store::StorePeers::any;
    }
    store_.emplace(std::move(job_.rendezvous.listeners), std::move(options));
    events_.add(store_->fd(), EPOLLIN, tag_of(Source::store));
    log_step("store serves at " +
             base::host_and_port(job_.rendezvous.address, job_.rendezvous.port));
}

// Nobody but rank 0 is to listen there, and others can before it does.
void Agent::watch_port() {
    if (!job_.rendezvous.rank_0_serves_here) return;
    if (job_.options.rendezvous.store_peers == store::StorePeers::any) return;
    if (port_watch_) events_.remove(port_watch_->fd());
    port_watch_.emplace(job_.rendezvous.port, job_.rendezvous.at_loopback
                                                  ? store::SocketOwners::At::loopback
                                                  : store::SocketOwners::At::any);
    events_.add(port_watch_->fd(), EPOLLIN, tag_of(Source::port));
    port_watch_->look_now();
}

int Agent::run_attempts() {
    try {
        finish_containment(me_);
        serve_store();
        logs_.start(job_.options);
    } catch (const std::exception& error) {
        channel().send(FailureMessage{error.what()});
        return contract::exit_error;
    }
    for (;;) {
        if (const auto exit_code = run_attempt(restarts_.restarts())) return *exit_code;
    }
}

AttemptContext Agent::context() {
    const auto of_worker = [](std::size_t index) { return tag_of(Source::worker, index); };
    return {job_,
            logs_.tree(),
            logs_.writer(),
            logs_.flight(),
            channel(),
            events_,
            {tag_of(Source::pipes), tag_of(Source::input), of_worker}};
}

// The job's exit code, or nothing when another attempt is to follow.
std::optional<int> Agent::run_attempt(int number) {
    const auto started = Clock::now();
    Attempt attempt(
        context(),
        {.attempt = number, .restarts = number, .place = job_.plan.variables.attempt.place});
    const std::optional<Problem> problem = run_workers(attempt);
    const AttemptEnd end = attempt.end();
    Outcome outcome = problem ? end.outcome(problem->exit_code, problem->text) : end.outcome();
    const auto restart = decide(outcome, Clock::now() - started);
    logs_.note_end(number, attempt.watched(), outcome.text);
    if (!restart) logs_.publish(outcome);
    onlookers_.door().note_end(view_of(end, attempt.watched()), outcome.text);
    if (!outcome.text.empty()) {
        channel().send(FailureMessage{std::move(outcome.text)});
        logs_.record_flight_of_end(attempt.watched());
    }
    relay_rest(std::nullopt);
    attempt_ = nullptr;
    if (!restart) return outcome.exit_code;
    return prepare_restart(attempt, *restart);
}

// From their start until nothing of them lives, and all that tells how they ended is here.
std::optional<Problem> Agent::run_workers(Attempt& attempt) {
    attempt_ = &attempt;
    for (const Stream stream : closed_outputs_) attempt.stop_showing(stream);
    logs_.begin_attempt();
    std::optional<Problem> problem = supervise(attempt);
    onlookers_.door().open(facts_of(job_));  // also of one that could not start
    port_watch_.reset();
    channel().flush();  // what is left behind may take its time to die
    if (problem) attempt.kill_soon();
    if (problem || !front_lives()) attempt.kill_now();
    wait_for_own_stop(attempt);
    end_leftovers(attempt);
    attempt.sweep();
    // The report comes after the last words, but does not wait for a reader that takes nothing.
    relay_rest(Clock::now() + time_for_last_words);
    if (attempt.copy_error_files()) logs_.await();
    return problem;
}

// Several hosts -----------------------------------------------------------------------------------

void Agent::join_hosts() {
    HostsAgent::Settings settings = hosts_settings(job_);
    CoordinatorRole::Settings& coordinator = settings.coordinator;
    coordinator.store = [this]() -> store::StoreServer& { return *store_; };
    coordinator.timeline = logs_.timeline();
    coordinator.publish = [this](Outcome& outcome) {
        logs_.publish(outcome);
        onlookers_.note_end(hosts_->role(), outcome);
    };
    coordinator.report_file = [this] {
        return logs_.writer().unresponsive() ? std::string() : logs_.tree().report_file();
    };
    coordinator.show_status = [this](const StatusMessage& all) { channel().send(all); };
    coordinator.serve = [this](const MeetingPlace& place) {
        std::string why = listen_at(place, job_.rendezvous);
        serve_store();
        return why;
    };
    coordinator.stop_serving = [this] {
        events_.remove(store_->fd());
        store_.reset();
    };
    settings.welcome = [this](const WelcomeMessage& job) { take_welcome(job); };
    hosts_.emplace(std::move(settings), channel(), events_, tag_of(Source::hosts));
}

void Agent::take_welcome(const WelcomeMessage& job) {
    job_.options.run_id = job_.plan.variables.run_id = job.run_id;
    if (job.wants_progress) job_.progress = Watching::on;
    if (wants_timelines(job_.options.logs) && !job.wants_timeline) {
        channel().send(NoticeMessage{
            "--report and --trace: the coordinator writes them, and was not asked for any"});
    }
    logs_.use(LogTree(job_.options.logs.dir, job.run, job.host));
    logs_.start(job_.options);
}

int Agent::run_rounds() {
    try {
        finish_containment(me_);
        serve_store();
        join_hosts();
        if (job_.options.hosts.serve_only) onlookers_.door().open(facts_of(job_));
        while (!hosts_->exit_code() && front_lives()) {
            handle_events(std::nullopt);
            if (const auto round = hosts_->take_round()) run_part(*round);
        }
    } catch (const std::exception& error) {
        channel().send(FailureMessage{error.what()});
        return contract::exit_error;
    }
    const auto until = Clock::now() + time_for_last_words;
    while (!hosts_->has_said_all() && Clock::now() < until && front_lives()) handle_events(until);
    return hosts_->exit_code().value_or(contract::exit_error);
}

void Agent::run_part(const RoundMessage& round) {
    const HostPlace place = hosts_->begin_part(round);
    job_.keeps_timelines = hosts_->wants_timelines();
    job_.plan.variables.master_addr = hosts_->meeting_place().host;
    job_.rendezvous.port = hosts_->meeting_place().port;
    channel().send(PlaceMessage{place.first_rank, place.world_size});
    AttemptContext part = context();
    // Without a front the workers are killed, and none is to blame.
    part.on_failure = [this](const WorkerEnd& end, auto at) {
        if (front_lives()) hosts_->note_failure(end, at);
    };
    part.tell = hosts_->tell();
    Attempt attempt(std::move(part),
                    {.attempt = round.round - 1, .restarts = round.restarts, .place = place});
    const std::optional<Problem> problem = run_workers(attempt);
    if (front_lives()) {
        hosts_->end_part(attempt.end(), attempt.watched(), problem ? problem->text : "",
                         problem ? problem->exit_code : 0);
    } else {
        hosts_->give_up_part(attempt.end());
    }
    onlookers_.door().note_end(view_of(attempt.end(), attempt.watched()));
    if (!attempt.all_fine()) logs_.record_flight_of_end(attempt.watched());
    relay_rest(std::nullopt);
    attempt_ = nullptr;
    remove_error_folder(job_.error_folder);
}

// Until all workers have ended or the front is gone. What it returns is why the attempt did not
// start, or could not go on.
std::optional<Problem> Agent::supervise(Attempt& attempt) {
    try {
        attempt.prepare();
        logs_.await_files();
        if (user_stop_.signal || !front_lives()) return std::nullopt;
        watch_port();
        const std::string socket = store_ ? store_->local_name() : "";
        const auto port_problem = [this] { return port_watch_ ? port_watch_->problem() : ""; };
        if (port_problem().empty()) attempt.start_workers(users_descriptor_limit_, socket);
        logs_.note_workers_started();
        onlookers_.door().open(facts_of(job_));  // while they get ready, whom it costs nothing so
        while (port_problem().empty() && front_lives() && !attempt.all_ended() &&
               !attempt.kill_timed_out(Clock::now())) {
            handle_events(attempt.wakes_at());
            attempt.look_at_workers();
            if (attempt.take_verdict_news()) logs_.record_flight(attempt.watched(), "of the hang");
            attempt.pass_input();
            attempt.apply_stop_sequence();
        }
        if (!port_problem().empty()) return Problem{contract::exit_error, port_problem()};
    } catch (const SpawnError& error) {
        return Problem{error.exit_code(), error.what()};
    } catch (const std::exception& error) {
        return Problem{contract::exit_error, error.what()};
    }
    return std::nullopt;
}

// Somebody may be signalling every process of the job: our own signal is among the last then.
void Agent::wait_for_own_stop(const Attempt& attempt) {
    while (front_lives() && !user_stop_.signal) {
        const auto until = attempt.stop_may_come_until();
        if (!until) return;
        handle_events(until);
    }
}

void Agent::end_leftovers(Attempt& attempt) {
    while (front_lives()) {
        const auto look_again = attempt.end_leftovers(Clock::now());
        if (!look_again) return;
        handle_events(look_again);
    }
}

// Until the front has all that workers wrote, or the time is over. Without a front, until the files
// have it.
void Agent::relay_rest(std::optional<Clock::time_point> until) {
    while (!attempt_->drain() && (front_lives() || logs_.writer().full())) {
        if (until && Clock::now() >= *until) return;
        handle_events(until);
    }
}

// The pause before another attempt, if there is to be one; the outcome's text then says so.
std::optional<milliseconds> Agent::decide(Outcome& outcome, Clock::duration lasted) {
    if (!outcome.failed_rank || user_stop_.signal || !front_lives()) return std::nullopt;
    const RestartPolicy::Decision decision =
        restarts_.decide({.rank = *outcome.failed_rank,
                          .exit_code = outcome.exit_code,
                          .lasted = std::chrono::duration_cast<milliseconds>(lasted)});
    if (!decision.text.empty()) outcome.text += "\n" + decision.text;
    return decision.restart ? std::optional(decision.delay) : std::nullopt;
}

// What a new attempt finds is as new as it is: an empty store without connections, an empty folder
// for error files. Returns an exit code if the user has stopped the job meanwhile.
std::optional<int> Agent::prepare_restart(const Attempt& failed, milliseconds delay) {
    log_step("restart " + std::to_string(restarts_.restarts()) + " in " + base::to_string(delay));
    pause(delay);
    if (!front_lives()) return contract::exit_error;
    if (user_stop_.signal) {
        Outcome outcome = failed.end().outcome_when_stopped(*user_stop_.signal);
        logs_.publish(outcome);
        onlookers_.door().note_end(view_of(failed.end(), failed.watched()), outcome.text);
        channel().send(FailureMessage{std::move(outcome.text)});
        return outcome.exit_code;
    }
    // First, since connections may have taken all descriptors.
    if (store_) store_->start_attempt(restarts_.restarts());
    remove_error_folder(job_.error_folder);
    return std::nullopt;
}

void Agent::pause(milliseconds time) {
    const auto end = Clock::now() + time;
    while (front_lives() && !user_stop_.signal && Clock::now() < end) handle_events(end);
}

// What asks the job to stop comes before what happens to workers: in a batch that has both, a
// death is the consequence or the same signal's, and it must find the stop on record.
void Agent::handle_events(std::optional<Clock::time_point> wake_at) {
    update_events();
    const auto of_hosts = hosts_ ? hosts_->next() : std::nullopt;
    for (const auto& due : {logs_.next_due(), of_hosts, onlookers_.next()}) {
        if (due) wake_at = wake_at ? std::min(*wake_at, *due) : *due;
    }
    const std::vector<Poller::Tag> tags = events_.wait(wake_at);
    const bool of_worker = std::any_of(
        tags.begin(), tags.end(), [](Poller::Tag tag) { return source_of(tag) == Source::worker; });
    if (of_worker) {
        handle_messages();
        handle_signals();
    }
    for (const Poller::Tag tag : tags) handle(tag);
    if (hosts_) hosts_->run(attempt_);
    onlookers_.answer_waiting(attempt_, role());
    logs_.writer().look_at_time(Clock::now());
    logs_.say_news();
}

void Agent::handle(Poller::Tag tag) {
    switch (source_of(tag)) {
        case Source::channel:
            return handle_messages();
        case Source::signals:
            return handle_signals();
        case Source::logs:
            return logs_.writer().run_ready();
        case Source::store:
            return store_->run_ready();
        case Source::port:
            return port_watch_->look();
        case Source::hosts:
            return;  // handle_events() looks each time
        case Source::pipes:
            return attempt_->relay_ready();
        case Source::input:
            return attempt_->pass_input();
        case Source::door:
        case Source::metrics:
            return onlookers_.serve(tag, attempt_, role());
        case Source::worker:
            return attempt_->note_end(index_of(tag));
    }
}

void Agent::handle_messages() {
    channel().flush();
    channel().receive();
    while (const auto message = channel().next()) {
        if (const auto* stop = std::get_if<StopMessage>(&*message)) {
            log_step("asked to stop: " + signal_name(stop->signal));
            request_stop(stop->signal, stop->grace);
        } else if (std::holds_alternative<KillMessage>(*message)) {
            log_step("asked to kill the workers");
            user_stop_.is_hurried = true;
            if (attempt_ != nullptr) attempt_->kill_soon();
            if (hosts_) hosts_->kill();
        } else if (const auto* pass_on = std::get_if<SignalMessage>(&*message)) {
            const int signal = pass_on->signal;
            if (!attempt_ || logs_.record_flight_on(signal, attempt_->watched())) continue;
            log_step(signal_name(signal) + " is passed on to the workers");
            attempt_->signal_workers(signal);
        } else if (const auto* shown = std::get_if<ShownMessage>(&*message)) {
            if (attempt_ != nullptr) attempt_->on_shown(*shown);
        } else if (const auto* closed = std::get_if<ClosedMessage>(&*message)) {
            closed_outputs_.push_back(closed->stream);
            if (attempt_ != nullptr) attempt_->stop_showing(closed->stream);
        }
    }
}

// Not the way to stop a job, but what a service manager does that signals every process.
// Our own stop signals first, then children: a worker's end is judged in its turn (note_end).
void Agent::handle_signals() {
    while (const auto signal = signals_.next()) {
        if (!is_stop_signal(*signal)) continue;
        log_step("got " + signal_name(*signal));
        request_stop(*signal, job_.options.stop.shutdown_timeout);
    }
    if (attempt_ != nullptr) attempt_->note_children();
}

void Agent::request_stop(int signal, milliseconds grace) {
    if (!user_stop_.signal) user_stop_.signal = signal;
    if (attempt_ != nullptr) attempt_->request_stop(signal, grace);
    if (hosts_) hosts_->stop(signal, attempt_);
}

// What one round had to say to the front goes out before the next is waited for.
void Agent::update_events() {
    front_.keep_watched();
    logs_.writer().keep_watched(events_, tag_of(Source::logs));
    if (attempt_ != nullptr) attempt_->hold_output(logs_.writer().full());
}

}  // namespace

int run_agent(AgentJob job, const ForkedAgent& me, base::UniqueFd channel) {
    Agent agent(std::move(job), me, std::move(channel));
    return agent.run();
}

}  // namespace ddp::launcher
