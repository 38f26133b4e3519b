#include "launcher/hosts/coordinator.hpp"

#include "base/log.hpp"
#include "base/printable.hpp"
#include "launcher/hosts/greeting.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <set>
#include <string_view>
#include <utility>

namespace ddp::launcher {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds between_probes{250};
// From a connection to its join.
constexpr Milliseconds time_to_join{5000};
constexpr std::uint64_t most_bytes_to_join = 4096;
constexpr std::uint64_t most_bytes_of_a_handshake = 2048;  // a client's, which takes 300
// At a time; each may cost 72 KiB while its TLS begins.
constexpr std::size_t max_newcomers = 1000;
// To a member that has all that it is to hear: its end of the link.
constexpr Milliseconds time_to_close{2000};
// Whoever has not run for so long heard nobody, and nobody is to blame.
constexpr Milliseconds own_pause{1000};
constexpr std::size_t max_links = 20'000;

void log_step(const std::string& step) { base::log_debug("launcher", "coordinator: " + step); }

std::string hosts_of(int min, int max) {
    return min == max ? std::to_string(max) : std::to_string(min) + ":" + std::to_string(max);
}

std::uint64_t bytes_to_join(const Coordinator::Job& job) {
    return most_bytes_to_join + (job.proof.tls ? most_bytes_of_a_handshake : 0);
}

std::string quoted(const std::string& name) { return name.empty() ? "none" : "\"" + name + "\""; }

// Why a member is of another job than this one, whose coordinator's host is `here`.
std::optional<std::string> mismatch_of(const JoinMessage& message, const std::string& job,
                                       const MembershipRules& rules, const std::string& here) {
    if (message.job != job) {
        return "its --rdzv-id is " + quoted(base::printable(message.job)) + ", that of " + here +
               " is " + quoted(job);
    }
    if (message.min_hosts != rules.min_hosts || message.max_hosts != rules.max_hosts) {
        return "its --nnodes is " + hosts_of(message.min_hosts, message.max_hosts) + ", that of " +
               here + " is " + hosts_of(rules.min_hosts, rules.max_hosts);
    }
    return std::nullopt;
}

bool is_for_job(const FromMember& message) {
    return std::holds_alternative<VouchedMessage>(message) ||
           std::holds_alternative<ProgressMessage>(message) ||
           std::holds_alternative<PacesMessage>(message) ||
           std::holds_alternative<RowsMessage>(message) ||
           std::holds_alternative<TimelineMessage>(message) ||
           std::holds_alternative<StacksMessage>(message) ||
           std::holds_alternative<ThreadsMessage>(message) ||
           std::holds_alternative<ReadingsMessage>(message) ||
           std::holds_alternative<SightingMessage>(message);
}

// Why the membership takes nobody in; nothing: it does.
std::optional<std::string> refusal_in(const MembershipActions& actions) {
    if (actions.size() != 1) return std::nullopt;
    const auto* to = std::get_if<SendTo>(&actions.front());
    const auto* no = to != nullptr ? std::get_if<RefusedMessage>(&to->message) : nullptr;
    return no != nullptr ? std::optional(no->why) : std::nullopt;
}

// The host's name, or with a number: several agents may run on one host.
template <class Links>
std::string free_folder(const Links& links, const std::string& host) {
    std::set<std::string_view> taken;
    for (const auto& [id, peer] : links) taken.insert(peer.folder);
    for (int number = 1;; ++number) {
        std::string name = host + (number == 1 ? "" : "-" + std::to_string(number));
        if (!taken.contains(name)) return name;
    }
}

// With what the coordinator knows of the member.
HostSize size_in(const JoinMessage& message, MemberId id, const Link& link) {
    HostSize size = message.size;
    size.member = id;
    size.host = base::printable(size.host);
    size.address = link.peer_address();
    return size;
}

// Of the coordinator's own member.
template <class Links>
std::string host_of(const Links& links, MemberId member) {
    const auto found = links.find(member);
    const bool is_known = found != links.end() && found->second.joined;
    return is_known ? found->second.joined->host : "the coordinator";
}

// By which the others reach this host; empty where there are none.
template <class Links>
std::string own_address_of(const Links& links) {
    for (const auto& [id, peer] : links) {
        std::string address = peer.joined ? peer.link.own_address() : "";
        if (!address.empty()) return address;
    }
    return {};
}

// By a reset: thousands may come a second. Its link is to be removed.
template <class Links>
MemberId turn_out_one(const Newcomers& newcomers, Links& links) {
    const MemberId first = *newcomers.first_to_go();
    links.at(first).link.reset("others come");
    return first;
}

// The time after the beat was read, not that of the turn: see ClockOffset. Number 0 lengthens no
// lease.
BeatReply reply_to(const BeatMessage& beat, bool grants) {
    return {.number = grants ? beat.number : 0,
            .clock_of_beat_ns = beat.clock_ns,
            .clock_ns = clock_ns_of(std::chrono::steady_clock::now())};
}

std::string described(const RoundMessage& round) {
    return "round " + std::to_string(round.round) + " of " +
           std::to_string(round.table.hosts.size()) + " hosts, " +
           std::to_string(round.table.world_size) + " ranks";
}

// With what only the coordinator knows.
template <class Links>
RoundMessage whole(RoundMessage round, MemberId coordinator, const Links& links) {
    round.coordinator = coordinator;
    for (HostRanks& host : round.table.hosts) {
        if (host.address.empty()) host.address = own_address_of(links);
    }
    return round;
}

}  // namespace

