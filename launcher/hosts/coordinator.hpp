// The coordinator's end of all links: what members say goes to the membership, what that decides
// goes to the members. A guest in the agent's loop. It decides nothing itself: whose fault the end
// of a round was, and whether there is another one, its caller says.
// Invariant: nothing that members and strangers send or leave unread blocks it or makes it throw.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/hosts/job_proof.hpp"
#include "launcher/hosts/link.hpp"
#include "launcher/hosts/membership/membership.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts/newcomers.hpp"
#include "launcher/hosts/round_record.hpp"
#include "launcher/process/poller.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher {

class Coordinator {
public:
    using Time = Membership::Time;

    struct Job {
        std::string name;  // its --rdzv-id, which each agent must name; may be empty
        std::string run_id;
        std::string run;      // the name of its log folder
        JobProof proof = {};  // which each agent must give
        // The round whose coordinator it succeeds.
        std::optional<RoundMessage> succeeds = {};
        // What members say of clients, of their workers, and of how those have ended.
        std::function<void(MemberId by, const FromMember& message)> hears = {};
        bool wants_progress = false;
        bool wants_timeline = false;
    };
    // Before a round is given out; all hosts of the last one have drained.
    using BeginRound = std::function<void(const RoundMessage& round)>;

    // Throws SystemError.
    Coordinator(const MembershipRules& rules, Job job, BeginRound begin_round, Time now);

    // A connection that began with 0xDD, with what was read from it.
    void take(base::UniqueFd connection, std::string_view received, Time now);
    // The other end of a link for the agent that coordinates. Once. Throws SystemError.
    base::UniqueFd connect_own_member(Time now);

    int fd() const { return events_.fd(); }  // readable when run_ready() has something to do
    void run_ready(Time now);
    void look_at_time(Time now);
    std::optional<Time> next() const;

    // The user of this host asks for the end; the second time for SIGKILL.
    void stop(int signal, Time now) {
        record_.note_signal(signal);
        carry_out(membership_.stop(signal, now));
    }
    void kill();
    bool runs() const { return membership_.runs(); }  // a round does, and nothing has ended it
    // It is to end, as that rank holds up the others; -1: none that others wait for.
    void end_hung_round(int rank) {
        record_.note_stop();
        carry_out(membership_.hung(rank));
    }

    // Once, when a round has ended and drained everywhere; then restart() or finish().
    std::optional<RoundEnd> take_round_end() { return record_.take_end(); }
    void restart(std::chrono::milliseconds delay, bool counts, Time now) {
        carry_out(membership_.restart(delay, counts, now));
    }
    void finish(int exit_code, Time now) {
        carry_out(membership_.finish(exit_code));
        close_ended(now);
    }
    // Of a member that is gone: nothing happens.
    void send(MemberId id, const FromCoordinator& message);
    // For the users of those hosts; the host of a member that is gone hears nothing.
    void say(MemberId member, std::string text, bool is_failure) {
        send(member, SayMessage{std::move(text), is_failure});
    }
    void say_everywhere(const std::string& text, bool is_failure) {
        announce(text, text, {}, is_failure);
    }
    // Those hosts and this one get the whole text, the others a line.
    void announce(const std::string& text, const std::string& line,
                  const std::vector<MemberId>& concerned, bool is_failure);

    // An agent is there that knows of a later round than the one to succeed.
    bool is_outdated() const { return membership_.is_outdated(); }
    int round() const { return membership_.round(); }  // 0: none was given out yet
    bool is_over() const { return membership_.is_over(); }
    // All members have heard of it, and closed their ends. Who was lost or refused, and strangers,
    // are not waited for.
    bool has_no_members() const;

private:
    struct Peer {
        Link link;
        Time came;
        std::optional<HostSize> joined = {};  // and was not refused
        bool ends_when_sent = false;
        std::optional<Time> ends_by = {};  // it has all, and closes its end
        std::string folder = {};           // for its logs
        bool watches_room = false;         // for sending, in the poller
        Time heard{};
    };
    void run_ready(MemberId id, Time now);
    void turn_away(MemberId id, const std::string& why);
    void handle(MemberId id, const FromMember& message, Time now);
    void join(MemberId id, const JoinMessage& message, Time now);
    void ended(MemberId id, const EndedMessage& message, Time now);
    void drained(MemberId id, const DrainedMessage& message, Time now);
    void refuse(MemberId id, const std::string& why);
    void carry_out(const MembershipActions& actions);
    void queue(MemberId id, const std::string& frame);
    void begin_round(const RoundMessage& round);
    void flush(MemberId id);
    void note_end(MemberId id);
    void close_ended(Time now);
    void close_if_ended(MemberId id, Time now);
    void make_room();
    void remove(MemberId id);
    void note_own_pause(Time now);
    void probe(Time now);

    MembershipRules rules_;
    Job job_;
    BeginRound begin_round_;
    Membership membership_;
    Poller events_;
    std::map<MemberId, Peer> links_;
    std::vector<MemberId> ending_;  // of them, those that may have ended; some may be gone
    Newcomers newcomers_;           // of them, those that have not joined, but for the own
    MemberId last_id_ = 0;
    MemberId own_member_ = 0;
    RefusalWords refusals_;
    RoundRecord record_;
    std::optional<Time> last_look_;
    Time next_probe_{};
    Time next_look_{};  // at the membership
};

}  // namespace ddp::launcher
