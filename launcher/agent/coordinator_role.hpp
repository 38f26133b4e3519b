// The coordinator of a job of several hosts while this agent is it, from the start or as the
// successor of another: the connections that come to its store's port, whose the clients on other
// hosts are, and who is to blame at the end of a round. A guest in the agent's loop.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/agent/round_judge.hpp"
#include "launcher/hosts/coordinator.hpp"
#include "launcher/hosts/inquiries/inquiries.hpp"
#include "launcher/hosts/job_progress.hpp"
#include "launcher/hosts/start/host_env.hpp"
#include "launcher/hosts/vouchers.hpp"
#include "launcher/inspect/run_view.hpp"
#include "launcher/process/poller.hpp"
#include "launcher/timeline/job_timeline.hpp"
#include "store/server/store_server.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

class CoordinatorRole {
public:
    using Time = Coordinator::Time;

    struct Settings {
        MembershipRules rules;
        Coordinator::Job job;  // of a successor: with the run's names that it was told
        RestartRule restarts;
        StopOptions stop;
        JobFacts facts;
        std::function<store::StoreServer&()> store;     // while others find this agent
        std::function<void(Outcome& outcome)> publish;  // at the end, once
        std::function<std::string()> report_file;       // as in JobFacts
        JobTimeline* timeline = nullptr;  // what all ranks do goes there; null: it is not wanted
        // What there is for a status line, at most four times a second, where job.wants_progress.
        std::function<void(const StatusMessage& status)> show_status;
        // Of a successor: others find it at this place from now on; else why not. And no more.
        std::function<std::string(const MeetingPlace& place)> serve;
        std::function<void()> stop_serving;
        bool serves = false;  // from the beginning
    };
    // Borrows the poller; its descriptor gets this tag there.
    CoordinatorRole(Settings settings, Poller& events, Poller::Tag tag);
    ~CoordinatorRole();
    CoordinatorRole(const CoordinatorRole&) = delete;
    CoordinatorRole& operator=(const CoordinatorRole&) = delete;

    // A connection that began as an agent's; it waits until there is a coordinator.
    void take_agent(base::UniqueFd connection, std::string received) {
        arrived_.emplace_back(std::move(connection), std::move(received));
    }
    // Null: this agent is none, now.
    Coordinator* coordinator() const { return coordinator_.get(); }
    // Returns the other end of its own member's link. Throws SystemError.
    base::UniqueFd begin(Time now);
    // The same for who succeeds the coordinator of that round, of which it was told `job`, with the
    // proof that members have to give. Throws Error where nobody can listen at that place.
    base::UniqueFd succeed(const RoundMessage& last, const WelcomeMessage& job,
                           const JobProof& proof, const MeetingPlace& place, Time now);
    // Of a job whose coordinator has no workers, while a round runs: what the next two fill.
    std::optional<RunView> view_without_workers() const;
    // Who holds up the job, or slows it down, now; where this agent coordinates it.
    void tell_verdict(RunView& view) const;
    // Asks all hosts of the round that runs what they show of their ranks; false: it need not be
    // waited for, as there is none, or this agent does not coordinate it.
    bool ask_for_rows(Time now);
    // Whether all have answered, or had their time.
    bool has_rows(Time now) const { return inquiries_.rows.is_answered(now); }
    void tell_rows(RunView& view) const;  // what they have; those of this host are there
    // How the round was when it had ended. `view`: of this host's ranks then. `is_fine`: nobody was
    // to blame.
    void tell_end(RunView& view, bool is_fine) const;
    // Another host coordinates: nobody finds this one any more, if anybody did.
    void end();

    void run(Time now);

private:
    void begin_round(const RoundMessage& round);
    void ask_about_clients();
    void hear(MemberId by, const FromMember& message);
    void note_timeline(MemberId by, const TimelineMessage& message);
    void look_at_silent(Time now);
    void look_for_hangs(Time now);
    void look_for_slow(Time now);
    void announce(const std::string& text, const std::vector<MemberId>& concerned);
    void show_progress(Time now);
    void drop();
    void judge_round(Time now);

    Settings settings_;
    Poller& events_;
    Poller::Tag tag_;
    RoundJudge judge_;
    Vouchers vouchers_;
    Inquiries inquiries_;
    RoundMessage round_;     // the last one
    bool is_judged_ = true;  // it has ended, and somebody was to blame, or nobody had to be
    JobProgress progress_;
    std::optional<StatusMessage> shown_;  // of it
    Time next_show_{};
    std::unique_ptr<Coordinator> coordinator_;
    std::vector<std::pair<base::UniqueFd, std::string>> arrived_;  // not yet taken
};

}  // namespace ddp::launcher