Coordinator::Coordinator(const MembershipRules& rules, Job job, BeginRound begin_round, Time now)
    : rules_(rules),
      job_(std::move(job)),
      begin_round_(std::move(begin_round)),
      membership_(job_.succeeds ? Membership(rules, *job_.succeeds, now) : Membership(rules, now)) {
    if (!job_.succeeds) return;
    record_ = RoundRecord(*job_.succeeds, RoundRecord::Of::a_lost_coordinator);
    for (const HostRanks& host : job_.succeeds->table.hosts) {
        last_id_ = std::max(last_id_, host.member);
    }
}

// Links ------------------------------------------------------------------------------------------

void Coordinator::take(base::UniqueFd connection, std::string_view received, Time now) {
    make_room();
    if (links_.size() >= max_links) return;
    const MemberId id = ++last_id_;
    Link link(std::move(connection), Link::Begins::with_hello, received);
    if (id != own_member_) newcomers_.add(id, link.peer_address());
    events_.add(link.fd(), EPOLLIN, id);
    links_.emplace(id, Peer{.link = std::move(link), .came = now, .heard = now});
    run_ready(id, now);
    note_end(id);
}

// An agent joins as soon as it can: one that comes while others only wait is let in for the oldest
// of those from where most come.
void Coordinator::make_room() {
    if (newcomers_.size() >= max_newcomers) remove(turn_out_one(newcomers_, links_));
}

base::UniqueFd Coordinator::connect_own_member(Time now) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()) != 0) {
        throw SystemError("socketpair for the agent that coordinates", errno);
    }
    base::UniqueFd other(ends[1]);
    own_member_ = last_id_ + 1;
    take(base::UniqueFd(ends[0]), {}, now);
    return other;
}

void Coordinator::run_ready(Time now) {
    note_own_pause(now);
    for (const Poller::Tag id : events_.wait(now)) {
        run_ready(id, now);
        note_end(id);
    }
    close_ended(now);
}

void Coordinator::run_ready(MemberId id, Time now) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    Peer& peer = found->second;
    const std::uint64_t most = bytes_to_join(job_);
    const std::uint64_t had = std::min(most, peer.link.received_bytes());
    peer.link.receive(peer.joined ? Link::bytes_a_call : most - had);
    const JobProof none;
    const std::string why = greet(peer.link, id == own_member_ ? none : job_.proof);
    if (!why.empty() && !peer.ends_when_sent) turn_away(id, why);
    // Who has given up has connected again, or will: no host that was lost.
    if (!peer.joined && !peer.link.is_open()) return;
    while (const auto frame = peer.link.next()) {
        try {
            handle(id, decode_from_member(*frame), now);
        } catch (const UsageError& error) {
            return peer.link.close(error.what());
        }
    }
    if (!peer.joined && peer.link.received_bytes() >= most) {
        return peer.link.close("it says too much before it joins");
    }
    flush(id);
}

// It hears why, as far as it can read that, and so does the user.
void Coordinator::turn_away(MemberId id, const std::string& why) {
    log_step("turned away: " + why);
    if (id != own_member_ && refusals_.is_news(why)) say(own_member_, "refused: " + why, false);
    refuse(id, why);
}

void Coordinator::send(MemberId id, const FromCoordinator& message) { queue(id, encode(message)); }

void Coordinator::queue(MemberId id, const std::string& frame) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    found->second.link.queue(frame);
    flush(id);
}

void Coordinator::flush(MemberId id) {
    Peer& peer = links_.at(id);
    peer.link.flush();
    note_end(id);
    const bool has_more = peer.link.wants_to_send();
    if (!peer.link.is_open() || has_more == peer.watches_room) return;
    peer.watches_room = has_more;
    events_.change(peer.link.fd(), has_more ? EPOLLIN | EPOLLOUT : EPOLLIN, id);
}

