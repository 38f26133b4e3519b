// The search for the coordinator, at first and when it is lost, until there is a connection to it:
// one place after the other is tried. A guest in the agent's loop.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/hosts/connector.hpp"
#include "launcher/hosts/membership/succession.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/process/poller.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class CoordinatorSearch {
public:
    using Time = std::chrono::steady_clock::time_point;

    // Borrows the poller; its descriptor gets this tag there.
    CoordinatorSearch(const HostsJob& job, Poller& events, Poller::Tag tag, Time now);
    ~CoordinatorSearch() { stop(); }
    CoordinatorSearch(const CoordinatorSearch&) = delete;
    CoordinatorSearch& operator=(const CoordinatorSearch&) = delete;

    // Whether this host coordinates only if none of the others does already: one may have taken
    // over while it was away. Where less than half of the hosts would do for a job, it looks until
    // the others would have noticed that it was away.
    bool is_first_look() const { return is_first_look_; }
    void end_first_look() { is_first_look_ = false; }

    // The coordinator of this round is lost, in which this host had this number: its successor is
    // looked for, until a round is found.
    void begin_succession(const RoundMessage& last, MemberId own, Time now);
    void end_succession() { succession_.reset(); }
    Succession* succession() { return succession_ ? &*succession_ : nullptr; }
    const Succession* succession() const { return succession_ ? &*succession_ : nullptr; }

    struct News {
        base::UniqueFd connection = {};     // to meeting_place()
        bool nobody_coordinates = false;    // the first look is over
        std::optional<int> exit_code = {};  // it is over in vain: the job ends here,
        std::string text = {};              // and why; else for the user
    };
    // In each turn of the loop while no coordinator is found. `may_try`: there is no connection
    // that may turn out to be one.
    News look(bool may_try, Time now);
    void look_later(Time now);
    // Whom it has connected to is no coordinator, or has gone.
    enum class Found { no_coordinator, one_that_went };
    void give_up(Found found, std::string why, Time now);
    void stop();
    std::optional<Time> next() const { return next_look_; }

    // Of the last connection.
    const MeetingPlace& meeting_place() const { return place_; }
    void meet_at(const MeetingPlace& place) { place_ = place; }
    // "h1:29500 (this host), h2:29500": all places where it may be, for the user.
    std::string places() const;

private:
    bool has_several_places() const { return succession_ || places_.size() > 1; }
    std::optional<MeetingPlace> place_to_try() const;
    std::string end_of_patience(Time now) const;
    void try_a_place(News& news, Time now);
    void pass(Time now);

    MembershipRules rules_;
    std::vector<MeetingPlace> places_;
    Poller& events_;
    Poller::Tag tag_;
    std::optional<Succession> succession_;
    std::unique_ptr<Connector> connector_;
    MeetingPlace place_;
    std::size_t at_ = 0;  // of the places
    bool is_first_look_;
    Time began_;
    Time try_began_{};
    Time try_again_{};
    Time next_words_;
    Time next_look_{};
    std::string trouble_;  // of the last try
};

// "h1:29500", with " (this host)" where it is.
std::string name_of(const MeetingPlace& place);

}  // namespace ddp::launcher
