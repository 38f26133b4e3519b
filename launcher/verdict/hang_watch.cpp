#include "launcher/verdict/hang_watch.hpp"

#include "launcher/verdict/verdict_text.hpp"

#include <algorithm>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

// A rank that waits for so long may be about to wait for too long.
constexpr milliseconds long_enough{200};
// A look that comes later than that has not been for a reason that stops others, too.
constexpr milliseconds much_later{250};

bool waits_for_long(const RankState& rank, Verdict::Time now) {
    const contract::RankRecord& record = rank.record;
    if (record.phase == contract::Phase::joining) return now - record.joined >= long_enough;
    const bool in_transfer =
        std::ranges::any_of(record.groups, [&](const contract::GroupRecord& group) {
            return group.transfer && now - group.transfer->since >= long_enough;
        });
    if (in_transfer) return true;
    return std::ranges::any_of(record.operations, [&](const contract::OperationRecord& one) {
        return !one.ended && now - one.started >= long_enough;
    });
}

// What has begun before it, and may go on, begins then.
void begin_after(Verdict::Time time, contract::RankRecord& record) {
    record.joined = std::max(record.joined, time);
    for (contract::OperationRecord& operation : record.operations) {
        if (operation.ended) {
            operation.ended = std::max(*operation.ended, time);
        } else {
            operation.started = std::max(operation.started, time);
        }
    }
    for (contract::GroupRecord& group : record.groups) {
        if (group.transfer) group.transfer->since = std::max(group.transfer->since, time);
    }
}

// Since the verdict was found all that it speaks of has ended.
bool is_over(const Verdict& verdict, std::span<const RankState> ranks) {
    if (verdict.group == 0) return false;
    return std::ranges::none_of(ranks, [&](const RankState& rank) {
        const auto* const group = rank.record.find_group(verdict.group);
        return group != nullptr && group->ended < verdict.sequence;
    });
}

}  // namespace

void HangWatch::begin(Time now) {
    if (on_hang_ != OnHang::ignore) next_ = now + interval_at_start;
}

std::vector<std::string> HangWatch::look(Time now, const contract::ControlRegion& pages,
                                         std::span<const Worker> workers, int first_rank) {
    if (!next_ || now < *next_) return {};
    if (now - *next_ > much_later) resumed_ = now;
    memory_.resize(workers.size());
    std::vector<RankState> ranks = read(pages, workers, first_rank);
    bool any_joined = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        learn(now, ranks[i].record, memory_[i]);
        any_joined = any_joined || ranks[i].record.pid != 0;
    }
    usual_.settle();
    next_ = now + (any_joined ? interval : interval_at_start);
    const bool any_held = std::ranges::any_of(
        memory_, [](const Memory& memory) { return memory.held_since.has_value(); });
    const bool any_waits = std::ranges::any_of(
        ranks, [&](const RankState& rank) { return waits_for_long(rank, now); });
    std::vector<std::string> said;
    if (std::exchange(looks_at_processes_, false) || any_held || any_waits) {
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            look_at_process(now, ranks[i], workers[i], memory_[i]);
            std::string goes_on = note_held(now, ranks[i], memory_[i]);
            if (!goes_on.empty()) said.push_back(std::move(goes_on));
            if (memory_[i].held_since) next_ = std::min(*next_, now + interval);
        }
    }
    // Who holds itself for a debugger has been spoken of, and is waited for.
    if (std::ranges::any_of(workers, &Worker::stopped_for_debugger)) {
        verdict_.reset();
        return said;
    }
    for (std::string& text : news(now, judge(ranks, usual_, now))) said.push_back(std::move(text));
    return said;
}

std::vector<RankState> HangWatch::read(const contract::ControlRegion& pages,
                                       std::span<const Worker> workers, int first_rank) const {
    std::vector<RankState> ranks;
    for (const Worker& worker : workers) {
        RankState& state = ranks.emplace_back(
            RankState{.rank = first_rank + worker.local_rank,
                      .has_ended = !worker.running(),
                      .started = worker.started_at,
                      .record = contract::read_page(pages.page(worker.local_rank))});
        begin_after(resumed_, state.record);
    }
    return ranks;
}

