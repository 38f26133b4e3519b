#include "launcher/agent/host_part.hpp"

#include "launcher/inspect/run_view.hpp"

#include <ddp/error.hpp>

#include <string>
#include <utility>
#include <variant>

namespace ddp::launcher {

HostPart::HostPart(const RoundMessage& round, MemberId member) : round_(round) {
    const HostRanks* const own = round.table.find(member);
    if (own == nullptr) throw Error("round " + std::to_string(round.round) + " is another host's");
    own_ = *own;
}

HostPlace HostPart::place() const {
    return {.group_rank = own_.group_rank,
            .group_world_size = static_cast<int>(round_.table.hosts.size()),
            .first_rank = own_.first_rank,
            .world_size = round_.table.world_size,
            .first_role_rank = own_.first_role_rank,
            .role_world_size = own_.role_world_size,
            .address = own_.address,
            .round = round_.round};
}

void HostPart::tell_progress(Member& member, const StatusMessage& part) const {
    member.progress({.round = round_.round,
                     .running = part.running,
                     .step = part.step,
                     .steps_in_1000_s = static_cast<std::int64_t>(part.steps_per_second * 1000)});
}

void HostPart::tell_timelines(Member& member, const WatchedWorkers& workers) const {
    JobTimeline here;
    here.note(0, workers.pages, workers.all, workers.first_rank, "");
    for (TimelinePart& part : here.parts()) {
        member.timeline({.round = round_.round, .part = std::move(part)});
    }
}

bool HostPart::answer(Member& member, const MemberOrder& order, Attempt* attempt) const {
    if (const auto* asked = std::get_if<ShowMessage>(&order)) {
        show(member, *asked, attempt);
        return true;
    }
    const auto* const look = std::get_if<LookMessage>(&order);
    const auto* const read = std::get_if<ReadMessage>(&order);
    if (look == nullptr && read == nullptr) return false;
    const int round = look != nullptr ? look->round : read->round;
    WorkerWatch* const watch =
        attempt != nullptr && round == round_.round ? attempt->watch() : nullptr;
    if (watch == nullptr) return true;
    if (look != nullptr) {
        tell_sighting(member, watch->see(attempt->watched(), *look), look->question);
    } else {
        watch->read_silent(attempt->watched(), read->question);
    }
    return true;
}

// Where nothing runs there are no rows.
void HostPart::show(Member& member, const ShowMessage& show, const Attempt* attempt) const {
    RowsMessage answer{.round = show.round, .question = show.question};
    if (show.round == round_.round && attempt != nullptr) {
        answer.rows = rows_of(attempt->watched(), Attempt::Time::clock::now());
    }
    member.rows(std::move(answer));
}

void HostPart::tell_rows(Member& member, const WatchedWorkers& workers) const {
    member.rows({.round = round_.round, .rows = rows_of(workers, Attempt::Time::clock::now())});
}

bool HostPart::tell_ends(Member& member, const AttemptEnd& end) const {
    bool is_fine = true;
    int ended = 0;
    for (AttemptEnd::TimedEnd& one : end.ends()) {
        is_fine = is_fine && one.end.status.ok() && one.end.stopped_with == 0;
        ++ended;
        member.ended(round_.round, one.at, std::move(one.end));
    }
    is_fine = is_fine && ended == own_.slots;
    if (!is_fine) tell_sighting(member, end.seen);
    return is_fine;
}

}  // namespace ddp::launcher
