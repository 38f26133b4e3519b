#include "launcher/agent/coordinator_search.hpp"

#include "base/net/address.hpp"
#include "contract/exit_code.hpp"
#include "launcher/options/endpoint.hpp"

#include <sys/epoll.h>

#include <utility>

namespace ddp::launcher {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds first_words{5'000};
constexpr Milliseconds between_words{60'000};
constexpr Milliseconds between_tries{200};
// A host that is there answers sooner, be it that nobody listens.
constexpr Milliseconds longest_try{1'000};
// Where there are several places, and several clocks.
constexpr Milliseconds between_looks{100};

Milliseconds time_of_first_look(const MembershipRules& rules) {
    constexpr Milliseconds to_serve{1'000};
    const bool half_would_do = 2 * rules.min_hosts <= rules.max_hosts;
    return half_would_do ? rules.node_timeout + to_serve : Milliseconds{0};
}

std::vector<MeetingPlace> places_of(const HostEnv& env) {
    std::vector<MeetingPlace> places{{env.head, env.port}};
    places.insert(places.end(), env.successors.begin(), env.successors.end());
    return places;
}

}  // namespace

std::string name_of(const MeetingPlace& place) {
    return base::host_and_port(place.host, place.port) +
           (is_this_host(place.host) ? " (this host)" : "");
}

CoordinatorSearch::CoordinatorSearch(const HostsJob& job, JoinMessage join, Poller& events,
                                     Poller::Tag tag, Time now)
    : rules_(job.rules),
      proof_(job.proof),
      join_(std::move(join)),
      places_(places_of(job.env)),
      events_(events),
      tag_(tag),
      is_first_(job.coordinates && places_.size() > 1),
      began_(now),
      next_words_(now + first_words) {
    if (is_first_) at_ = 1;
}

std::string CoordinatorSearch::places() const {
    std::string names;
    for (const MeetingPlace& place : places_) names += (names.empty() ? "" : ", ") + name_of(place);
    return names;
}

void CoordinatorSearch::begin_anew(Time now) {
    succession_.reset();
    began_ = now;
    next_words_ = now + first_words;
}

void CoordinatorSearch::begin_succession(const RoundMessage& last, MemberId own,
                                         Milliseconds timeout, Time now) {
    stop();
    MembershipRules rules = rules_;
    rules.node_timeout = timeout;
    succession_.emplace(last, own, rules, now);
    next_words_ = now + first_words;
}

std::optional<MeetingPlace> CoordinatorSearch::place_to_try() const {
    if (!succession_) return places_[at_];
    const HostRanks* next = succession_->next();
    if (next == nullptr) return std::nullopt;
    return MeetingPlace{next->address, next->port};
}

CoordinatorSearch::News CoordinatorSearch::look(Now state, Time now) {
    News news;
    if (state != Now::coordinates) news.text = end_of_patience(now);
    if (!news.text.empty()) {
        news.exit_code = succession_ ? contract::exit_host_lost : contract::exit_error;
        return news;
    }
    if (state != Now::is_connected) try_a_place(news, state, now);
    if (state == Now::coordinates) news.nobody_coordinates = false;
    if (news.connection || news.other_coordinates) return news;
    if (now >= next_words_ && state != Now::coordinates) {
        next_words_ = now + between_words;
        news.text = "waits for the coordinator at " + places() +
                    (try_.trouble.empty() ? "" : ": " + try_.trouble);
    }
    next_look_ = has_several_places() ? now + between_looks
                                      : std::min(next_words_, began_ + rules_.join_timeout);
    if (!has_several_places() && !try_.connector) {
        next_look_ = std::min(next_look_, now + between_tries);
    }
    return news;
}

void CoordinatorSearch::look_later(Time now) { next_look_ = now + between_looks; }

std::string CoordinatorSearch::end_of_patience(Time now) const {
    if (succession_) {
        if (now < succession_->ends()) return {};
        return "this host has lost its job: nobody has succeeded the coordinator within " +
               in_seconds(succession_->time());
    }
    if (now < began_ + rules_.join_timeout) return {};
    return "no coordinator at " + places() + " within " + in_seconds(rules_.join_timeout) +
           (try_.trouble.empty() ? "" : ": " + try_.trouble);
}

// A connector tries one place again and again. Where there are others they have their turn.
void CoordinatorSearch::try_a_place(News& news, Now state, Time now) {
    if (try_.probe) return look_at_probe(news, now);
    if (is_first_ && !succession_ && at_ == 0) {  // its own: it has looked at all others
        news.nobody_coordinates = now >= began_ + time_of_first_look(rules_);
        return next_place();
    }
    if (!try_.connector && now >= try_.again) {
        const auto place = place_to_try();
        if (!place) return;
        try_.place = *place;
        try_.began = now;
        // Of several places each has its turn, and no time for questions.
        const bool asks = std::exchange(try_.asks, false) && !has_several_places();
        try_.connector = std::make_unique<Connector>(place->host, place->port, asks);
        events_.add(try_.connector->fd(), EPOLLIN, tag_);
    }
    bool was_refused = false;
    while (auto said = try_.connector ? try_.connector->take() : std::nullopt) {
        if (said->connection) {
            stop();
            if (state == Now::coordinates || is_first_) {
                try_.probe = std::make_unique<CoordinatorProbe>(std::move(said->connection), join_,
                                                                proof_, events_, tag_, now);
            } else {
                meet_at(try_.place);
                news.connection = std::move(said->connection);
            }
            return;
        }
        was_refused = true;
        if (said->trouble == Connector::torch_is_there) next_words_ = std::min(next_words_, now);
        try_.trouble = std::move(said->trouble);
    }
    const bool is_in_vain = try_.connector && (was_refused || now >= try_.began + longest_try);
    if (has_several_places() && is_in_vain) pass(now);
}

void CoordinatorSearch::look_at_probe(News& news, Time now) {
    using Answer = CoordinatorProbe::Answer;
    const Answer answer = try_.probe->run(now);
    if (answer == Answer::none_yet) return;
    news.other_coordinates = answer == Answer::coordinator;
    if (news.other_coordinates) return stop();  // and to the same place again
    give_up(answer == Answer::nothing ? Found::no_answer : Found::no_welcome, try_.trouble, now);
}

void CoordinatorSearch::pass(Time now) {
    stop();
    try_.again = now + between_tries;
    if (succession_) return succession_->pass();
    next_place();
    if (at_ != 0) try_.again = now;  // one after the other, and then a pause
}

// Past those that are none; the first is this host's own where it is to coordinate.
void CoordinatorSearch::next_place() {
    do {
        at_ = (at_ + 1) % places_.size();
    } while (at_ != 0 && foreign_.contains(at_));
}

void CoordinatorSearch::give_up(Found found, std::string why, Time now) {
    const bool is_known = try_.trouble == Connector::torch_is_there;
    try_.asks = found != Found::one_that_went && !is_known;
    if (!is_known) try_.trouble = std::move(why);
    if (succession_ && found == Found::no_answer) succession_->exclude();
    if (succession_ && found == Found::no_welcome) succession_->doubt();
    if (succession_ && found == Found::one_that_went) succession_->pass();
    if (!succession_ && is_first_ && found != Found::one_that_went) foreign_.insert(at_);
    stop();
    try_.again = now + between_tries;
    if (!succession_) next_place();
}

void CoordinatorSearch::stop() {
    try_.probe.reset();
    if (!try_.connector) return;
    events_.remove(try_.connector->fd());
    try_.connector.reset();
}

}  // namespace ddp::launcher
