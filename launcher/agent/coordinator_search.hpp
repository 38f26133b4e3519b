// The search for the coordinator, at first and when it is lost, until there is a connection to it:
// one place after the other is tried. A guest in the agent's loop.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/agent/coordinator_probe.hpp"
#include "launcher/hosts/connector.hpp"
#include "launcher/hosts/membership/succession.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/process/poller.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {

class CoordinatorSearch {
public:
    using Time = std::chrono::steady_clock::time_point;

    // Borrows the poller; its descriptor gets this tag there.
    // `join`: as this host would say it.
    CoordinatorSearch(const HostsJob& job, JoinMessage join, Poller& events, Poller::Tag tag,
                      Time now);
    ~CoordinatorSearch() { stop(); }
    CoordinatorSearch(const CoordinatorSearch&) = delete;
    CoordinatorSearch& operator=(const CoordinatorSearch&) = delete;

    // Whether this host coordinates if none of the others does already: one may have taken over
    // while it was away. It goes on looking until a round is given out. Where half of the hosts
    // would do for a job, it does not coordinate before the others would have noticed.
    bool is_first() const { return is_first_; }
    void end_being_first() { is_first_ = false; }

    // There is none any more that took this host in: from the beginning.
    void begin_anew(Time now);
    // The coordinator of this round is lost, in which this host had this number: its successor is
    // looked for, until a round is found.
    void begin_succession(const RoundMessage& last, MemberId own, std::chrono::milliseconds timeout,
                          Time now);
    void end_succession() { succession_.reset(); }
    Succession* succession() { return succession_ ? &*succession_ : nullptr; }
    const Succession* succession() const { return succession_ ? &*succession_ : nullptr; }

    struct News {
        base::UniqueFd connection = {};     // to meeting_place()
        bool other_coordinates = false;     // than this host, which is to join there
        bool nobody_coordinates = false;    // the first look is over
        std::optional<int> exit_code = {};  // it is over in vain: the job ends here,
        std::string text = {};              // and why; else for the user
    };
    // In each turn of the loop while no coordinator is found, or one might be found that comes
    // before this host itself.
    enum class Now {
        looks,
        is_connected,  // to what may turn out to be one
        coordinates
    };
    News look(Now state, Time now);
    void look_later(Time now);
    // Whom it has connected to gives no answer, ends the connection without one, or has gone.
    enum class Found { no_answer, no_welcome, one_that_went };
    void give_up(Found found, std::string why, Time now);
    void stop();
    std::optional<Time> next() const { return next_look_; }

    // What the last connection led to may be of another job, and this one's coordinator elsewhere.
    bool may_be_elsewhere() const { return succession_ || at_ != 0; }
    // Of the last connection.
    const MeetingPlace& meeting_place() const { return place_; }
    void meet_at(const MeetingPlace& place) { place_ = place; }
    // "h1:29500 (this host), h2:29500": all places where it may be, for the user.
    std::string places() const;

private:
    bool has_several_places() const { return succession_ || places_.size() > 1; }
    std::optional<MeetingPlace> place_to_try() const;
    std::string end_of_patience(Time now) const;
    void try_a_place(News& news, Now state, Time now);
    void look_at_probe(News& news, Time now);
    void pass(Time now);
    void next_place();

    MembershipRules rules_;
    JobProof proof_;
    JoinMessage join_;
    std::vector<MeetingPlace> places_;
    Poller& events_;
    Poller::Tag tag_;
    std::optional<Succession> succession_;
    struct Try {
        std::unique_ptr<Connector> connector = {};     // null: none is made
        std::unique_ptr<CoordinatorProbe> probe = {};  // of a connection
        MeetingPlace place = {};
        Time began{};
        Time again{};              // when the next one may be made
        std::string trouble = {};  // of the last one
        bool asks = false;         // who listens there, as it is no coordinator
    } try_;
    MeetingPlace place_;
    std::size_t at_ = 0;  // of the places
    bool is_first_;
    std::set<std::size_t> foreign_;  // places where something else listens
    Time began_;
    Time next_words_;
    Time next_look_{};
};

// "h1:29500", with " (this host)" where it is.
std::string name_of(const MeetingPlace& place);

}  // namespace ddp::launcher
