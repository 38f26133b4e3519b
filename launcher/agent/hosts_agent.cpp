#include "launcher/agent/hosts_agent.hpp"

#include "base/log.hpp"
#include "base/net/address.hpp"
#include "base/net/socket.hpp"
#include "contract/exit_code.hpp"
#include "launcher/options/endpoint.hpp"
#include "launcher/process/signals.hpp"
#include "launcher/timeline/timeline_files.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <csignal>

namespace ddp::launcher {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// To a connection that may be one to the coordinator. A host that is to coordinate looks at the
// others first; a successor has nothing to wait for.
Milliseconds time_to_answer(const CoordinatorSearch& search, const MembershipRules& rules) {
    constexpr Milliseconds of_successor{2'000};
    constexpr Milliseconds of_coordinator{5'000};
    if (search.succession() != nullptr) return of_successor;
    return rules.has_successors ? of_coordinator + rules.node_timeout : of_coordinator;
}

std::string at_coordinator(const MeetingPlace& place) {
    return " (the coordinator at " + name_of(place) + ")";
}

}  // namespace

HostsAgent::HostsAgent(Settings settings, Channel& channel, Poller& events, Poller::Tag tag)
    : settings_(std::move(settings)),
      channel_(channel),
      events_(events),
      tag_(tag),
      role_(settings_.coordinator, events, tag),
      search_(settings_.job, settings_.join, events, tag, Clock::now()) {
    if (!settings_.job.coordinates) return;
    const Time now = Clock::now();
    if (!search_.is_first()) coordinate(*settings_.job.own_place, role_.begin(now), now);
    if (settings_.job.proof.is_there() || settings_.job.at_loopback) return;
    notice("no job token: anybody who can connect to port " +
           std::to_string(settings_.job.env.port) +
           " of this host may join this job with workers of their own; DDP_JOB_TOKEN_FILE on all "
           "hosts keeps others out, see docs/hosts.md");
}

HostsAgent::~HostsAgent() { unwatch_member(); }

void HostsAgent::run(Attempt* attempt) {
    const Time now = Clock::now();
    role_.run(now);
    if (coordinator() != nullptr && coordinator()->is_outdated()) {
        step_down();
        search_.succession()->renounce();
    }
    // Who has lost the coordinator says so to others when none of its workers lives.
    if (attempt == nullptr || search_.succession() == nullptr) {
        look_for_coordinator(now);
    } else {
        search_.look_later(now);
    }
    if (!member_) return;
    member_->run_ready();
    member_->look_at_time(now);
    while (const auto order = member_ ? member_->take_order(now) : std::nullopt) {
        follow(*order, attempt);
    }
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
    if (coordinator() != nullptr) add(coordinator()->next());
    if (member_) add(member_->next());
    if (has_found_coordinator() || exit_code_) return first;
    add(search_.next());
    if (member_ && coordinator() == nullptr) {
        add(member_->began() + time_to_answer(search_, settings_.job.rules));
    }
    return first;
}

// The search -------------------------------------------------------------------------------------

// One that others follow already comes before this host, until it has given out a round itself.
bool HostsAgent::has_found_coordinator() const {
    if (coordinator() == nullptr) return is_joined();
    return search_.succession() == nullptr && !(search_.is_first() && coordinator()->round() == 0);
}

void HostsAgent::look_for_coordinator(Time now) {
    if (exit_code_ || has_found_coordinator()) return;
    using Now = CoordinatorSearch::Now;
    const Now state = coordinator() != nullptr ? Now::coordinates
                      : member_                ? Now::is_connected
                                               : Now::looks;
    if (state == Now::is_connected &&
        now >= member_->began() + time_to_answer(search_, settings_.job.rules)) {
        return give_up_connection(
            Found::no_answer, "what listens there gives no answer; all hosts need ddp-launch", now);
    }
    const Succession* succession = search_.succession();
    if (succession != nullptr && state == Now::looks && succession->serves(now)) {
        return take_over(now);
    }
    CoordinatorSearch::News news = search_.look(state, now);
    if (news.exit_code) return finish(*news.exit_code, news.text);
    if (!news.text.empty()) notice(news.text);
    if (news.nobody_coordinates) {
        return coordinate(*settings_.job.own_place, role_.begin(now), now);
    }
    if (news.other_coordinates) return step_down();
    if (!news.connection) return;
    member_ = std::make_unique<Member>(join_message(), settings_.job.rules.node_timeout,
                                       settings_.job.proof);
    member_->begin(std::move(news.connection), now);
    watch_member();
}

void HostsAgent::give_up_connection(Found found, std::string why, Time now) {
    unwatch_member();
    member_.reset();
    search_.give_up(found, std::move(why), now);
}

// The coordinator --------------------------------------------------------------------------------

void HostsAgent::coordinate(const MeetingPlace& place, base::UniqueFd own_link, Time now) {
    search_.meet_at(place);
    member_ = std::make_unique<Member>(join_message(), settings_.job.rules.node_timeout);
    member_->begin(std::move(own_link), now);
    watch_member();
}

// At the address by which the others reached this host in the round.
void HostsAgent::take_over(Time now) {
    const RoundMessage& last = search_.succession()->last();
    const HostRanks& own = *last.table.find(search_.succession()->own());
    try {
        base::UniqueFd own_link =
            role_.succeed(last, *welcome_, settings_.job.proof, {own.address, own.port}, now);
        notice("takes over from the coordinator, if most of the hosts of round " +
               std::to_string(last.round) + " come");
        coordinate({own.address, own.port}, std::move(own_link), now);
    } catch (const Error& error) {
        notice(std::string("cannot take over from the coordinator: ") + error.what());
        search_.succession()->renounce();
    }
}

void HostsAgent::step_down() {
    notice("another host coordinates the job; this one joins it");
    unwatch_member();
    member_.reset();
    role_.end();
    search_.end_being_first();
    if (Succession* succession = search_.succession()) succession->defer(Clock::now());
}

JoinMessage HostsAgent::join_message() const {
    JoinMessage message = settings_.join;
    if (const Succession* of = search_.succession()) {
        message.size.was_in_round = of->last().round;
        message.size.was_member = of->own();
    }
    return message;
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
    if (part_.answer(*member_, order, attempt)) return;
    if (const auto* job = std::get_if<WelcomeMessage>(&order)) {
        const bool is_first = !std::exchange(welcome_, *job);
        if (coordinator() == nullptr) settings_.job.proof = member_->proof();
        if (is_first) settings_.welcome(*job);
    } else if (const auto* wait = std::get_if<WaitMessage>(&order)) {
        if (wait->is_spare) {
            notice("the job has all the hosts that it may have; this one waits until one goes");
        }
    } else if (const auto* round = std::get_if<RoundMessage>(&order)) {
        round_ = *round;
        search_.stop();
        search_.end_succession();
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
        const std::string who = "the coordinator at " + name_of(search_.meeting_place());
        notice(silence->is_over ? who + " answers again" : "no answer from " + who);
    } else if (const auto* refused = std::get_if<RefusedMessage>(&order)) {
        if (!member_->trusts_coordinator() && search_.may_be_elsewhere()) {
            return give_up_connection(Found::no_welcome, refused->why, Clock::now());
        }
        if (attempt != nullptr) attempt->end_now();
        finish(welcome_ ? contract::exit_host_lost : contract::exit_usage, refused->why);
    } else if (const auto* end = std::get_if<FinishMessage>(&order)) {
        if (attempt != nullptr) attempt->end_now();
        is_told_end_ = true;
        finish(end->exit_code, "");
    }
}

void HostsAgent::follow(const StopRoundMessage& stop, Attempt* attempt) {
    if (round_ && round_->round == stop.round) {
        round_.reset();
        return member_->drained({.round = stop.round, .end = PartEnd::failure});
    }
    if (attempt == nullptr || stop.round != part_.round().round) return;
    switch (stop.reason) {
        case StopReason::failure:
            if (!part_.has(stop.rank)) {
                notice(part_.round().table.describe(stop.rank) + " failed; stopping the others");
            }
            return attempt->stop_because_of(stop.rank);
        case StopReason::loss:
        case StopReason::hang:  // the coordinator has said who holds it up
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
    if (!is_joined()) {
        return give_up_connection(
            Found::no_welcome,
            "what listens there ends the connection (" + why + "); all hosts need ddp-launch", now);
    }
    if (attempt != nullptr) attempt->end_now();
    unwatch_member();
    const std::string killed = attempt != nullptr ? "; the workers here are killed" : "";
    if (!may_have_successor()) {
        const bool lacks_hosts = coordinator() != nullptr && settings_.job.rules.has_successors;
        const std::string words = lacks_hosts ? "it coordinates, and hears too few of its hosts"
                                              : why + at_coordinator(search_.meeting_place());
        return finish(contract::exit_host_lost, "this host has lost its job: " + words + killed);
    }
    notice("has lost the coordinator at " + name_of(search_.meeting_place()) + " (" + why +
           ") and looks for its successor" + killed);
    round_.reset();
    member_.reset();
    if (part_.round().round == 0) return search_.begin_anew(now);
    const Succession* before = search_.succession();
    if (before != nullptr && now < before->ends()) {
        search_.give_up(Found::one_that_went, why, now);
    } else {
        search_.begin_succession(part_.round(), part_.member(), welcome_->node_timeout, now);
    }
}

bool HostsAgent::may_have_successor() const {
    if (!welcome_->has_successors || coordinator() != nullptr || leaves_with_ != 0) return false;
    return part_.round().round == 0 || Succession::is_possible(part_.round());
}

// Rounds -----------------------------------------------------------------------------------------

HostPlace HostsAgent::begin_part(const RoundMessage& round) {
    part_ = HostPart(round, welcome_->member);
    member_->started(round.round);
    return part_.place();
}

// The host's own front hears of the whole job where this host coordinates it.
TellHosts HostsAgent::tell() {
    const auto while_member = [this](auto tell_of) {
        return [this, tell_of](auto... what) {
            if (member_) (part_.*tell_of)(*member_, std::move(what)...);
        };
    };
    return {.progress =
                [this](const StatusMessage& part) {
                    if (member_ && welcome_->wants_progress) part_.tell_progress(*member_, part);
                    if (coordinator() == nullptr) channel_.send(part);
                },
            .sighting = while_member(&HostPart::tell_alarm),
            .paces = while_member(&HostPart::tell_paces),
            .stacks = while_member(&HostPart::tell_stacks),
            .threads = while_member(&HostPart::tell_threads),
            .readings = while_member(&HostPart::tell_readings)};
}

void HostsAgent::end_part(const AttemptEnd& part, const WatchedWorkers& workers,
                          std::string trouble, int exit_code) {
    if (trouble.empty()) trouble = part.survivors;
    if (!member_ && !part.survivors.empty()) return finish(contract::exit_host_lost, trouble);
    if (!member_) return;  // nobody asks any more
    if (welcome_->wants_timeline) part_.tell_timelines(*member_, workers);
    part_.tell_rows(*member_, workers);
    const bool is_fine = part_.tell_ends(*member_, part) && trouble.empty();
    if (leaves_with_ != 0 && !exit_code_) {
        member_->leave();
        return finish(contract::exit_signal_base + leaves_with_, part.outcome().text);
    }
    member_->drained({.round = part_.round().round,
                      .end = is_fine ? PartEnd::success : PartEnd::failure,
                      .trouble = std::move(trouble),
                      .exit_code = exit_code});
}

// The end ----------------------------------------------------------------------------------------

void HostsAgent::stop(int signal, Attempt* attempt) {
    if (exit_code_) return;
    if (coordinator() != nullptr) return coordinator()->stop(signal, Clock::now());
    if (!is_joined()) {
        return finish(contract::exit_signal_base + signal,
                      "stopped by " + signal_name(signal) +
                          " while it waited for the coordinator at " + search_.places());
    }
    if (settings_.job.ends_as_one()) return member_->ask_to_stop(signal);
    if (attempt != nullptr) {
        leaves_with_ = signal;
        return;
    }
    member_->leave();
    finish(contract::exit_signal_base + signal, "stopped by " + signal_name(signal));
}

void HostsAgent::kill() {
    if (coordinator() != nullptr) return coordinator()->kill();
    if (is_joined() && !exit_code_ && settings_.job.ends_as_one()) member_->ask_to_stop(SIGKILL);
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
        .port = job.hosts->own_place ? job.hosts->own_place->port : std::uint16_t{0},
        .started_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(since_epoch).count(),
        .role = options.role};
    settings.join.min_hosts = job.hosts->env.min_hosts;
    settings.join.max_hosts = job.hosts->env.max_hosts;
    settings.grace = options.stop.shutdown_timeout;
    CoordinatorRole::Settings& coordinator = settings.coordinator;
    coordinator.rules = job.hosts->rules;
    coordinator.serves = job.hosts->coordinates;
    coordinator.job = {.name = job.hosts->name,
                       .run_id = options.run_id,
                       .run = LogTree::new_run(options.run_id),
                       .proof = job.hosts->proof,
                       .wants_progress = job.progress == Watching::on,
                       .wants_timeline = wants_timelines(options.logs)};
    coordinator.restarts = {.max_restarts = options.restart.max_restarts,
                            .delay = options.restart.delay,
                            .same_failure_window = options.restart.same_failure_window};
    coordinator.stop = options.stop;
    coordinator.facts = {.host = base::host_name(),
                         .attempts = 1 + options.restart.max_restarts,
                         .wants_json = !options.logs.report_page.empty(),
                         .lines = job.lines};
    return settings;
}

}  // namespace ddp::launcher
