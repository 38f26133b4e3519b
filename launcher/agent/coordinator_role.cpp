#include "launcher/agent/coordinator_role.hpp"

#include "launcher/agent/attempt/progress_watch.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace ddp::launcher {
namespace {

// Of a round whose end nobody was to blame for.
constexpr const char* started_again = "hosts came or went: the workers were started again";

// Those of this host are there.
void add_rows(RunView& view, std::vector<RankRow> others) {
    view.has_asked_hosts = true;
    std::ranges::move(others, std::back_inserter(view.ranks));
    std::ranges::sort(view.ranks, {}, &RankRow::rank);
}

}  // namespace

CoordinatorRole::CoordinatorRole(Settings settings, Poller& events, Poller::Tag tag)
    : settings_(std::move(settings)),
      events_(events),
      tag_(tag),
      judge_(settings_.restarts, settings_.stop.exit_code, settings_.facts),
      inquiries_(settings_.stop.on_hang, settings_.stop.hang_timeout) {}

CoordinatorRole::~CoordinatorRole() { drop(); }

base::UniqueFd CoordinatorRole::begin(Time now) {
    vouchers_ = {};
    settings_.job.hears = [this](MemberId by, const FromMember& message) { hear(by, message); };
    coordinator_ = std::make_unique<Coordinator>(
        settings_.rules, settings_.job, [this](const RoundMessage& round) { begin_round(round); },
        now);
    events_.add(coordinator_->fd(), EPOLLIN, tag_);
    return coordinator_->connect_own_member(now);
}

base::UniqueFd CoordinatorRole::succeed(const RoundMessage& last, const WelcomeMessage& job,
                                        const JobProof& proof, const MeetingPlace& place,
                                        Time now) {
    if (!settings_.serves) {
        if (const std::string why = settings_.serve(place); !why.empty()) throw Error(why);
        settings_.serves = true;
    }
    settings_.rules.node_timeout = job.node_timeout;  // all go by the lost coordinator's
    settings_.rules.has_successors = true;
    settings_.job.run_id = job.run_id;
    settings_.job.run = job.run;
    settings_.job.proof = proof;
    settings_.job.succeeds = last;
    judge_.go_on_after(last.restarts);
    return begin(now);
}

void CoordinatorRole::begin_round(const RoundMessage& round) {
    settings_.store().start_attempt(round.round, round.table.world_size);
    settings_.store().serve_hosts(round.table.addresses());
    vouchers_.begin_round(round.table);
    inquiries_.begin_round(round);
    round_ = round;
    if (settings_.timeline != nullptr) {
        if (!std::exchange(is_judged_, false)) settings_.timeline->set_text(started_again);
        settings_.timeline->begin(round.round - 1);
    }
    progress_.begin_round(round);
}

// The members on their hosts.
void CoordinatorRole::ask_about_clients() {
    store::StoreServer& store = settings_.store();
    while (const auto question = store.take_question()) {
        const auto members = vouchers_.ask(question->client, question->there);
        if (members.empty()) store.vouch(question->client, false);
        const VouchMessage message{question->client, question->there, question->here};
        for (const MemberId member : members) coordinator_->send(member, message);
    }
}

void CoordinatorRole::hear(MemberId by, const FromMember& message) {
    if (inquiries_.note(Time::clock::now(), by, message)) return;
    if (const auto* progress = std::get_if<ProgressMessage>(&message)) {
        return progress_.note(by, *progress);
    }
    if (const auto* timeline = std::get_if<TimelineMessage>(&message)) {
        return note_timeline(by, *timeline);
    }
    const auto& answer = std::get<VouchedMessage>(message);
    const auto known = vouchers_.answered(answer.question, by, answer.is_of_job);
    if (known) settings_.store().vouch(answer.question, *known);
}

// A member tells of its own ranks.
void CoordinatorRole::note_timeline(MemberId by, const TimelineMessage& message) {
    const HostRanks* const host = round_.table.find(by);
    const bool is_its_own =
        host != nullptr && message.round == round_.round && host->has(message.part.rank.rank);
    if (settings_.timeline == nullptr || !is_its_own) return;
    TimelinePart part = message.part;
    part.attempt = round_.round - 1;
    part.rank.host = host->host;
    settings_.timeline->add(std::move(part));
}

// Of a round that is being stopped nobody says who holds it up.
void CoordinatorRole::look_at_silent(Time now) {
    if (!coordinator_->runs() || settings_.stop.on_hang == OnHang::ignore) return;
    if (const auto question = inquiries_.silent.take_question(now)) {
        for (const HostRanks& host : round_.table.hosts) coordinator_->send(host.member, *question);
    }
    const SilentInquiry::News news = inquiries_.silent.take_news();
    for (const std::string& text : news.texts) announce(text, news.concerned);
    inquiries_.hangs.note_by_stacks(inquiries_.silent.verdict());
}

