#include "launcher/agent/onlookers.hpp"

namespace ddp::launcher {
namespace {

std::optional<RunView> look(const Attempt* attempt, const CoordinatorRole* role) {
    std::optional<RunView> view = view_now(attempt);
    if (!view && role != nullptr) view = role->view_without_workers();
    if (view && role != nullptr) role->tell_verdict(*view);
    return view;
}

}  // namespace

void Onlookers::serve(Poller::Tag tag, const Attempt* attempt, CoordinatorRole* role) {
    if (source_of(tag) == Source::door) return receive_guest(attempt, role);
    metrics_->run_ready(index_of(tag), [&](MetricsFormat format) {
        return metrics_text(facts_, look(attempt, role).value_or(door_.last_view()), format);
    });
}

void Onlookers::receive_guest(const Attempt* attempt, CoordinatorRole* role) {
    base::UniqueFd guest = door_.take_guest();
    if (!guest) return;
    const Time now = Time::clock::now();
    const bool asks_hosts = role != nullptr && waiting_.size() < most_waiting;
    if (!asks_hosts || !role->ask_for_rows(now)) return door_.answer(guest, look(attempt, role));
    waiting_.push_back(std::move(guest));
    if (!answers_by_) answers_by_ = now + RowInquiry::time_to_answer;
}

void Onlookers::note_end(const CoordinatorRole& role, const Outcome& outcome) {
    RunView view = door_.last_view();
    role.tell_end(view, outcome.exit_code == 0);
    door_.note_end(std::move(view), outcome.text);
}

void Onlookers::answer_waiting(const Attempt* attempt, const CoordinatorRole* role) {
    const Time now = Time::clock::now();
    if (!answers_by_ || (now < *answers_by_ && !role->has_rows(now))) return;
    std::optional<RunView> view = look(attempt, role);
    if (view) role->tell_rows(*view);
    for (const base::UniqueFd& guest : waiting_) door_.answer(guest, view);
    waiting_.clear();
    answers_by_.reset();
}

}  // namespace ddp::launcher
