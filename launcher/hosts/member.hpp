// The member's end of its link: it joins, sends beats, holds the lease of this host, and hands on
// what the coordinator says. A guest in the agent's loop; it knows no worker.
// Invariant: a round is handed out only while the lease holds, and once is_lost() the workers of
// this host have no right to run.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/hosts/job_proof.hpp"
#include "launcher/hosts/lease.hpp"
#include "launcher/hosts/link.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts/vouchers.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <variant>

namespace ddp::launcher {

// Not said by the coordinator, but of it: its kernel has acknowledged nothing for a while, or does
// so again.
struct CoordinatorSilence {
    bool is_over = false;
};
// What the coordinator said, in the order in which it did; beats are the member's own matter.
using MemberOrder = std::variant<WelcomeMessage, WaitMessage, RoundMessage, StopRoundMessage,
                                 KillRoundMessage, LookMessage, ShowMessage, ReadMessage,
                                 SayMessage, RefusedMessage, FinishMessage, CoordinatorSilence>;

// Of two steady clocks, by the fastest of the last answers. Wrong by at most half of that round
// trip, where the question left after `asked`, the answer was read before `now`, and the other's
// time was taken between.
class ClockOffset {
public:
    // A question left at `asked`, by our clock, and its answer, with the other's, is here at `now`.
    void note(std::int64_t asked_ns, std::int64_t others_ns, std::int64_t now_ns);
    // The other's clock when ours shows this; the same before the first answer.
    std::int64_t to_others(std::int64_t ours_ns) const;

private:
    struct Sample {
        std::int64_t round_trip_ns;
        std::int64_t offset_ns;
    };
    std::deque<Sample> samples_;
};

class Member {
public:
    using Time = Lease::Time;

    static constexpr std::chrono::milliseconds between_beats{250};

    // `node_timeout`: until the coordinator says another. `proof`: the job's; where there is one,
    // nothing but the hello goes out in the clear, and whoever answers without the token is
    // refused.
    Member(JoinMessage join, std::chrono::milliseconds node_timeout, JobProof proof = {});

    // From the connection on; the hello, the join and the first beat go out at once, in TLS as soon
    // as the coordinator has proved itself.
    void begin(base::UniqueFd connection, Time now);
    bool has_begun() const { return link_.has_value(); }
    Time began() const { return began_; }
    // Whether the coordinator has taken it in.
    bool is_welcome() const { return is_welcome_; }
    // Whether what answers has proved that it is of this job; also where no proof is asked for. Not
    // so: what it says may be of another job.
    bool trusts_coordinator() const {
        return may_speak() && (!link_ || link_->tls_refusal().empty());
    }
    // By which it could coordinate the job itself, once it is welcome.
    const JobProof& proof() const { return proof_; }

    int fd() const { return link_ ? link_->fd() : -1; }
    bool wants_to_send() const { return link_ && link_->wants_to_send(); }
    void run_ready();
    // At least four times a second.
    void look_at_time(Time now);
    std::optional<Time> next() const;

    std::optional<MemberOrder> take_order(Time now);

    // Why this host is no part of the job any more: its lease is over, or the connection has ended
    // before the job did, and all orders are taken. Empty: it is.
    const std::string& lost() const { return lost_; }
    // Until when its workers may act.
    std::optional<Time> lease_ends() const { return lease_.ends(); }
    std::string own_address() const { return link_ ? link_->own_address() : ""; }

    void started(int round);
    void progress(const ProgressMessage& message) { send(message); }
    void paces(PacesMessage message) { send(std::move(message)); }
    void rows(RowsMessage message) { send(std::move(message)); }
    void stacks(StacksMessage message) { send(std::move(message)); }
    void threads(ThreadsMessage message) { send(std::move(message)); }
    void readings(ReadingsMessage message) { send(std::move(message)); }
    void saw(SightingMessage message);       // by this host's clock
    void timeline(TimelineMessage message);  // likewise
    void ended(int round, Time at, WorkerEnd end);
    void drained(DrainedMessage message);
    void leave();
    void ask_to_stop(int signal);
    // Whether the other side has all of it, or never will.
    bool has_said_all() const { return !wants_to_send(); }

private:
    void send(const FromMember& message);
    void send_in_turn(const FromMember& message);
    bool may_speak() const { return proof_.tls || proof_.credential_for.empty(); }
    void begin_speaking();
    void handle(FromCoordinator message);
    void take_credential(const FromCoordinator& message);
    void refuse(std::string why);
    void look_at_tls();
    void lose(const std::string& why);
    void look_at_silence();

    JoinMessage join_;
    JobProof proof_;
    std::optional<Link> link_;
    Time began_{};
    bool is_welcome_ = false;
    bool counts_lease_ = false;  // since then
    Lease lease_;
    ClockOffset clock_;
    std::int64_t echo_ns_ = 0;  // the coordinator's clock, as it told last
    Time next_beat_{};
    std::deque<MemberOrder> orders_;
    bool is_silent_ = false;  // the coordinator's host, as was told
    bool is_over_ = false;    // the coordinator has said the last word
    std::string lost_;
    Voucher voucher_;
};

}  // namespace ddp::launcher
