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

CoordinatorSearch::CoordinatorSearch(const HostsJob& job, Poller& events, Poller::Tag tag, Time now)
    : rules_(job.rules),
      places_(places_of(job.env)),
      events_(events),
      tag_(tag),
      is_first_look_(job.coordinates && places_.size() > 1),
      began_(now),
      next_words_(now + first_words) {
    if (is_first_look_) at_ = 1;
}

std::string CoordinatorSearch::places() const {
    std::string names;
    for (const MeetingPlace& place : places_) names += (names.empty() ? "" : ", ") + name_of(place);
    return names;
}

void CoordinatorSearch::begin_succession(const RoundMessage& last, MemberId own, Time now) {
    stop();
    succession_.emplace(last, own, rules_, now);
    next_words_ = now + first_words;
}

std::optional<MeetingPlace> CoordinatorSearch::place_to_try() const {
    if (!succession_) return places_[at_];
    const HostRanks* next = succession_->next();
    if (next == nullptr) return std::nullopt;
    return MeetingPlace{next->address, next->port};
}

CoordinatorSearch::News CoordinatorSearch::look(bool may_try, Time now) {
    News news;
    news.text = end_of_patience(now);
    if (!news.text.empty()) {
        news.exit_code = succession_ ? contract::exit_host_lost : contract::exit_error;
        return news;
    }
    if (may_try) try_a_place(news, now);
    if (news.connection) return news;
    if (now >= next_words_) {
        next_words_ = now + between_words;
        news.text =
            "waits for the coordinator at " + places() + (trouble_.empty() ? "" : ": " + trouble_);
    }
    next_look_ = has_several_places() ? now + between_looks
                                      : std::min(next_words_, began_ + rules_.join_timeout);
    if (!has_several_places() && !connector_)
        next_look_ = std::min(next_look_, now + between_tries);
    return news;
}

void CoordinatorSearch::look_later(Time now) { next_look_ = now + between_looks; }

std::string CoordinatorSearch::end_of_patience(Time now) const {
    if (succession_) {
        if (now < succession_->ends()) return {};
        return "this host has lost its job: nobody has succeeded the coordinator within " +
               in_seconds(rules_.time_to_succeed());
    }
    if (now < began_ + rules_.join_timeout) return {};
    return "no coordinator at " + places() + " within " + in_seconds(rules_.join_timeout) +
           (trouble_.empty() ? "" : ": " + trouble_);
}

// A connector tries one place again and again. Where there are others they have their turn.
void CoordinatorSearch::try_a_place(News& news, Time now) {
    if (!connector_ && now >= try_again_) {
        const auto place = place_to_try();
        if (!place) return;
        place_ = *place;
        try_began_ = now;
        connector_ = std::make_unique<Connector>(place->host, place->port);
        events_.add(connector_->fd(), EPOLLIN, tag_);
    }
    bool was_refused = false;
    while (auto said = connector_ ? connector_->take() : std::nullopt) {
        if (said->connection) {
            stop();
            news.connection = std::move(said->connection);
            return;
        }
        was_refused = true;
        trouble_ = std::move(said->trouble);
    }
    const bool is_in_vain = connector_ && (was_refused || now >= try_began_ + longest_try);
    if (!has_several_places() || !is_in_vain) return;
    pass(now);
    if (!is_first_look_ || at_ != 0) return;
    is_first_look_ = now < began_ + time_of_first_look(rules_);
    news.nobody_coordinates = !is_first_look_;
    at_ = 1;
}

void CoordinatorSearch::pass(Time now) {
    stop();
    try_again_ = now + between_tries;
    if (succession_) return succession_->pass();
    at_ = (at_ + 1) % places_.size();
}

void CoordinatorSearch::give_up(Found found, std::string why, Time now) {
    trouble_ = std::move(why);
    if (succession_ && found == Found::no_coordinator) succession_->exclude();
    pass(now);
}

void CoordinatorSearch::stop() {
    if (!connector_) return;
    events_.remove(connector_->fd());
    connector_.reset();
}

}  // namespace ddp::launcher
