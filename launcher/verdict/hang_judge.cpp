// One group after the other: its earliest call that some of its ranks wait in, who has not come to
// it, and whether they can. What is waited for in another group is judged there.
#include "launcher/verdict/hang_judge.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace ddp::launcher {
namespace {

using contract::GroupRecord;
using contract::OperationRecord;
using Kind = Verdict::Kind;
using Time = Verdict::Time;

bool waits_elsewhere(const RankState& rank, std::uint32_t group) {
    return std::ranges::any_of(rank.record.groups, [&](const GroupRecord& one) {
        return one.id != group && one.is_waiting();
    });
}

std::vector<int> numbers_of(const RankStates& ranks) {
    std::vector<int> numbers;
    numbers.reserve(ranks.size());
    for (const RankState* const rank : ranks) numbers.push_back(rank->rank);
    std::ranges::sort(numbers);
    return numbers;
}

std::vector<int> all_who_wait(std::span<const RankState> ranks) {
    std::vector<int> numbers;
    for (const RankState& rank : ranks) {
        const bool waits =
            !rank.has_ended && std::ranges::any_of(rank.record.groups, &GroupRecord::is_waiting);
        if (waits) numbers.push_back(rank.rank);
    }
    return numbers;
}

std::vector<int> without(std::vector<int> numbers, const std::vector<int>& left_out) {
    std::erase_if(numbers, [&](int n) { return std::ranges::binary_search(left_out, n); });
    return numbers;
}

Time middle_of(std::vector<Time> times) {
    const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
    std::ranges::nth_element(times, middle);
    return *middle;
}

// A group's earliest call that is waited in, and where its ranks are.
struct WaitedCall {
    std::uint32_t group = 0;
    std::uint64_t sequence = 0;
    bool all_are_known = false;             // its ranks: they are of this host, and have recorded
    const OperationRecord* call = nullptr;  // as one of those who wait called it
    RankStates arrived = {};
    RankStates beyond = {};     // have been in it
    RankStates elsewhere = {};  // have not come, as they wait in other groups
    RankStates missing = {};    // have not come, and wait for nobody
    RankStates gone = {};       // never will: they have ended, or left the group, or failed
    Time since = {};            // half of those who wait have
    Time last_came = {};

    std::size_t members() const {
        return arrived.size() + beyond.size() + elsewhere.size() + missing.size() + gone.size();
    }
};

void add_member(WaitedCall& call, const RankState& rank, const GroupRecord& group) {
    if (group.is_waiting() && !rank.has_ended) {
        (group.started == call.sequence ? call.arrived : call.beyond).push_back(&rank);
    } else if (group.ended >= call.sequence) {
        call.beyond.push_back(&rank);
    } else if (rank.has_ended || group.end != contract::GroupEnd::none) {
        call.gone.push_back(&rank);
    } else if (waits_elsewhere(rank, group.id)) {
        call.elsewhere.push_back(&rank);
    } else {
        call.missing.push_back(&rank);
    }
}

// Nothing where nobody waits in the group, or what they wait in is not recorded any more.
std::optional<WaitedCall> waited_call(std::uint32_t id, std::span<const RankState> ranks) {
    WaitedCall call{.group = id, .sequence = UINT64_MAX};
    for (const RankState& rank : ranks) {
        const GroupRecord* const group = rank.record.find_group(id);
        if (group != nullptr && group->is_waiting() && !rank.has_ended) {
            call.sequence = std::min(call.sequence, group->started);
        }
    }
    if (call.sequence == UINT64_MAX) return std::nullopt;
    int size = 0;
    for (const RankState& rank : ranks) {
        const GroupRecord* const group = rank.record.find_group(id);
        if (group == nullptr) continue;
        size = group->size;
        add_member(call, rank, *group);
    }
    std::vector<Time> times;
    for (const RankState* const rank : call.arrived) {
        const OperationRecord* const operation = rank->record.find_operation(id, call.sequence);
        if (operation == nullptr) continue;
        times.push_back(operation->started);
        call.last_came = std::max(call.last_came, operation->started);
        if (call.call == nullptr) call.call = operation;
    }
    if (times.empty()) return std::nullopt;
    call.since = middle_of(std::move(times));
    call.all_are_known = std::cmp_equal(call.members(), size);
    return call;
}

// What ranks have called as one and the same operation.
struct Difference {
    RankStates to_blame = {};  // who called what fewest did; of equals all
    std::string calls = {};    // a line for each call; empty: they are the same
    Time last_started = {};
};

Difference difference_of(const RankStates& ranks, std::uint32_t group, std::uint64_t sequence) {
    struct Party {
        const OperationRecord* call;
        RankStates ranks;
    };
    std::vector<Party> parties;
    Difference difference;
    for (const RankState* const rank : ranks) {
        const OperationRecord* const own = rank->record.find_operation(group, sequence);
        if (own == nullptr) continue;
        difference.last_started = std::max(difference.last_started, own->started);
        const auto same = std::ranges::find_if(
            parties, [&](const Party& party) { return party.call->call == own->call; });
        if (same != parties.end()) {
            same->ranks.push_back(rank);
        } else {
            parties.push_back({own, {rank}});
        }
    }
    if (parties.size() < 2) return difference;
    std::ranges::stable_sort(parties, {}, [](const Party& party) { return party.ranks.size(); });
    const std::size_t most = parties.back().ranks.size();
    const bool are_equal = parties.front().ranks.size() == most;
    for (const Party& party : parties) {
        if (are_equal || party.ranks.size() < most) {
            difference.to_blame.insert(difference.to_blame.end(), party.ranks.begin(),
                                       party.ranks.end());
        }
        difference.calls +=
            "\n  " + name_ranks(numbers_of(party.ranks)) + ": " + contract::describe(*party.call);
    }
    return difference;
}

class Judge {
public:
    Judge(std::span<const RankState> ranks, const UsualTimes& usual, Time now)
        : ranks_(ranks), usual_(usual), now_(now), waiting_(all_who_wait(ranks)) {}