// It may have to be closed.
void Coordinator::note_end(MemberId id) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    const Peer& peer = found->second;
    if (!peer.link.is_open() || (peer.ends_when_sent && !peer.ends_by)) ending_.push_back(id);
}

// In one place, so that nobody holds one that goes. The loss of one may end others.
void Coordinator::close_ended(Time now) {
    while (!ending_.empty()) {
        for (const MemberId id : std::exchange(ending_, {})) close_if_ended(id, now);
    }
}

void Coordinator::close_if_ended(MemberId id, Time now) {
    const auto found = links_.find(id);
    if (found == links_.end()) return;
    Peer& peer = found->second;
    if (peer.ends_when_sent && !peer.ends_by && !peer.link.wants_to_send()) {
        peer.link.end_sending();
        peer.ends_by = now + time_to_close;
    }
    if (peer.link.is_open()) return;
    log_step("link " + std::to_string(id) + " ended: " + peer.link.trouble());
    const bool was_member = peer.joined.has_value() && !peer.ends_when_sent;
    remove(id);
    if (was_member) carry_out(membership_.closed(id, now));
}

void Coordinator::remove(MemberId id) {
    newcomers_.remove(id);
    events_.remove(links_.at(id).link.fd());
    links_.erase(id);
}

// Time -------------------------------------------------------------------------------------------

void Coordinator::note_own_pause(Time now) {
    if (last_look_ && now - *last_look_ > own_pause) {
        for (const auto& [id, peer] : links_) membership_.heard(id, now);
    }
    last_look_ = now;
}

// All links are looked at four times a second and when the membership has something due, not in
// each turn of the loop: thousands of members are heard four times a second each.
void Coordinator::look_at_time(Time now) {
    note_own_pause(now);
    const bool probes = now >= next_probe_;
    if (probes) probe(now);
    if (probes || now >= next_look_) {
        for (const auto& [id, peer] : links_) {
            if (!peer.joined || now - peer.heard < between_probes) continue;
            membership_.acknowledged(id, now - peer.link.silent_for());
        }
        carry_out(membership_.look_at_time(now));
        next_look_ = membership_.next(now).value_or(Time::max());
    }
    close_ended(now);
}

void Coordinator::probe(Time now) {
    next_probe_ = now + between_probes;
    for (auto& [id, peer] : links_) {
        const bool is_late = !peer.joined && now >= peer.came + time_to_join;
        if (is_late) peer.link.close("it has not joined in time");
        if (peer.ends_by && now >= *peer.ends_by) peer.link.close("it was told to go");
        note_end(id);
        if (!peer.joined || now - peer.heard < 2 * between_probes) continue;
        peer.link.queue(encode(FromCoordinator(BeatReply{.clock_ns = clock_ns_of(now)})));
        flush(id);
    }
}

std::optional<Coordinator::Time> Coordinator::next() const {
    std::optional<Time> first;
    if (next_look_ != Time::max()) first = next_look_;
    if (!links_.empty()) first = std::min(first.value_or(next_probe_), next_probe_);
    return first;
}

// What members say -------------------------------------------------------------------------------

void Coordinator::handle(MemberId id, const FromMember& message, Time now) {
    Peer& peer = links_.at(id);
    if (peer.ends_when_sent) return;
    if (const auto* wanted = std::get_if<JoinMessage>(&message)) return join(id, *wanted, now);
    if (!peer.joined) return peer.link.close("it speaks before it joins");
    peer.heard = now;
    membership_.heard(id, now);
    if (const auto* beat = std::get_if<BeatMessage>(&message)) {
        const Time sent(std::chrono::nanoseconds(beat->echo_ns));
        if (beat->echo_ns != 0) membership_.proven(id, std::min(sent, now));
        peer.link.queue(encode(FromCoordinator(reply_to(*beat, membership_.grants(now)))));
    } else if (const auto* begun = std::get_if<StartedMessage>(&message)) {
        membership_.started(id, begun->round);
    } else if (const auto* end = std::get_if<EndedMessage>(&message)) {
        ended(id, *end, now);
    } else if (const auto* part = std::get_if<DrainedMessage>(&message)) {
        drained(id, *part, now);
    } else if (is_for_job(message)) {
        if (job_.hears) job_.hears(id, message);
    } else if (std::holds_alternative<LeaveMessage>(message)) {
        peer.ends_when_sent = true;
        carry_out(membership_.leave(id, now));
    } else if (const auto* stop_job = std::get_if<StopJobMessage>(&message)) {
        if (stop_job->signal == SIGKILL) return kill();
        say_everywhere(name_of(*peer.joined) +
                           " asks for the end of the job: " + signal_name(stop_job->signal),
                       false);
        stop(stop_job->signal, now);
    }
}

