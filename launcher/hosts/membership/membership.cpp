#include "launcher/hosts/membership/membership.hpp"

#include "contract/exit_code.hpp"

#include <algorithm>
#include <tuple>

namespace ddp::launcher {
namespace {

using Milliseconds = std::chrono::milliseconds;

// Its holder counts a lease by another clock, notices its end in the next turn of a loop, and then
// kills.
Milliseconds longest_lease(const MembershipRules& rules) {
    constexpr Milliseconds to_notice_and_kill{500};
    return rules.node_timeout + rules.node_timeout / 50 + to_notice_and_kill;
}

// Of an agent that runs, several beats come in it.
constexpr Milliseconds time_to_be_heard{1000};

std::string ranks_of(const HostRanks& host) {
    const std::string first = std::to_string(host.first_rank);
    if (host.slots == 1) return "rank " + first;
    return "ranks " + first + "-" + std::to_string(host.first_rank + host.slots - 1);
}

// "h1 (10.77.0.1), ranks 0-7"
std::string name_with_ranks(const HostSize& size, const RankTable& table) {
    const HostRanks* ranks = table.find(size.member);
    return name_of(size) + (ranks == nullptr ? "" : ", " + ranks_of(*ranks));
}

// For the users; empty: nothing is said of it here.
std::string words_of(HostContact::News news, const std::string& host,
                     const MembershipRules& rules) {
    using News = HostContact::News;
    switch (news) {
        case News::none:
        case News::lost:
            return "";
        case News::silent:
            return "no answer from " + host;
        case News::stalled:
            return "the agent of " + host + " has not run for " +
                   in_seconds(rules.say_stalled_after) + "; its kernel answers";
        case News::answers_again:
            return host + " answers again";
    }
    return "";
}

}  // namespace

Membership::Membership(const MembershipRules& rules, Time now)
    : rules_(rules), gathering_ends_(now + rules.join_timeout) {}

Membership::Membership(const MembershipRules& rules, RoundMessage last, Time now)
    : rules_(rules),
      phase_(Phase::succeeding),
      is_successor_(true),
      last_(std::move(last)),
      gathering_ends_(now + rules.time_to_succeed()) {
    quorum_.begin(last_.table);
}

// Events -----------------------------------------------------------------------------------------

MembershipActions Membership::join(const HostSize& size, Time now) {
    const auto why = is_over() ? std::optional<std::string>("the job has ended")
                               : roster_.refusal_of(size, rules_.max_hosts);
    if (why) {
        send(size.member, RefusedMessage{*why});
        return take();
    }
    const Member& member = roster_.add(size, losses_.may_join_at(size.host), now);
    const bool waits = now < member.may_join_at || member.waits_for_rank_since;
    const auto there = roster_.count_eligible(now);
    send(size.member, WaitMessage{!waits && std::cmp_greater(there, rules_.max_hosts)});
    if (now < member.may_join_at) {
        say(size.host + " was lost " + std::to_string(losses_.count(size.host)) +
            " times in a row; it may join again in " +
            in_seconds(std::chrono::ceil<Milliseconds>(member.may_join_at - now)));
    }
    if (is_successor_) take_claim(size, now);
    if (phase_ == Phase::gathering) gather(now);
    if (phase_ == Phase::running) look_at_newcomers(now);
    return take();
}

void Membership::proven(MemberId member, Time at) {
    Member* known = roster_.find(member);
    if (known != nullptr) known->proven = std::max(known->proven, at);
}

bool Membership::grants(Time now) const {
    if (!rules_.has_successors || is_successor_) return true;
    return quorum_.is_met(Quorum::Share::half, [&](MemberId id) {
        const Member* member = roster_.find(id);
        return member != nullptr && member->proven + rules_.grant_window() > now;
    });
}

void Membership::started(MemberId member, int round) {
    if (round == last_.round) quorum_.started(member);
}

void Membership::heard(MemberId member, Time now) {
    if (Member* known = roster_.find(member)) known->contact.hear(now);
}

MembershipActions Membership::failed(MemberId member, int round, int rank, Time now) {
    heard(member, now);
    const bool counts = phase_ == Phase::running && round == last_.round && parts_.contains(member);
    if (counts) end_round(StopReason::failure, rank, 0);
    return take();
}

MembershipActions Membership::hung(int rank) {
    if (phase_ == Phase::running) end_round(StopReason::hang, rank, 0);
    return take();
}

MembershipActions Membership::drained(MemberId member, int round, PartEnd end, Time now) {
    heard(member, now);
    if (round != last_.round || parts_.erase(member) == 0) return {};
    if (end == PartEnd::failure && phase_ == Phase::running) {
        end_round(StopReason::failure, last_.table.find(member)->first_rank, 0);
    }
    look_at_parts(now);
    return take();
}

MembershipActions Membership::leave(MemberId member, Time now) {
    const Member* known = roster_.find(member);
    if (known == nullptr) return {};
    say(name_with_ranks(known->size, last_.table) + " leaves the job");
    roster_.erase(member);
    quorum_.left(member);
    if (parts_.contains(member)) lose_part(member, now);
    look_at_parts(now);
    if (phase_ == Phase::running) look_at_newcomers(now);
    return take();
}

MembershipActions Membership::closed(MemberId member, Time now) {
    lose(member, "its agent has gone", now);
    look_at_parts(now);
    return take();
}

MembershipActions Membership::stop(int signal, Time now) {
    if (phase_ == Phase::running) {
        end_round(StopReason::user, -1, signal);
        look_at_parts(now);
    } else if (phase_ == Phase::stopping) {
        reason_ = StopReason::user;
    } else if (phase_ == Phase::gathering || phase_ == Phase::succeeding) {
        phase_ = Phase::judging;
        actions_.emplace_back(AskForJudgement{last_.round, StopReason::user, false});
    }
    return take();
}

MembershipActions Membership::restart(Milliseconds delay, bool counts, Time now) {
    if (phase_ != Phase::judging) return {};
    phase_ = Phase::gathering;
    last_.restarts += counts ? 1 : 0;
    not_before_ = now + delay;
    gathering_ends_ = not_before_ + rules_.join_timeout;
    gather(now);
    return take();
}

MembershipActions Membership::finish(int exit_code) {
    if (phase_ != Phase::over) end(exit_code);
    return take();
}

MembershipActions Membership::look_at_time(Time now) {
    look_at_quiet(now);
    if (phase_ == Phase::succeeding && now >= gathering_ends_) end_without_quorum();
    look_at_ranks(now);
    look_at_parts(now);
    if (phase_ == Phase::gathering) gather(now);
    if (phase_ == Phase::running) look_at_newcomers(now);
    return take();
}

std::optional<Membership::Time> Membership::next(Time now) const {
    if (phase_ == Phase::over) return std::nullopt;
    std::optional<Time> first;
    const auto add = [&](Time time) {
        if (time > now) first = first ? std::min(*first, time) : time;
    };
    for (const auto& [id, member] : roster_) {
        if (const auto time = member.contact.next(rules_, now)) add(*time);
        add(member.may_join_at);
        if (member.waits_for_rank_since) add(*member.waits_for_rank_since + time_to_be_heard);
    }
    for (const auto& [id, part] : parts_) {
        if (part.is_lost) add(part.lease_ends);
    }
    if (last_call_ends_) add(*last_call_ends_);
    if (phase_ == Phase::gathering) add(not_before_);
    if (phase_ == Phase::gathering || phase_ == Phase::succeeding) add(gathering_ends_);
    return first;
}

// Succession -------------------------------------------------------------------------------------

// It has left the coordinator of the round for good. With most of them gone that one grants leases
// for no longer than its window after it has heard the last of them, and no worker lives for longer
// than the lease that was granted then.
void Membership::take_claim(const HostSize& size, Time now) {
    is_outdated_ = is_outdated_ || size.was_in_round > last_.round;
    if (size.was_in_round != last_.round) return;
    const auto same = std::ranges::find(last_.table.hosts, quorum_.number_of(size.was_member),
                                        &HostRanks::member);
    if (same == last_.table.hosts.end()) return;
    same->member = size.member;
    quorum_.renamed(size.was_member, size.member);
    if (phase_ != Phase::succeeding || !has_quorum()) return;
    phase_ = Phase::stopping;
    reason_ = StopReason::loss;
    has_lost_host_ = true;
    const Time no_worker_lives =
        now + rules_.grant_window() + rules_.grant_window() / 50 + longest_lease(rules_);
    for (const HostRanks& host : last_.table.hosts) {
        parts_[host.member] = {.is_lost = true, .lease_ends = no_worker_lives};
    }
}

bool Membership::has_quorum() const {
    return !rules_.has_successors ||
           quorum_.is_met(is_successor_ ? Quorum::Share::most : Quorum::Share::half,
                          [&](MemberId id) { return roster_.contains(id); });
}

void Membership::end_without_quorum() {
    say("the hosts that are left (" + roster_.list() + ") are too few of the " +
        std::to_string(last_.table.hosts.size()) + " of round " + std::to_string(last_.round) +
        ": the others may go on without them");
    end(contract::exit_host_lost);
}

// Rounds -----------------------------------------------------------------------------------------

// Hosts of a round that has ended need no last call: who else comes is a newcomer to the next one.
void Membership::gather(Time now) {
    if (!has_quorum()) return end_without_quorum();
    const std::size_t there = roster_.count_eligible(now);
    const bool is_enough = std::cmp_greater_equal(there, rules_.min_hosts);
    const bool is_full = std::cmp_greater_equal(there, rules_.max_hosts);
    if (!is_enough) {
        last_call_ends_.reset();
        if (now < gathering_ends_) return;
        say("only " + std::to_string(there) + " of at least " + std::to_string(rules_.min_hosts) +
            " hosts came within " + in_seconds(rules_.join_timeout) + ": " + roster_.list());
        return end(1);
    }
    if (now < not_before_) return;
    if (!is_full && last_.round == 0) {
        if (!last_call_ends_) last_call_ends_ = now + rules_.last_call;
        if (now < *last_call_ends_) return;
    }
    auto hosts = roster_.eligible(last_.table, now);
    hosts.resize(std::min(hosts.size(), static_cast<std::size_t>(rules_.max_hosts)));
    start_round(std::move(hosts), now);
}

void Membership::start_round(std::vector<HostSize> hosts, Time now) {
    last_.table = last_.round == 0 ? make_rank_table(hosts) : make_rank_table(hosts, last_.table);
    ++last_.round;
    quorum_.begin(last_.table);
    is_successor_ = false;
    phase_ = Phase::running;
    last_call_ends_.reset();
    has_lost_host_ = false;
    GiveRound given{.to = {}, .round = last_};
    for (const HostRanks& host : last_.table.hosts) {
        parts_.emplace(host.member, Part{});
        given.to.push_back(host.member);
    }
    actions_.emplace_back(std::move(given));
    look_at_newcomers(now);
}

// A host that starts again, or whose container does, is there before the loss of its agent of
// before is known. That one speaks no more; one that does is another agent, now.
void Membership::look_at_ranks(Time now) {
    std::vector<MemberId> refused;
    for (auto& [id, member] : roster_) {
        auto& since = member.waits_for_rank_since;
        const Member* holder = since ? roster_.holder_of_rank(member) : nullptr;
        if (holder == nullptr) since.reset();
        if (!since || now < *since + time_to_be_heard) continue;
        if (holder->contact.heard() <= *since) {
            if (!std::exchange(member.is_known_to_wait, true)) {
                say(name_of(member.size) + " has come again, and waits until " +
                    name_of(holder->size) + ", which has its node rank, is lost");
            }
            continue;
        }
        send(id, RefusedMessage{rank_is_taken(member.size, name_of(holder->size))});
        refused.push_back(id);
    }
    for (const MemberId id : refused) roster_.erase(id);
}

// Their last call runs while the round trains; where no more can come there is none. A round of
// which a host is done already will end by itself.
void Membership::look_at_newcomers(Time now) {
    const auto in_round = last_.table.hosts.size();
    const auto there = roster_.count_eligible(now);
    const auto most = static_cast<std::size_t>(rules_.max_hosts);
    if (parts_.size() != last_.table.hosts.size() || in_round >= most || there <= in_round) {
        last_call_ends_.reset();
        return;
    }
    if (!last_call_ends_) last_call_ends_ = now + rules_.last_call;
    if (there >= most || now >= *last_call_ends_) end_round(StopReason::growth, -1, 0);
}

void Membership::end_round(StopReason reason, int rank, int signal) {
    phase_ = Phase::stopping;
    reason_ = reason;
    last_call_ends_.reset();
    for (const auto& [member, part] : parts_) {
        if (!part.is_lost) send(member, StopRoundMessage{last_.round, reason, rank, signal});
    }
}

void Membership::look_at_parts(Time now) {
    if (phase_ != Phase::running && phase_ != Phase::stopping) return;
    std::erase_if(parts_, [&](const auto& entry) {
        return entry.second.is_lost && entry.second.lease_ends <= now;
    });
    if (parts_.empty()) after_round(now);
}

void Membership::after_round(Time now) {
    if (phase_ == Phase::running) reason_ = StopReason::success;
    const bool is_loss = reason_ == StopReason::loss;
    const bool goes_on = reason_ == StopReason::growth || (is_loss && !rules_.is_static());
    if (!goes_on) {
        phase_ = Phase::judging;
        actions_.emplace_back(AskForJudgement{last_.round, reason_, has_lost_host_});
        return;
    }
    phase_ = Phase::gathering;
    not_before_ = now;
    gathering_ends_ = now + rules_.join_timeout;
    gather(now);
}

void Membership::end(int exit_code) {
    phase_ = Phase::over;
    for (const auto& [id, member] : roster_) send(id, FinishMessage{exit_code});
}

// Losses -----------------------------------------------------------------------------------------

void Membership::look_at_quiet(Time now) {
    std::vector<MemberId> lost;
    for (auto& [id, member] : roster_) {
        const HostContact::News news = member.contact.look(rules_, now);
        if (news == HostContact::News::lost) lost.push_back(id);
        std::string words = words_of(news, name_with_ranks(member.size, last_.table), rules_);
        if (!words.empty()) say(std::move(words));
    }
    for (const MemberId id : lost) lose(id, roster_.find(id)->contact.why_lost(rules_, now), now);
}

void Membership::lose(MemberId id, const std::string& why, Time now) {
    const Member* known = roster_.find(id);
    if (known == nullptr) return;
    const Member member = *known;
    say("lost " + name_with_ranks(member.size, last_.table) + ": " + why);
    send(id, RefusedMessage{"this host counts as lost: " + why});
    losses_.note(member.size.host, now);
    roster_.erase(id);
    if (parts_.contains(id)) lose_part(id, member.contact.heard() + longest_lease(rules_));
    if (phase_ == Phase::running) look_at_newcomers(now);
}

void Membership::lose_part(MemberId member, Time lease_ends) {
    parts_[member] = {.is_lost = true, .lease_ends = lease_ends};
    has_lost_host_ = true;
    const HostRanks* ranks = last_.table.find(member);
    if (phase_ == Phase::running) {
        end_round(StopReason::loss, ranks == nullptr ? -1 : ranks->first_rank, 0);
    }
}

}  // namespace ddp::launcher