    std::optional<Verdict> run() {
        std::map<std::uint32_t, int> groups;
        for (const RankState& rank : ranks_) {
            for (const GroupRecord& group : rank.record.groups) ++groups[group.id];
        }
        for (const auto& [id, members] : groups) {
            if (auto call = waited_call(id, ranks_)) calls_.push_back(std::move(*call));
        }
        std::ranges::sort(calls_, {}, &WaitedCall::since);
        using Finder = std::optional<Verdict> (Judge::*)(const WaitedCall&) const;
        for (const Finder find : {&Judge::find_mismatch, &Judge::find_held, &Judge::find_absent}) {
            for (const WaitedCall& call : calls_) {
                if (auto verdict = (this->*find)(call)) return verdict;
            }
        }
        if (auto verdict = find_absent_at_start()) return verdict;
        if (auto verdict = find_held_by_itself()) return verdict;
        if (auto verdict = find_crossed()) return verdict;
        for (const WaitedCall& call : calls_) {
            if (auto verdict = find_stuck(call)) return verdict;
        }
        return std::nullopt;
    }

private:
    std::optional<Verdict> find_mismatch(const WaitedCall& call) const;
    std::optional<Verdict> find_held(const WaitedCall& call) const;
    std::optional<Verdict> find_absent(const WaitedCall& call) const;
    std::optional<Verdict> find_absent_at_start() const;
    std::optional<Verdict> find_held_by_itself() const;
    std::optional<Verdict> find_crossed() const;
    std::optional<Verdict> find_stuck(const WaitedCall& call) const;

    bool is_held(const RankState& rank) const {
        return !rank.has_ended && rank.held_since && now_ - *rank.held_since >= UsualTimes::least;
    }
    bool is_late(const RankState& rank, const OperationRecord& call) const;
    Verdict verdict(Kind kind, const RankStates& to_blame, const WaitedCall& call) const;
    std::string wait_in(const WaitedCall& call, const char* since_when) const;

