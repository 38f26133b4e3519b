#include "launcher/agent/hosts_agent.hpp"

#include "base/log.hpp"
#include "base/net/address.hpp"
#include "base/net/socket.hpp"
#include "contract/exit_code.hpp"
#include "launcher/options/endpoint.hpp"
#include "launcher/process/signals.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <csignal>

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds first_words{5'000};
constexpr Milliseconds between_words{60'000};
constexpr Milliseconds time_to_answer{5'000};
constexpr Milliseconds between_tries{200};

std::string place_of(const HostsJob& job) {
    return base::host_and_port(job.env.head, job.env.port) +
           (is_this_host(job.env.head) ? " (this host)" : "");
}

}  // namespace

HostsAgent::HostsAgent(Settings settings, Channel& channel, Poller& events, Poller::Tag tag)
    : settings_(std::move(settings)),
      channel_(channel),
      events_(events),
      tag_(tag),
      judge_(settings_.restarts, settings_.exit_code, settings_.facts) {
    const Time now = Clock::now();
    search_.began = now;
    search_.next_words = now + first_words;
    if (!settings_.job.coordinates) return;
    coordinator_ = std::make_unique<Coordinator>(
        settings_.job.rules,
        Coordinator::Job{settings_.job.name, settings_.run_id, settings_.run, settings_.job.tls},
        settings_.begin_round, now);
    events_.add(coordinator_->fd(), EPOLLIN, tag_);
    member_ = std::make_unique<Member>(settings_.join, settings_.job.rules.node_timeout);
    member_->begin(coordinator_->connect_own_member(now), now);
    watch_member();
    if (settings_.job.tls || settings_.job.at_loopback) return;
    notice("no job token: anybody who can connect to port " +
           std::to_string(settings_.job.env.port) +
           " of this host may join this job with workers of their own; DDP_JOB_TOKEN_FILE on all "
           "hosts keeps others out, see docs/hosts.md");
}

HostsAgent::~HostsAgent() {
    unwatch_member();
    if (search_.connector) events_.remove(search_.connector->fd());
    if (coordinator_) events_.remove(coordinator_->fd());
}

void HostsAgent::take_agent(base::UniqueFd connection, std::string received) {
    arrived_.emplace_back(std::move(connection), std::move(received));
}

void HostsAgent::run(Attempt* attempt) {
    const Time now = Clock::now();
    if (coordinator_) {
        coordinator_->run_ready(now);  // in the first turn, its own member joins before others
        for (auto& [connection, received] : std::exchange(arrived_, {})) {
            coordinator_->take(std::move(connection), received, now);
        }
        coordinator_->look_at_time(now);
        judge_round(now);
    }
    look_for_coordinator(now);
    if (!member_) return;
    member_->run_ready();
    member_->look_at_time(now);
    while (const auto order = member_->take_order(now)) follow(*order, attempt);
    look_at_loss(attempt, now);
    const auto lease = member_ ? member_->lease_ends() : std::nullopt;
    if (attempt != nullptr && lease) attempt->set_lease(*lease);
    watch_member();
}

std::optional<HostsAgent::Time> HostsAgent::next() const {
    std::optional<Time> first;
    const auto add = [&](std::optional<Time> time) {
        if (time) first = std::min(first.value_or(*time), *time);
    };
    if (coordinator_) add(coordinator_->next());
    if (member_) add(member_->next());
    if (!welcome_ && !exit_code_ && !coordinator_) {
        add(search_.next_words);
        add(search_.began + settings_.job.rules.join_timeout);
        if (!search_.connector) add(member_ ? search_.answers_by : search_.try_again);
    }
    return first;
}

// The search -------------------------------------------------------------------------------------

void HostsAgent::look_for_coordinator(Time now) {
    if (welcome_ || exit_code_ || coordinator_) return;
    if (member_ && now >= search_.answers_by) {
        give_up_connection("what listens there gives no answer; all hosts need ddp-launch", now);
    }
    if (!member_ && !search_.connector && now >= search_.try_again) {
        search_.connector =
            std::make_unique<Connector>(settings_.job.env.head, settings_.job.env.port);
        events_.add(search_.connector->fd(), EPOLLIN, tag_);
    }
    take_news_of_connector(now);
    say_what_is_awaited(now);
    if (now < search_.began + settings_.job.rules.join_timeout) return;
    finish(contract::exit_error, "no coordinator at " + place_of(settings_.job) + " within " +
                                     in_seconds(settings_.job.rules.join_timeout) +
                                     (search_.trouble.empty() ? "" : ": " + search_.trouble));
}

void HostsAgent::take_news_of_connector(Time now) {
    if (!search_.connector) return;
    while (auto news = search_.connector->take()) {
        if (!news->connection) {
            search_.trouble = std::move(news->trouble);
            continue;
        }
        events_.remove(search_.connector->fd());
        search_.connector.reset();
        search_.answers_by = now + time_to_answer;
        member_ = std::make_unique<Member>(settings_.join, settings_.job.rules.node_timeout,
                                           settings_.job.tls);
        member_->begin(std::move(news->connection), now);
        return watch_member();
    }
}

void HostsAgent::give_up_connection(std::string why, Time now) {
    unwatch_member();
    member_.reset();
    search_.trouble = std::move(why);
    search_.try_again = now + between_tries;
}

void HostsAgent::say_what_is_awaited(Time now) {
    if (now < search_.next_words) return;
    search_.next_words = now + between_words;
    notice("waits for the coordinator at " + place_of(settings_.job) +
           (search_.trouble.empty() ? "" : ": " + search_.trouble));
}

void HostsAgent::watch_member() {
    if (!member_ || !member_->has_begun()) return;
    if (exit_code_ && member_->has_said_all()) return unwatch_member();
    const std::uint32_t wanted = member_->wants_to_send() ? EPOLLIN | EPOLLOUT : EPOLLIN;
    if (!watched_) {
        events_.add(member_->fd(), wanted, tag_);
    } else if (*watched_ != wanted) {
        events_.change(member_->fd(), wanted, tag_);
    }
    watched_ = wanted;
}

void HostsAgent::unwatch_member() {
    if (watched_) events_.remove(member_->fd());
    watched_.reset();
}

// Orders -----------------------------------------------------------------------------------------

void HostsAgent::follow(const MemberOrder& order, Attempt* attempt) {
    if (const auto* job = std::get_if<WelcomeMessage>(&order)) {
        welcome_ = *job;
        settings_.welcome(*job);
    } else if (const auto* wait = std::get_if<WaitMessage>(&order)) {
        if (wait->is_spare) {
            notice("the job has all the hosts that it may have; this one waits until one goes");
        }
    } else if (const auto* round = std::get_if<RoundMessage>(&order)) {
        round_ = *round;
    } else if (const auto* stop = std::get_if<StopRoundMessage>(&order)) {
        follow(*stop, attempt);
    } else if (std::holds_alternative<KillRoundMessage>(order)) {
        if (attempt != nullptr) attempt->kill_soon();
    } else if (const auto* words = std::get_if<SayMessage>(&order)) {
        if (words->is_failure) {
            channel_.send(FailureMessage{words->text});
        } else {
            notice(words->text);
        }
    } else if (const auto* silence = std::get_if<CoordinatorSilence>(&order)) {
        const std::string who = "the coordinator at " + place_of(settings_.job);
        notice(silence->is_over ? who + " answers again" : "no answer from " + who);
    } else if (const auto* refused = std::get_if<RefusedMessage>(&order)) {
        if (attempt != nullptr) attempt->end_now();
        finish(welcome_ ? contract::exit_host_lost : contract::exit_usage, refused->why);
    } else if (const auto* end = std::get_if<FinishMessage>(&order)) {
        if (attempt != nullptr) attempt->end_now();
        finish(end->exit_code, "");
    }
}

void HostsAgent::follow(const StopRoundMessage& stop, Attempt* attempt) {
    if (round_ && round_->round == stop.round) {
        round_.reset();
        return member_->drained({.round = stop.round, .end = PartEnd::failure});
    }
    if (attempt == nullptr || stop.round != part_.round) return;
    const bool is_own = stop.rank >= part_.first_rank && stop.rank < part_.first_rank + part_.slots;
    switch (stop.reason) {
        case StopReason::failure:
            if (!is_own) notice(part_.describe(stop.rank) + " failed; stopping the others");
            return attempt->stop_because_of(stop.rank);
        case StopReason::loss:
            return attempt->stop_because_of(stop.rank);
        case StopReason::growth:
            notice("other hosts have come: the workers are started again with them");
            return attempt->stop_because_of(-1);
        case StopReason::success:
            return;
        case StopReason::user:
            return attempt->request_stop(stop.signal != 0 ? stop.signal : SIGTERM, settings_.grace);
    }
}

void HostsAgent::look_at_loss(Attempt* attempt, Time now) {
    if (exit_code_ || !member_ || member_->lost().empty()) return;
    const std::string why = member_->lost();
    if (!welcome_) {
        return give_up_connection(
            "what listens there ends the connection (" + why + "); all hosts need ddp-launch", now);
    }
    if (attempt != nullptr) attempt->end_now();
    unwatch_member();
    finish(contract::exit_host_lost,
           "this host has lost its job: " + why + " (the coordinator at " +
               place_of(settings_.job) + ")" +
               (attempt != nullptr ? "; the workers here are killed" : ""));
}

// Rounds -----------------------------------------------------------------------------------------

HostPlace HostsAgent::begin_part(const RoundMessage& round) {
    const RankTable& table = round.table;
    const HostRanks* mine = table.find(welcome_->member);
    if (mine == nullptr) throw Error("round " + std::to_string(round.round) + " is another host's");
    part_ = {
        .round = round.round, .first_rank = mine->first_rank, .slots = mine->slots, .table = table};
    member_->started(round.round);
    return {.group_rank = mine->group_rank,
            .group_world_size = static_cast<int>(table.hosts.size()),
            .first_rank = mine->first_rank,
            .world_size = table.world_size,
            .first_role_rank = mine->first_role_rank,
            .role_world_size = mine->role_world_size,
            .address = mine->address,
            .round = round.round};
}

std::string HostsAgent::Part::describe(int rank) const {
    std::string name = "rank " + std::to_string(rank);
    for (const HostRanks& host : table.hosts) {
        if (rank >= host.first_rank && rank < host.first_rank + host.slots) {
            return name + " on host " + host.host;
        }
    }
    return name;
}

void HostsAgent::note_failure(const WorkerEnd& end, Time at) {
    member_->ended(part_.round, at, end);
}

void HostsAgent::end_part(const AttemptEnd& part, std::string trouble, int exit_code) {
    if (trouble.empty()) trouble = part.survivors;
    bool is_fine = trouble.empty();
    int ended = 0;
    for (AttemptEnd::TimedEnd& one : part.ends()) {
        is_fine = is_fine && one.end.status.ok() && one.end.stopped_with == 0;
        ++ended;
        member_->ended(part_.round, one.at, std::move(one.end));
    }
    is_fine = is_fine && ended == part_.slots;
    if (leaves_with_ != 0 && !exit_code_) {
        member_->leave();
        return finish(contract::exit_signal_base + leaves_with_, part.outcome().text);
    }
    member_->drained({.round = part_.round,
                      .end = is_fine ? PartEnd::success : PartEnd::failure,
                      .trouble = std::move(trouble),
                      .exit_code = exit_code});
}

void HostsAgent::give_up_part(const AttemptEnd& part) {
    if (part.survivors.empty()) member_->leave();
}

void HostsAgent::judge_round(Time now) {
    const auto end = coordinator_->take_round_end();
    if (!end) return;
    RoundVerdict verdict = judge_.judge(*end, settings_.report_file());
    if (!verdict.restart_in) settings_.publish(verdict.outcome);
    if (!verdict.outcome.text.empty()) {
        coordinator_->announce(verdict.outcome.text, verdict.line, verdict.culprit);
    }
    if (verdict.restart_in) {
        coordinator_->restart(*verdict.restart_in, true, now);
    } else {
        coordinator_->finish(verdict.outcome.exit_code, now);
    }
}

// The end ----------------------------------------------------------------------------------------

void HostsAgent::stop(int signal, Attempt* attempt) {
    if (exit_code_) return;
    if (coordinator_) return coordinator_->stop(signal, Clock::now());
    if (!welcome_) {
        return finish(contract::exit_signal_base + signal,
                      "stopped by " + signal_name(signal) +
                          " while it waited for the coordinator at " + place_of(settings_.job));
    }
    if (settings_.job.rules.is_static()) return member_->ask_to_stop(signal);
    if (attempt != nullptr) {
        leaves_with_ = signal;
        return;
    }
    member_->leave();
    finish(contract::exit_signal_base + signal, "stopped by " + signal_name(signal));
}

void HostsAgent::kill() {
    if (coordinator_) return coordinator_->kill();
    const bool may_end_all = welcome_ && !exit_code_ && settings_.job.rules.is_static();
    if (may_end_all) member_->ask_to_stop(SIGKILL);
}

bool HostsAgent::has_said_all() const {
    return (!member_ || member_->has_said_all()) &&
           (!coordinator_ || coordinator_->has_no_members());
}

void HostsAgent::finish(int exit_code, const std::string& text) {
    if (exit_code_) return;
    exit_code_ = exit_code;
    round_.reset();
    if (!text.empty()) channel_.send(FailureMessage{text});
}

HostsAgent::Settings hosts_settings(const AgentJob& job) {
    const Options& options = job.options;
    const auto since_epoch = std::chrono::system_clock::now().time_since_epoch();
    HostsAgent::Settings settings;
    settings.job = *job.hosts;
    settings.join.job = job.hosts->name;
    settings.join.size = {
        .host = base::host_name(),
        .slots = job.plan.workers(),
        .node_rank = job.hosts->env.node_rank,
        .is_endpoint = job.hosts->coordinates,
        .started_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count(),
        .role = options.role};
    settings.join.min_hosts = job.hosts->env.min_hosts;
    settings.join.max_hosts = job.hosts->env.max_hosts;
    settings.run_id = options.run_id;
    settings.run = LogTree::new_run(options.run_id);
    settings.grace = options.stop.shutdown_timeout;
    settings.restarts = {.max_restarts = options.restart.max_restarts,
                         .delay = options.restart.delay,
                         .same_failure_window = options.restart.same_failure_window};
    settings.exit_code = options.stop.exit_code;
    settings.facts = {.host = base::host_name(),
                      .attempts = 1 + options.restart.max_restarts,
                      .lines = job.lines};
    return settings;
}

}  // namespace ddp::launcher