std::optional<HangFacts> HangWatch::facts(const contract::ControlRegion& pages,
                                          std::span<const Worker> workers, int first_rank) const {
    const std::vector<RankState> ranks = read(pages, workers, first_rank);
    const bool any_failed = std::ranges::any_of(workers, [](const Worker& worker) {
        return worker.ended && !worker.ended->ok() && worker.stopped_with == 0;
    });
    std::optional<Verdict> verdict = verdict_;
    if (verdict && !ends_job_ && is_over(*verdict, ranks)) verdict.reset();
    if (!verdict && any_failed) verdict = judge_failed(ranks);
    if (!verdict) return std::nullopt;
    return HangFacts{.kind = to_string(verdict->kind),
                     .ranks = verdict->ranks,
                     .text = verdict->text,
                     .has_ended_job = ends_job_};
}

std::optional<int> HangWatch::to_blame() const {
    const bool others_wait =
        verdict_->kind == Verdict::Kind::held || verdict_->kind == Verdict::Kind::missing;
    return others_wait ? std::optional(verdict_->ranks.front()) : std::nullopt;
}

void HangWatch::learn(Time now, const contract::RankRecord& record, Memory& memory) {
    for (const contract::OperationRecord& operation : record.operations) {
        if (operation.serial <= memory.seen) continue;
        if (!operation.ended) break;  // and what comes after it, in its turn
        const bool follows = operation.serial == memory.seen + 1;
        // A standstill of the host teaches nothing.
        const bool was_still = operation.started < resumed_ && *operation.ended >= resumed_;
        if (!was_still) usual_.note(operation, follows ? memory.free_since : std::nullopt);
        memory.seen = operation.serial;
        memory.free_since = operation.ended;
    }
    std::vector<contract::TransferRecord> transfers;
    for (const contract::GroupRecord& group : record.groups) {
        if (group.transfer) transfers.push_back(*group.transfer);
    }
    for (const contract::TransferRecord& before : memory.transfers) {
        const bool waits_still =
            std::ranges::any_of(transfers, [&](const contract::TransferRecord& one) {
                return one.since == before.since && one.line == before.line;
            });
        if (!waits_still && before.since >= resumed_) usual_.note(before, now - before.since);
    }
    memory.transfers = std::move(transfers);
}

void HangWatch::look_at_process(Time now, RankState& state, const Worker& worker, Memory& memory) {
    if (state.has_ended) return;
    const pid_t pid = process_of_rank(state.record.pid, worker.process.pid());
    state.process = launcher::look_at_process(pid);
    if (state.process.state == 'Z') state.process.state = 0;  // its pidfd tells more
    const milliseconds used = state.process.cpu_time - memory.cpu_time;
    if (memory.looked_at && now - *memory.looked_at >= interval / 2) {
        memory.cpu_share = std::chrono::duration<double>(used) / (now - *memory.looked_at);
    }
    // A debugger that holds it from time to time does not hold it.
    if (state.process.is_held() && used > milliseconds{0}) memory.held_since.reset();
    memory.looked_at = now;
    memory.cpu_time = state.process.cpu_time;
    state.cpu_share = memory.cpu_share;
}

// Remembers since when it is held. When one that has been spoken of goes on: what to say.
std::string HangWatch::note_held(Time now, RankState& state, Memory& memory) const {
    std::string text;
    if (state.process.is_held()) {
        if (!memory.held_since) memory.held_since = now;
    } else if (memory.held_since) {
        const bool was_said = verdict_ && std::ranges::binary_search(verdict_->ranks, state.rank);
        if (was_said && state.process.state != 0) {
            text = "rank " + std::to_string(state.rank) + " (pid " +
                   std::to_string(state.process.pid) + ") runs again: it was stopped for " +
                   time_since(*memory.held_since, now);
        }
        memory.held_since.reset();
    }
    state.held_since = memory.held_since;
    return text;
}

std::vector<std::string> HangWatch::news(Time now, std::optional<Verdict> found) {
    std::vector<std::string> texts;
    if (found && (!verdict_ || !found->is_same_as(*verdict_))) {
        texts.push_back(found->text);
        said_at_ = now;
    } else if (!found && verdict_ && !verdict_->waiting.empty()) {
        texts.push_back("the job goes on: " + name_ranks(verdict_->waiting) + " had waited for " +
                        time_since(verdict_->since, now));
    }
    verdict_ = std::move(found);
    ends_job_ =
        on_hang_ == OnHang::stop && verdict_ && !verdict_->in_debugger && now - said_at_ >= stands_;
    return texts;
}

}  // namespace ddp::launcher
