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

}  // namespace

void HangWatch::begin(Time now) {
    if (on_hang_ != OnHang::ignore) next_ = now + interval_at_start;
}

std::vector<std::string> HangWatch::look(Time now, const contract::ControlRegion& pages,
                                         std::span<const Worker> workers, int first_rank) {
    if (!next_ || now < *next_) return {};
    // This host, or its clock, has been at a standstill: so have the waits.
    if (now - *next_ > much_later) blind_until_ = now + UsualTimes::least;
    memory_.resize(workers.size());
    std::vector<RankState> ranks = read(pages, workers, first_rank);
    bool any_joined = false;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        learn(ranks[i].record, memory_[i]);
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
    if (blind_until_ && now < *blind_until_) return said;
    // Who holds itself for a debugger has been spoken of, and is waited for.
    if (std::ranges::any_of(workers, &Worker::stopped_for_debugger)) return said;
    for (std::string& text : news(now, judge(ranks, usual_, now))) said.push_back(std::move(text));
    return said;
}

std::vector<RankState> HangWatch::read(const contract::ControlRegion& pages,
                                       std::span<const Worker> workers, int first_rank) {
    std::vector<RankState> ranks;
    for (const Worker& worker : workers) {
        ranks.push_back({.rank = first_rank + worker.local_rank,
                         .has_ended = !worker.running(),
                         .started = worker.started_at,
                         .record = contract::read_page(pages.page(worker.local_rank))});
    }
    return ranks;
}

std::optional<HangFacts> HangWatch::facts(const contract::ControlRegion& pages,
                                          std::span<const Worker> workers, int first_rank) const {
    const auto verdict = verdict_ ? verdict_ : judge_failed(read(pages, workers, first_rank));
    if (!verdict) return std::nullopt;
    return HangFacts{.kind = to_string(verdict->kind),
                     .ranks = verdict->ranks,
                     .text = verdict->text,
                     .has_ended_job = ends_job()};
}

void HangWatch::learn(const contract::RankRecord& record, Memory& memory) {
    for (const contract::OperationRecord& operation : record.operations) {
        if (operation.serial <= memory.seen) continue;
        if (!operation.ended) break;  // and what comes after it, in its turn
        const bool follows = operation.serial == memory.seen + 1;
        usual_.note(operation, follows ? memory.free_since : std::nullopt);
        memory.seen = operation.serial;
        memory.free_since = operation.ended;
    }
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

// Remembers since when it is held. When it goes on, after more than a moment: what to say.
std::string HangWatch::note_held(Time now, RankState& state, Memory& memory) {
    std::string text;
    if (state.process.is_held()) {
        if (!memory.held_since) memory.held_since = now;
        memory.in_debugger = state.process.tracer != 0;
    } else if (memory.held_since) {
        const bool is_news = !memory.in_debugger && state.process.state != 0;
        if (is_news && now - *memory.held_since >= UsualTimes::least) {
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
    } else if (!found && verdict_ && !verdict_->waiting.empty()) {
        texts.push_back("the job goes on: " + name_ranks(verdict_->waiting) + " had waited for " +
                        time_since(verdict_->since, now));
    }
    verdict_ = std::move(found);
    return texts;
}

}  // namespace ddp::launcher
