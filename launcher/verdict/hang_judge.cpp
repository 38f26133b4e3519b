// One group after the other: its earliest call that some of its ranks wait in, who has not come to
// it, and whether they can. What is waited for in another group is judged there.
#include "launcher/verdict/hang_judge.hpp"

#include "launcher/verdict/verdict_text.hpp"
#include "launcher/verdict/waited_call.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace ddp::launcher {
namespace {

using contract::GroupRecord;
using contract::OperationRecord;
using Kind = Verdict::Kind;
using Time = Verdict::Time;

std::vector<int> without(std::vector<int> numbers, const std::vector<int>& left_out) {
    std::erase_if(numbers, [&](int n) { return std::ranges::binary_search(left_out, n); });
    return numbers;
}

bool is_any_in_debugger(const RankStates& ranks) {
    return std::ranges::any_of(ranks,
                               [](const RankState* rank) { return rank->process.tracer != 0; });
}

// A transfer that a rank waits in, and the other one of it; null: it is not known.
struct WaitedTransfer {
    const RankState* rank;
    const contract::TransferRecord* transfer;
    const RankState* peer;

    // The peer waits for this one, too: it is the network's turn.
    bool is_matched() const {
        return std::ranges::any_of(peer->record.groups, [&](const GroupRecord& group) {
            return group.transfer && group.transfer->peer == rank->rank &&
                   group.transfer->sends != transfer->sends;
        });
    }
};

std::vector<WaitedTransfer> waited_transfers(std::span<const RankState> ranks) {
    std::vector<WaitedTransfer> waited;
    for (const RankState& rank : ranks) {
        for (const GroupRecord& group : rank.record.groups) {
            if (!group.transfer || rank.has_ended) continue;
            const int number = group.transfer->peer;
            const auto peer = std::ranges::lower_bound(ranks, number, {}, &RankState::rank);
            const bool is_known = peer != ranks.end() && peer->rank == number;
            waited.push_back({&rank, &*group.transfer, is_known ? &*peer : nullptr});
        }
    }
    return waited;
}

class Judge {
public:
    Judge(std::span<const RankState> ranks, const Patience& usual, Time now)
        : ranks_(ranks),
          usual_(usual),
          now_(now),
          waiting_(all_who_wait(ranks)),
          transfers_(waited_transfers(ranks)) {}

