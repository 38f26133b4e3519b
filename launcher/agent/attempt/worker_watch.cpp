#include "launcher/agent/attempt/worker_watch.hpp"

#include "contract/injection.hpp"
#include "contract/rank_record.hpp"

#include <algorithm>
#include <cstdint>
#include <string>

namespace ddp::launcher {
namespace {

// Who is asked again and again need not raise an alarm.
constexpr std::chrono::seconds silent_when_asked{1};
// The judge compares what processes have used over stretches of eight seconds or more.
constexpr std::chrono::seconds between_uses{4};

}  // namespace

WorkerWatch::WorkerWatch(Watching progress, int restarts, const StopOptions& stop)
    : grace_(stop.shutdown_timeout),
      progress_(progress),
      hang_(stop.on_hang, stop.hang_timeout),
      stacks_(stop.reads_stacks) {
    progress_.set_restarts(restarts);
}

std::optional<WorkerWatch::Time> WorkerWatch::next(bool is_stopping) const {
    std::optional<Time> first = progress_.next();
    if (is_stopping) return first;
    for (const auto& time : {hang_.next(), stacks_.next()}) {
        if (time) first = std::min(first.value_or(Time::max()), *time);
    }
    return first;
}

std::optional<int> WorkerWatch::look(const WatchedWorkers& workers, bool is_stopping,
                                     Channel& channel, const TellHosts& tell) {
    const Time now = HangWatch::Time::clock::now();
    const auto running = static_cast<int>(std::ranges::count_if(workers.all, &Worker::running));
    if (auto status = progress_.look(now, workers.pages, running)) {
        if (tell.progress) {
            tell.progress(*status);
        } else {
            status->hosts = 1;
            channel.send(*status);
        }
    }
    if (is_stopping) return std::nullopt;
    stacks_.take(now);
    hang_.note_reading(stacks_.is_reading());
    tell_of_stacks(channel);
    if (tell.sighting) {
        // Also of what was seen when it was asked.
        if (auto paces = hang_.take_paces()) tell.paces(*std::move(paces));
        if (auto told = stacks_.take_answer(); !told.stacks.empty()) {
            tell.stacks(told.question, std::move(told.stacks));
        }
        if (!hang_.next()) return std::nullopt;
        tell_of_silent(now, workers, tell);
        if (now < *hang_.next()) return std::nullopt;
        Sighting seen = hang_.see(now, workers, {});
        seen.ranks.clear();  // an alarm, after which it is asked
        if (seen.is_alarm && now - asked_at_ >= silent_when_asked) tell.sighting(std::move(seen));
        return std::nullopt;
    }
    if (hang_.next()) stacks_.look_at_silent(now, workers);
    for (const std::string& text : hang_.look(now, workers, stacks_.verdict())) {
        channel.send(NoticeMessage{text});
        has_told_verdict_ = hang_.news().verdict().has_value();
    }
    tell_of_slow(channel);
    stacks_.consider(now, hang_.news().verdict(), workers);
    tell_of_stacks(channel);
    if (!hang_.news().ends_job() || stacks_.is_reading()) return std::nullopt;
    channel.send(NoticeMessage{HangNews::words_of_stop(grace_)});
    return hang_.news().to_blame().value_or(-1);
}

void WorkerWatch::tell_of_silent(Time now, const WatchedWorkers& workers, const TellHosts& tell) {
    if (auto told = stacks_.take_readings(); told.question != 0) tell.readings(std::move(told));
    auto threads = stacks_.take_threads(now, workers);
    if (!threads) return;
    if (now >= next_uses_) {
        next_uses_ = now + between_uses;
        look_at_uses(*threads);
    }
    tell.threads(*std::move(threads));
}

// It is asked for those again that have not been told; others are of another verdict.
void WorkerWatch::note_verdict_elsewhere(const std::vector<int>& ranks) {
    const bool is_new = std::ranges::any_of(ranks, [this](int rank) {
        return std::ranges::find(judged_elsewhere_, rank) == judged_elsewhere_.end();
    });
    if (!is_new) return;
    judged_elsewhere_ = ranks;
    has_told_verdict_ = true;
}

void WorkerWatch::tell_of_slow(Channel& channel) {
    for (const std::string& text : hang_.take_news_of_slow()) channel.send(NoticeMessage{text});
    for (const std::string& text : stacks_.take_news_of_slow()) channel.send(NoticeMessage{text});
    if (const auto unread = stacks_.take_unread()) channel.send(NoticeMessage{unread->text});
}

void WorkerWatch::tell_of_stacks(Channel& channel) {
    for (const std::string& text : stacks_.take_news()) channel.send(NoticeMessage{text});
}

std::optional<HangFacts> WorkerWatch::facts(const WatchedWorkers& workers) const {
    std::optional<HangFacts> facts = hang_.facts(workers);
    const std::optional<Verdict>& verdict = hang_.news().verdict();
    if (facts && verdict) facts->stacks = stacks_.known(*verdict);
    return facts;
}

std::string missed_drill(const std::string& inject, const WatchedWorkers& workers) {
    if (inject.empty()) return {};
    const contract::Injection drill = contract::parse_injection(inject);
    for (const Worker& worker : workers.all) {
        const bool is_it = workers.first_rank + worker.local_rank == drill.rank;
        if (!is_it || !worker.ended || !worker.ended->ok()) continue;
        const contract::RankRecord record =
            contract::read_page(workers.pages.page(worker.local_rank));
        const bool is_in_group = record.pid != 0;
        // Only a group of ddp's has a call that others do not make; Python does the other drills.
        const bool can_be_done = is_in_group || drill.fault != contract::Injection::Fault::mismatch;
        const bool has_published = is_in_group || record.step != 0;
        if (can_be_done && has_published && record.step >= drill.step) return {};
        const std::string rank = "rank " + std::to_string(drill.rank);
        std::string why =
            "the last step that " + rank + " has published is " + std::to_string(record.step);
        if (!can_be_done) why = rank + " is in no group of ddp's, which alone has a call to make";
        if (record.step == 0) why = rank + " has published no step (group.publish_progress(step))";
        return "--inject=" + inject + ": nothing was done: " + why;
    }
    return {};
}

}  // namespace ddp::launcher