void CoordinatorRole::look_for_hangs(Time now) {
    if (!coordinator_->runs()) return;
    if (const auto question = inquiries_.hangs.take_question(now)) {
        for (const HostRanks& host : inquiries_.hangs.round().table.hosts) {
            coordinator_->send(host.member, *question);
        }
    }
    HangInquiry::News news = inquiries_.hangs.take_news(now);
    if (news.stops_because_of) {
        news.texts.push_back(HangNews::words_of_stop(settings_.stop.shutdown_timeout));
    }
    for (const std::string& text : news.texts) announce(text, news.concerned);
    if (news.stops_because_of) coordinator_->end_hung_round(*news.stops_because_of);
}

void CoordinatorRole::look_for_slow(Time now) {
    if (!coordinator_->runs()) return;
    const SlowInquiry::News news = inquiries_.slow.take_news(now);
    for (const std::string& text : news.texts) announce(text, news.concerned);
}

// The others get its first line.
void CoordinatorRole::announce(const std::string& text, const std::vector<MemberId>& concerned) {
    coordinator_->announce(text, text.substr(0, text.find('\n')), concerned, false);
}

// Its own member's beats make turns of the loop.
void CoordinatorRole::show_progress(Time now) {
    if (!settings_.job.wants_progress || now < next_show_) return;
    const StatusMessage total = progress_.total();
    if (shown_ == total) return;
    shown_ = total;
    next_show_ = now + ProgressWatch::interval;
    settings_.show_status(total);
}

std::optional<RunView> CoordinatorRole::view_without_workers() const {
    const bool runs = coordinator_ != nullptr && coordinator_->runs();
    if (!runs || round_.table.find(round_.coordinator) != nullptr) return std::nullopt;
    return RunView{.attempt = round_.restarts + 1,
                   .attempts = settings_.facts.attempts,
                   .world_size = round_.table.world_size};
}

void CoordinatorRole::tell_verdict(RunView& view) const {
    view.is_judged = coordinator_ != nullptr;
    if (!view.is_judged) return;
    view.hang = inquiries_.hangs.facts(false);
    view.slow = inquiries_.slow_facts();
}

bool CoordinatorRole::ask_for_rows(Time now) {
    if (!coordinator_ || !coordinator_->runs()) return false;
    if (const auto question = inquiries_.rows.ask(now)) {
        for (const MemberId member : inquiries_.rows.others())
            coordinator_->send(member, *question);
    }
    return true;
}

void CoordinatorRole::tell_rows(RunView& view) const {
    if (coordinator_) add_rows(view, inquiries_.rows.rows());
}

void CoordinatorRole::tell_end(RunView& view, bool is_fine) const {
    if (round_.round == 0) return;  // a successor's, before a round of its own
    view.attempt = round_.restarts + 1;
    view.attempts = settings_.facts.attempts;
    view.world_size = round_.table.world_size;
    if (round_.table.find(round_.coordinator) == nullptr) view.ranks.clear();
    add_rows(view, inquiries_.rows.rows_at_end());
    tell_verdict(view);
    if (is_fine) view.hang.reset();  // those it speaks of have told no more
}

void CoordinatorRole::drop() {
    if (coordinator_) events_.remove(coordinator_->fd());
    coordinator_.reset();
}

void CoordinatorRole::end() {
    drop();
    arrived_.clear();
    if (std::exchange(settings_.serves, false)) settings_.stop_serving();
}

void CoordinatorRole::run(Time now) {
    if (!coordinator_) return;
    coordinator_->run_ready(now);  // in the first turn, its own member joins before others
    for (auto& [connection, received] : std::exchange(arrived_, {})) {
        coordinator_->take(std::move(connection), received, now);
    }
    coordinator_->look_at_time(now);
    ask_about_clients();
    look_at_silent(now);
    look_for_hangs(now);
    look_for_slow(now);
    show_progress(now);
    judge_round(now);
}

void CoordinatorRole::judge_round(Time now) {
    const auto end = coordinator_->take_round_end();
    if (!end) return;
    const bool any_failed = end->asked.reason == StopReason::failure;
    RoundVerdict verdict = judge_.judge(
        *end, settings_.report_file(), inquiries_.hangs.facts(any_failed), inquiries_.slow_facts());
    is_judged_ = true;
    if (settings_.timeline != nullptr) settings_.timeline->set_text(verdict.outcome.text);
    if (!verdict.restart_in) settings_.publish(verdict.outcome);
    if (!coordinator_) return;  // while that was written another one was found
    if (!verdict.outcome.text.empty()) {
        std::vector<MemberId> concerned;
        if (verdict.culprit) concerned.push_back(*verdict.culprit);
        coordinator_->announce(verdict.outcome.text, verdict.line, concerned, true);
    }
    if (verdict.restart_in) {
        coordinator_->restart(*verdict.restart_in, true, now);
    } else {
        coordinator_->finish(verdict.outcome.exit_code, now);
    }
}

}  // namespace ddp::launcher