    std::optional<Verdict> run() {
        for (const auto& [id, members] : groups_of(ranks_)) {
            if (auto call = waited_call(members)) calls_.push_back(std::move(*call));
        }
        std::ranges::sort(calls_, {}, &WaitedCall::since);
        using Finder = std::optional<Verdict> (Judge::*)(const WaitedCall&) const;
        for (const Finder find : {&Judge::find_mismatch, &Judge::find_held, &Judge::find_absent}) {
            for (const WaitedCall& call : calls_) {
                if (auto verdict = (this->*find)(call)) return verdict;
            }
        }
        if (auto verdict = find_absent_peer()) return verdict;
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
    std::optional<Verdict> find_absent_peer() const;
    std::optional<Verdict> find_absent_at_start() const;
    std::optional<Verdict> find_held_by_itself() const;
    std::optional<Verdict> find_crossed() const;
    std::optional<Verdict> find_stuck(const WaitedCall& call) const;

    bool is_held(const RankState& rank) const {
        return !rank.has_ended && rank.held_since && now_ - *rank.held_since >= UsualTimes::least;
    }
    Patience::Duration patience(const WaitedCall& call) const {
        const Patience::Duration usual = usual_.patience(*call.call);
        if (!call.on_gpu || usual_.is_taught(*call.call)) return usual;
        return std::max<Patience::Duration>(usual, patience_with_untaught_gpu);
    }
    bool is_late(const RankState& rank, Patience::Duration usual) const;
    Verdict verdict(Kind kind, const RankStates& to_blame, const WaitedCall& call) const;
    std::string wait_in(const WaitedCall& call, const char* since_when) const;

    std::span<const RankState> ranks_;
    const Patience& usual_;
    Time now_;
    std::vector<int> waiting_;
    std::vector<WaitedCall> calls_;
    std::vector<WaitedTransfer> transfers_;
};

Verdict Judge::verdict(Kind kind, const RankStates& to_blame, const WaitedCall& call) const {
    Verdict verdict{.kind = kind,
                    .ranks = numbers_of(to_blame),
                    .group = call.group,
                    .sequence = call.sequence,
                    .since = call.since,
                    .in_debugger = is_any_in_debugger(to_blame)};
    verdict.waiting = without(waiting_, verdict.ranks);
    return verdict;
}

// The longest since its last call: a rank that was late for that one is not late for this one yet.
bool Judge::is_late(const RankState& rank, Patience::Duration usual) const {
    Time free_since = rank.record.joined;
    for (const OperationRecord& operation : rank.record.operations) {
        if (operation.ended) free_since = std::max(free_since, *operation.ended);
    }
    if (rank.record.is_at_checkpoint) {
        usual = std::max<Patience::Duration>(usual, patience_with_checkpoint);
    }
    return now_ - free_since >= usual;
}

// Where not all ranks are known, nobody is in the minority.
std::optional<Verdict> Judge::find_mismatch(const WaitedCall& call) const {
    std::vector<OwnCall> calls;
    for (const RankStates& some : {call.arrived, call.beyond}) {
        for (const RankState* const rank : some) {
            const auto* const own = rank->record.find_operation(call.group, call.sequence);
            if (own != nullptr) calls.push_back({rank, own});
        }
    }
    const Difference different = difference_of(calls);
    if (different.calls.empty() || now_ - different.last_started < time_for_backend) {
        return std::nullopt;
    }
    RankStates all = call.arrived;
    all.insert(all.end(), call.beyond.begin(), call.beyond.end());
    Verdict result = verdict(Kind::mismatch, call.all_are_known ? different.to_blame : all, call);
    result.text = "the ranks have called different things, and wait for each other since " +
                  time_since(call.since, now_) + ":" + different.calls;
    return result;
}

std::string Judge::wait_in(const WaitedCall& call, const char* since_when) const {
    return contract::describe(*call.call) + since_when + time_since(call.since, now_);
}

std::optional<Verdict> Judge::find_held(const WaitedCall& call) const {
    RankStates held;
    const bool is_long = now_ - call.since >= usual_.patience(*call.call);
    for (const RankStates& some : {call.missing, call.arrived}) {
        std::ranges::copy_if(some, std::back_inserter(held), [&](const RankState* rank) {
            return is_held(*rank) || (is_long && rank->process.is_held());
        });
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
    const bool never_come = call.missing.empty() && call.elsewhere.empty() && call.all_are_known;
    if (now_ - call.since < (never_come ? UsualTimes::least : patience(call))) return std::nullopt;
    const bool all_late = std::ranges::all_of(call.missing, [&](const RankState* rank) {
        return is_late(*rank, usual_.time_before(*call.call));
    });
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
    Verdict result = verdict(Kind::missing, call.missing, call);
    result.text = who_holds_up_whom(result.ranks, result.waiting) + ": " +
                  (result.ranks.size() == 1 ? "it has" : "they have") + " not called " +
                  wait_in(call, ", waited in for ") + what_they_do(call.missing, now_);
    return result;
}

// The other side of a transfer neither waits for anything nor comes to it.
std::optional<Verdict> Judge::find_absent_peer() const {
    for (const WaitedTransfer& one : transfers_) {
        if (one.peer == nullptr || one.peer->has_ended || waits(*one.peer)) continue;
        const bool held = is_held(*one.peer);
        const Patience::Duration patience =
            held ? UsualTimes::least : usual_.patience(*one.transfer);
        if (now_ - one.transfer->since < patience) continue;
        if (!held && !is_late(*one.peer, patience)) continue;
        Verdict result{.kind = held ? Kind::held : Kind::missing,
                       .ranks = {one.peer->rank},
                       .since = one.transfer->since};
        result.waiting = without(waiting_, result.ranks);
        result.in_debugger = is_any_in_debugger({one.peer});
        result.text = who_holds_up_whom(result.ranks, result.waiting) + ", in " +
                      contract::describe(*one.transfer) + " since " +
                      time_since(result.since, now_) + what_they_do({one.peer}, now_);
        return result;
    }
    return std::nullopt;
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
    const Patience::Duration patience =
        any_held ? Patience::Duration(UsualTimes::least)
                 : std::max<Patience::Duration>(patience_with_start, 3 * (since - first_start));
    if (now_ - since < patience) return std::nullopt;
    if (any_held) std::erase_if(absent, [&](const RankState* rank) { return !is_held(*rank); });
    Verdict result{.kind = any_held ? Kind::held : Kind::missing,
                   .ranks = numbers_of(absent),
                   .waiting = waiting,
                   .since = since,
                   .in_debugger = is_any_in_debugger(absent)};
    result.text = who_holds_up_whom(result.ranks, waiting) + ": " +
                  (absent.size() == 1 ? "it has" : "they have") +
                  " not called init_process_group, waited in for " + time_since(since, now_) +
                  what_they_do(absent, now_);
    return result;
}

// Whatever its program is, and whether anybody waits or not. Who holds one in a debugger knows it.
std::optional<Verdict> Judge::find_held_by_itself() const {
    RankStates held;
    for (const RankState& rank : ranks_) {
        if (is_held(rank) && rank.process.tracer == 0) held.push_back(&rank);
    }
    if (held.empty()) return std::nullopt;
    Verdict result{.kind = Kind::held, .ranks = numbers_of(held), .since = *held[0]->held_since};
    result.text = name_ranks(result.ranks) + (held.size() == 1 ? " does" : " do") +
                  " not run since " + time_since(result.since, now_) + what_they_do(held, now_);
    return result;
}

// All who have not come wait themselves, and for nobody who could come.
std::optional<Verdict> Judge::find_crossed() const {
    RankStates crossed;
    Verdict result{.kind = Kind::crossed, .waiting = waiting_, .since = now_};
    for (const WaitedCall& call : calls_) {
        if (!call.missing.empty() || !call.gone.empty() || !call.all_are_known) return std::nullopt;
        if (call.elsewhere.empty()) continue;
        const bool any_unknown = std::ranges::any_of(
            call.elsewhere, [](const RankState* rank) { return rank->record.waits_unrecorded; });
        if (any_unknown) return std::nullopt;
        if (now_ - call.since < usual_.patience(*call.call)) return std::nullopt;
        crossed.insert(crossed.end(), call.elsewhere.begin(), call.elsewhere.end());
        if (call.since >= result.since) continue;
        result.since = call.since;
        result.group = call.group;
        result.sequence = call.sequence;
    }
    for (const WaitedTransfer& one : transfers_) {
        if (one.peer == nullptr || !waits(*one.peer)) return std::nullopt;
        if (one.is_matched()) continue;
        if (now_ - one.transfer->since < usual_.patience(*one.transfer)) return std::nullopt;
        crossed.insert(crossed.end(), {one.rank, one.peer});
        result.since = std::min(result.since, one.transfer->since);
    }
    if (crossed.empty()) return std::nullopt;
    std::ranges::sort(crossed, {}, &RankState::rank);
    crossed.erase(std::unique(crossed.begin(), crossed.end()), crossed.end());
    result.ranks = numbers_of(crossed);
    result.text = "ranks wait for each other, since " + time_since(result.since, now_) +
                  where_they_are(crossed);
    return result;
}

std::optional<Verdict> Judge::find_stuck(const WaitedCall& call) const {
    const bool all_came = call.missing.empty() && call.elsewhere.empty() && call.gone.empty();
    // More bytes take longer than those that were usual.
    constexpr double bytes_per_second = 1e8;
    constexpr double most_seconds = 3600;
    const double bytes = static_cast<double>(call.call->call.elements) *
                         static_cast<double>(size_of(call.call->call.dtype) * call.members());
    const auto for_bytes = std::chrono::duration_cast<Patience::Duration>(
        std::chrono::duration<double>(std::min(bytes / bytes_per_second, most_seconds)));
    const Patience::Duration least =
        call.on_gpu ? patience_with_untaught_gpu : std::chrono::seconds{10};
    const auto patience = std::max(usual_.patience(*call.call), least) + for_bytes;
    if (!all_came || !call.all_are_known || now_ - call.last_came < patience) return std::nullopt;
    Verdict result = verdict(Kind::stuck, call.arrived, call);
    result.waiting = result.ranks;
    result.text = name_ranks(result.ranks) + (result.ranks.size() == 1 ? " is" : " are") + " in " +
                  wait_in(call, ", since ") + ", and nobody is missing" +
                  (call.on_gpu ? "; a kernel that was launched before it may not end" : "");
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
    const auto groups = groups_of(ranks);
    std::map<std::pair<std::uint32_t, std::uint64_t>, std::vector<OwnCall>> operations;
    for (const RankState& rank : ranks) {
        for (const OperationRecord& one : rank.record.operations) {
            if (!groups.contains(one.group)) continue;
            operations[{one.group, one.sequence}].push_back({&rank, &one});
        }
    }
    for (const auto& [operation, calls] : operations) {
        const Difference different = difference_of(calls);
        if (different.calls.empty()) continue;
        return Verdict{.kind = Kind::mismatch,
                       .ranks = numbers_of(different.to_blame),
                       .group = operation.first,
                       .sequence = operation.second,
                       .since = different.last_started,
                       .text = "the ranks have called different things:" + different.calls};
    }
    return std::nullopt;
}

std::optional<Verdict> judge(std::span<const RankState> ranks, const Patience& usual, Time now) {
    return Judge(ranks, usual, now).run();
}

}  // namespace ddp::launcher