    std::span<const RankState> ranks_;
    const UsualTimes& usual_;
    Time now_;
    std::vector<int> waiting_;
    std::vector<WaitedCall> calls_;
};

Verdict Judge::verdict(Kind kind, const RankStates& to_blame, const WaitedCall& call) const {
    Verdict verdict{.kind = kind,
                    .ranks = numbers_of(to_blame),
                    .group = call.group,
                    .sequence = call.sequence,
                    .since = call.since};
    verdict.waiting = without(waiting_, verdict.ranks);
    return verdict;
}

// The longest since its last call: a rank that was late for that one is not late for this one yet.
bool Judge::is_late(const RankState& rank, const OperationRecord& call) const {
    Time free_since = rank.record.joined;
    for (const OperationRecord& operation : rank.record.operations) {
        if (operation.ended) free_since = std::max(free_since, *operation.ended);
    }
    return now_ - free_since >= usual_.time_before(call);
}

std::optional<Verdict> Judge::find_mismatch(const WaitedCall& call) const {
    RankStates been = call.arrived;
    been.insert(been.end(), call.beyond.begin(), call.beyond.end());
    const Difference different = difference_of(been, call.group, call.sequence);
    if (different.calls.empty() || now_ - different.last_started < time_for_backend) {
        return std::nullopt;
    }
    Verdict result = verdict(Kind::mismatch, different.to_blame, call);
    result.text = "the ranks have called different things, and wait for each other since " +
                  time_since(call.since, now_) + ":" + different.calls;
    return result;
}

std::string Judge::wait_in(const WaitedCall& call, const char* since_when) const {
    return contract::describe(*call.call) + since_when + time_since(call.since, now_);
}

std::optional<Verdict> Judge::find_held(const WaitedCall& call) const {
    RankStates held;
    for (const RankStates& some : {call.missing, call.arrived}) {
        std::ranges::copy_if(some, std::back_inserter(held),
                             [&](const RankState* rank) { return is_held(*rank); });
    }
    if (held.empty() || now_ - call.since < UsualTimes::least) return std::nullopt;
    Verdict result = verdict(Kind::held, held, call);
    if (result.waiting.empty()) return std::nullopt;
    result.text = who_holds_up_whom(result.ranks, result.waiting) + ", in " +
                  wait_in(call, " since ") + what_they_do(held, now_);
    return result;
}

std::optional<Verdict> Judge::find_absent(const WaitedCall& call) const {
    if (call.missing.empty() && call.gone.empty()) return std::nullopt;
    const bool never_come = call.missing.empty() && call.elsewhere.empty();
    const UsualTimes::Duration patience =
        never_come ? UsualTimes::least : usual_.patience(*call.call);
    if (now_ - call.since < patience) return std::nullopt;
    const bool all_late = std::ranges::all_of(
        call.missing, [&](const RankState* rank) { return is_late(*rank, *call.call); });
    if (!all_late) return std::nullopt;
    if (never_come) {
        Verdict result = verdict(Kind::ahead, call.arrived, call);
        result.waiting = result.ranks;
        result.text = name_ranks(result.ranks) + " alone " +
                      (result.ranks.size() == 1 ? "has" : "have") + " called " +
                      wait_in(call, ", since ") + "; " + name_ranks(numbers_of(call.gone)) +
                      (call.gone.size() == 1 ? " never will: it has" : " never will: they have") +
                      " left the group, or failed" + what_they_do(call.gone, now_);
        return result;
    }
    if (call.missing.empty()) return std::nullopt;
    const bool few_wait = call.all_are_known && 2 * call.arrived.size() < call.members();
    if (few_wait && call.beyond.empty() && call.elsewhere.empty()) {
        Verdict result = verdict(Kind::ahead, call.arrived, call);
        result.waiting = result.ranks;
        result.text = name_ranks(result.ranks) + " alone " +
                      (result.ranks.size() == 1 ? "has" : "have") + " called " +
                      wait_in(call, ", since ") + what_they_do(call.missing, now_);
        return result;
    }
    Verdict result = verdict(Kind::missing, call.missing, call);
    result.text = who_holds_up_whom(result.ranks, result.waiting) + ": " +
                  (result.ranks.size() == 1 ? "it has" : "they have") + " not called " +
                  wait_in(call, ", waited in for ") + what_they_do(call.missing, now_);
    return result;
}

// init_process_group: some wait in it for others who have not called it.
std::optional<Verdict> Judge::find_absent_at_start() const {
    RankStates absent;
    std::vector<Time> joined;
    std::vector<int> waiting;
    Time first_start = Time::max();
    for (const RankState& rank : ranks_) {
        if (rank.has_ended) continue;
        first_start = std::min(first_start, rank.started);
        if (rank.record.pid == 0) {
            absent.push_back(&rank);
        } else if (rank.record.phase == contract::Phase::joining) {
            joined.push_back(rank.record.joined);
            waiting.push_back(rank.rank);
        }
    }
    if (absent.empty() || joined.empty()) return std::nullopt;
    const Time since = middle_of(std::move(joined));
    const bool any_held =
        std::ranges::any_of(absent, [&](const RankState* rank) { return is_held(*rank); });
    const UsualTimes::Duration patience =
        any_held ? UsualTimes::Duration(UsualTimes::least)
                 : std::max<UsualTimes::Duration>(patience_with_start, 3 * (since - first_start));
    if (now_ - since < patience) return std::nullopt;
    if (any_held) std::erase_if(absent, [&](const RankState* rank) { return !is_held(*rank); });
    Verdict result{.kind = any_held ? Kind::held : Kind::missing,
                   .ranks = numbers_of(absent),
                   .waiting = waiting,
                   .since = since};
    result.text = who_holds_up_whom(result.ranks, waiting) + ": " +
                  (absent.size() == 1 ? "it has" : "they have") +
                  " not called init_process_group, waited in for " + time_since(since, now_) +
                  what_they_do(absent, now_);
    return result;
}

// Whatever its program is, and whether anybody waits or not.
std::optional<Verdict> Judge::find_held_by_itself() const {
    RankStates held;
    for (const RankState& rank : ranks_) {
        if (is_held(rank)) held.push_back(&rank);
    }
    if (held.empty()) return std::nullopt;
    Verdict result{.kind = Kind::held, .ranks = numbers_of(held), .since = *held[0]->held_since};
    result.text = name_ranks(result.ranks) + (held.size() == 1 ? " does" : " do") +
                  " not run since " + time_since(result.since, now_) + what_they_do(held, now_);
    return result;
}

// All who have not come to a call wait in others, which nobody else holds up.
std::optional<Verdict> Judge::find_crossed() const {
    RankStates crossed;
    const WaitedCall* longest = nullptr;
    for (const WaitedCall& call : calls_) {
        if (!call.missing.empty() || !call.gone.empty() || !call.all_are_known) return std::nullopt;
        if (call.elsewhere.empty()) continue;
        if (now_ - call.since < usual_.patience(*call.call)) return std::nullopt;
        crossed.insert(crossed.end(), call.elsewhere.begin(), call.elsewhere.end());
        if (longest == nullptr) longest = &call;
    }
    if (longest == nullptr) return std::nullopt;
    std::ranges::sort(crossed, {}, &RankState::rank);
    const auto twice = std::ranges::unique(crossed);
    crossed.erase(twice.begin(), twice.end());
    Verdict result = verdict(Kind::crossed, crossed, *longest);
    result.waiting = waiting_;
    result.text = "ranks wait for each other in different groups, since " +
                  time_since(longest->since, now_) + where_they_are(crossed);
    return result;
}

std::optional<Verdict> Judge::find_stuck(const WaitedCall& call) const {
    const bool all_came = call.missing.empty() && call.elsewhere.empty() && call.gone.empty();
    // More bytes take longer than those that were usual.
    constexpr double bytes_per_second = 1e8;
    constexpr double most_seconds = 3600;
    const double bytes = static_cast<double>(call.call->call.elements) *
                         static_cast<double>(size_of(call.call->call.dtype) * call.members());
    const auto for_bytes = std::chrono::duration_cast<UsualTimes::Duration>(
        std::chrono::duration<double>(std::min(bytes / bytes_per_second, most_seconds)));
    constexpr UsualTimes::Duration least = std::chrono::seconds{10};
    const auto patience = std::max(usual_.patience(*call.call), least) + for_bytes;
    if (!all_came || !call.all_are_known || now_ - call.last_came < patience) return std::nullopt;
    Verdict result = verdict(Kind::stuck, call.arrived, call);
    result.waiting = result.ranks;
    result.text = name_ranks(result.ranks) + (result.ranks.size() == 1 ? " is" : " are") + " in " +
                  wait_in(call, ", since ") + ", and nobody is missing";
    return result;
}

}  // namespace