void Coordinator::join(MemberId id, const JoinMessage& message, Time now) {
    Peer& peer = links_.at(id);
    if (peer.joined) return peer.link.close("it joins twice");
    const HostSize size = size_in(message, id, peer.link);
    peer.joined = size;
    const std::string here = host_of(links_, own_member_);
    const auto mismatch = mismatch_of(message, job_.name, rules_, here);
    if (size.slots == 0 && id != own_member_) {  // it only asks: see CoordinatorProbe
        if (!mismatch) return refuse(id, "another host coordinates this job");
        peer.joined.reset();
        return peer.link.close("it looks for another job");
    }
    if (mismatch && id != own_member_) {
        return turn_away(id, "host " + name_of(size) + ": " + *mismatch);
    }
    const MembershipActions actions = membership_.join(size, now);
    if (const auto why = refusal_in(actions)) return turn_away(id, *why);
    newcomers_.remove(id);
    log_step(name_of(size) + " joins with " + std::to_string(size.slots) + " workers");
    if (size.slots > 0) peer.folder = free_folder(links_, size.host);
    send(id, WelcomeMessage{.member = id,
                            .run_id = job_.run_id,
                            .run = job_.run,
                            .host = peer.folder,
                            .node_timeout = rules_.node_timeout,
                            .has_successors = rules_.has_successors,
                            .wants_progress = job_.wants_progress,
                            .wants_timeline = job_.wants_timeline});
    carry_out(actions);
}

void Coordinator::refuse(MemberId id, const std::string& why) {
    send(id, MemberMessage(RefusedMessage{why}));
    Peer& peer = links_.at(id);
    peer.ends_when_sent = true;
    peer.joined.reset();
}

bool Coordinator::has_no_members() const {
    return std::ranges::none_of(links_,
                                [](const auto& entry) { return entry.second.joined.has_value(); });
}

void Coordinator::ended(MemberId id, const EndedMessage& message, Time now) {
    if (!record_.note(id, message)) return;
    if (job_.hears) job_.hears(id, message);
    const auto first = first_failure(record_.ends(), ErrorTexts::known);
    if (!first) return;
    const MembershipActions actions = membership_.failed(id, message.round, first->ended, now);
    if (!actions.empty()) record_.note_stop();
    carry_out(actions);
}

void Coordinator::drained(MemberId id, const DrainedMessage& message, Time now) {
    record_.note(id, message);
    carry_out(membership_.drained(id, message.round, message.end, now));
}

// What is decided --------------------------------------------------------------------------------

void Coordinator::carry_out(const MembershipActions& actions) {
    next_look_ = {};
    for (const MembershipAction& action : actions) {
        if (const auto* given = std::get_if<GiveRound>(&action)) {
            begin_round(given->round);
            const std::string frame = encode(FromCoordinator(MemberMessage(record_.round())));
            for (const MemberId to : given->to) queue(to, frame);
        } else if (const auto* to = std::get_if<SendTo>(&action)) {
            if (const auto* refused = std::get_if<RefusedMessage>(&to->message)) {
                if (links_.contains(to->to)) refuse(to->to, refused->why);
                continue;
            }
            send(to->to, to->message);
            const bool is_last = std::holds_alternative<FinishMessage>(to->message);
            const auto found = links_.find(to->to);
            if (is_last && found != links_.end()) found->second.ends_when_sent = true;
        } else if (const auto* news = std::get_if<SayEverywhere>(&action)) {
            say_everywhere(news->text, false);
        } else {
            record_.ask(std::get<AskForJudgement>(action));
        }
    }
}

void Coordinator::begin_round(const RoundMessage& round) {
    log_step(described(round));
    record_ = RoundRecord(whole(round, own_member_, links_));
    begin_round_(record_.round());
}

void Coordinator::kill() {
    for (const auto& [id, peer] : links_) {
        if (peer.joined) send(id, KillRoundMessage{std::max(1, record_.round().round)});
    }
}

void Coordinator::announce(const std::string& text, const std::string& line,
                           const std::vector<MemberId>& concerned, bool is_failure) {
    for (const auto& [id, peer] : links_) {
        const bool is_whole = id == own_member_ || std::ranges::count(concerned, id) > 0;
        if (peer.joined) say(id, is_whole ? text : line, is_failure);
    }
}

}  // namespace ddp::launcher
