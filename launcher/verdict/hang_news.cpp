#include "launcher/verdict/hang_news.hpp"

#include "base/deadline.hpp"
#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

// Since the verdict was found all that it speaks of has ended.
bool is_over(const Verdict& verdict, std::span<const RankState> ranks) {
    if (verdict.group == 0) return false;
    return std::ranges::none_of(ranks, [&](const RankState& rank) {
        const auto* const group = rank.record.find_group(verdict.group);
        return group != nullptr && group->ended < verdict.sequence;
    });
}

bool is_known(int rank, std::span<const RankState> ranks) {
    return std::ranges::binary_search(ranks, rank, {}, &RankState::rank);
}

// All of whom it speaks are known now, or one of them has gone on: it can be told whether it holds.
bool is_settled(const Verdict& verdict, std::span<const RankState> ranks) {
    const auto known = [&](int rank) { return is_known(rank, ranks); };
    if (std::ranges::all_of(verdict.ranks, known) && std::ranges::all_of(verdict.waiting, known)) {
        return true;
    }
    return verdict.group != 0 && std::ranges::any_of(ranks, [&](const RankState& rank) {
               const auto* const group = rank.record.find_group(verdict.group);
               return group != nullptr && group->ended >= verdict.sequence &&
                      std::ranges::binary_search(verdict.waiting, rank.rank);
           });
}

// Nothing has moved since the verdict, but that times begin anew, as where a host has stood still,
// or that there is more patience: in an hour it would be found again.
bool holds(const Verdict& verdict, std::span<const RankState> ranks, const Patience& usual,
           Verdict::Time now) {
    if (verdict.group == 0) return false;  // of which call it speaks is not known
    const auto later = judge(ranks, usual, now + std::chrono::hours{1});
    return later && later->is_same_as(verdict);
}

}  // namespace

std::vector<std::string> HangNews::consider(Time now, std::span<const RankState> ranks,
                                            const Patience& usual, bool is_held_for_debugger,
                                            const std::optional<Verdict>& by_stacks) {
    std::vector<std::string> texts = note_held(now, ranks);
    ends_job_ = false;
    if (is_held_for_debugger) {
        verdict_.reset();
        for (auto& [rank, held] : held_) held.was_said = false;
        return texts;
    }
    // One by stacks goes with them, whoever is known now.
    const bool has_gone = is_by_stacks_ && !by_stacks;
    if (verdict_ && !has_gone && !is_settled(*verdict_, ranks)) return texts;
    std::optional<Verdict> found = judge(ranks, usual, now);
    is_by_stacks_ = !found && by_stacks;
    if (is_by_stacks_) found = by_stacks;
    if (!found && verdict_ && !has_gone && holds(*verdict_, ranks, usual, now)) {
        postpone(now);
        note_said(now, false);
        return texts;
    }
    const bool is_new = found && (!verdict_ || !found->is_same_as(*verdict_));
    if (is_new) {
        texts.push_back(found->text + what_helps(ranks, found->ranks));
        said_at_ = now;
    } else if (!found && verdict_ && !verdict_->waiting.empty()) {
        texts.push_back("the job goes on: " + name_ranks(verdict_->waiting) + " had waited for " +
                        time_since(verdict_->since, now));
    }
    verdict_ = std::move(found);
    note_said(now, is_new);
    ends_job_ = on_hang_ == OnHang::stop && verdict_ && verdict_->may_end_job &&
                !verdict_->in_debugger && now - said_at_ >= stands_;
    return texts;
}

// When one that has been spoken of goes on: what to say.
std::vector<std::string> HangNews::note_held(Time now, std::span<const RankState> ranks) {
    std::vector<std::string> texts;
    std::map<int, Held> held = held_;  // also of those that are not known now
    for (const RankState& rank : ranks) {
        const auto was = held_.find(rank.rank);
        const bool was_said = was != held_.end() && was->second.was_said;
        if (rank.held_since) {
            // Who reads its stacks may hold it before it was seen to run.
            const Time since = was_said ? was->second.since : *rank.held_since;
            held.insert_or_assign(rank.rank, Held{since, was_said});
            continue;
        }
        held.erase(rank.rank);
        if (!was_said || rank.process.state == 0) continue;
        texts.push_back("rank " + std::to_string(rank.rank) + " (" +
                        (rank.host.empty() ? "" : rank.host + ", ") + "pid " +
                        std::to_string(rank.process.pid) + ") runs again: it was stopped for " +
                        time_since(was->second.since, now));
    }
    held_ = std::move(held);
    return texts;
}

// Who reads the stacks of a rank holds it for a moment, after the verdict.
void HangNews::note_said(Time now, bool is_new) {
    if (!verdict_) return;
    for (auto& [rank, held] : held_) {
        const bool is_told = is_new || now - held.since >= UsualTimes::least;
        const bool is_in = std::ranges::binary_search(verdict_->ranks, rank);
        held.was_said = held.was_said || (is_told && is_in);
    }
}

std::optional<HangFacts> HangNews::facts(std::span<const RankState> ranks, bool any_failed) const {
    std::optional<Verdict> verdict = verdict_;
    if (verdict && !ends_job_ && !ranks.empty() && is_over(*verdict, ranks)) verdict.reset();
    if (!verdict && any_failed) verdict = judge_failed(ranks);
    if (!verdict) return std::nullopt;
    return HangFacts{.kind = to_string(verdict->kind),
                     .ranks = verdict->ranks,
                     .text = verdict->text,
                     .has_ended_job = ends_job_};
}

std::optional<int> HangNews::to_blame() const {
    const bool others_wait =
        verdict_->kind == Verdict::Kind::held || verdict_->kind == Verdict::Kind::missing;
    return others_wait ? std::optional(verdict_->ranks.front()) : std::nullopt;
}

std::string HangNews::words_of_stop(std::chrono::milliseconds grace) {
    return "stopping the job (--on-hang=stop): SIGTERM now, SIGKILL after " +
           base::to_string(grace);
}

}  // namespace ddp::launcher