const char* to_string(Kind kind) noexcept {
    switch (kind) {
        case Kind::held:
            return "held";
        case Kind::missing:
            return "missing";
        case Kind::ahead:
            return "ahead";
        case Kind::mismatch:
            return "mismatch";
        case Kind::crossed:
            return "crossed";
        case Kind::stuck:
            return "stuck";
    }
    return "unknown";
}

std::optional<Verdict> judge_failed(std::span<const RankState> ranks) {
    RankStates all;
    std::set<std::pair<std::uint32_t, std::uint64_t>> operations;
    for (const RankState& rank : ranks) {
        all.push_back(&rank);
        for (const OperationRecord& one : rank.record.operations) {
            operations.emplace(one.group, one.sequence);
        }
    }
    for (const auto& [group, sequence] : operations) {
        const Difference different = difference_of(all, group, sequence);
        if (different.calls.empty()) continue;
        return Verdict{.kind = Kind::mismatch,
                       .ranks = numbers_of(different.to_blame),
                       .group = group,
                       .sequence = sequence,
                       .since = different.last_started,
                       .text = "the ranks have called different things:" + different.calls};
    }
    return std::nullopt;
}

std::optional<Verdict> judge(std::span<const RankState> ranks, const UsualTimes& usual, Time now) {
    return Judge(ranks, usual, now).run();
}

}  // namespace ddp::launcher
