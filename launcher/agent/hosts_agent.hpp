// This agent's part in a job of several hosts: it looks for the coordinator, or is the coordinator
// itself, and turns what is decided there into what the agent does. A guest in the agent's loop.
// Invariant: workers run only between begin_part() and end_part(), and of a host that has lost the
// job they are killed.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/agent/attempt/attempt.hpp"
#include "launcher/agent/coordinator_role.hpp"
#include "launcher/agent/coordinator_search.hpp"
#include "launcher/agent/host_part.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/hosts/coordinator.hpp"
#include "launcher/hosts/member.hpp"
#include "launcher/hosts/membership/succession.hpp"
#include "launcher/hosts/start/hosts_job.hpp"
#include "launcher/process/poller.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

class HostsAgent {
public:
    using Time = Member::Time;

    struct Settings {
        HostsJob job;
        JoinMessage join;
        std::chrono::milliseconds grace{0};
        CoordinatorRole::Settings coordinator;  // where this agent is one
        // Of each member, once.
        std::function<void(const WelcomeMessage& job)> welcome;
    };
    // Borrows the channel and the poller; all of its descriptors get this tag there.
    HostsAgent(Settings settings, Channel& channel, Poller& events, Poller::Tag tag);
    ~HostsAgent();
    HostsAgent(const HostsAgent&) = delete;
    HostsAgent& operator=(const HostsAgent&) = delete;

    // What comes to the store's port is the coordinator's business.
    CoordinatorRole& role() { return role_; }

    // What is ready or due now; `attempt`: the part that runs, or null. Throws what welcome() does.
    void run(Attempt* attempt);
    std::optional<Time> next() const;

    // A round that is to be begun here, once.
    std::optional<RoundMessage> take_round() { return std::exchange(round_, std::nullopt); }
    // Its workers are about to be started. Throws Error where this host is not in it.
    HostPlace begin_part(const RoundMessage& round);
    bool wants_timelines() const { return welcome_->wants_timeline; }  // the coordinator does
    // Where this host has reached the coordinator, or serves itself.
    const MeetingPlace& meeting_place() const { return search_.meeting_place(); }
    // Told at once of a failure in the part that runs.
    void note_failure(const WorkerEnd& end, Time at) {
        if (member_) member_->ended(part_.round().round, at, end);
    }
    // Of the part that runs; this agent has to outlive it.
    TellHosts tell();
    // Nothing of the part lives here. `trouble`: why it could not start, go on or be ended.
    void end_part(const AttemptEnd& part, const WatchedWorkers& workers, std::string trouble,
                  int exit_code);

    // The agent is about to go, with the workers: the others need not wait for this host's lease.
    void give_up_part(const AttemptEnd& part) {
        if (member_ && part.survivors.empty()) member_->leave();
    }

    // The user of this host asks for the end, or for SIGKILL everywhere.
    void stop(int signal, Attempt* attempt);
    void kill();

    // The job is over for this host: with this exit code.
    std::optional<int> exit_code() const { return exit_code_; }
    // Whether it is that of the whole job, as the coordinator says.
    bool is_told_end() const { return is_told_end_; }
    // Whether all others have heard of it.
    bool has_said_all() const {
        return (!member_ || member_->has_said_all()) &&
               (coordinator() == nullptr || coordinator()->has_no_members());
    }

private:
    Coordinator* coordinator() const { return role_.coordinator(); }
    void coordinate(const MeetingPlace& place, base::UniqueFd own_link, Time now);
    void take_over(Time now);
    void step_down();
    bool is_joined() const { return member_ && member_->is_welcome(); }
    bool has_found_coordinator() const;
    void look_for_coordinator(Time now);
    using Found = CoordinatorSearch::Found;
    void give_up_connection(Found found, std::string why, Time now);
    JoinMessage join_message() const;
    void watch_member();
    void unwatch_member();
    void follow(const MemberOrder& order, Attempt* attempt);
    void follow(const StopRoundMessage& stop, Attempt* attempt);
    void look_at_loss(Attempt* attempt, Time now);
    bool may_have_successor() const;
    void finish(int exit_code, const std::string& text);
    void notice(std::string text) { channel_.send(NoticeMessage{std::move(text)}); }

    Settings settings_;
    Channel& channel_;
    Poller& events_;
    Poller::Tag tag_;
    CoordinatorRole role_;
    CoordinatorSearch search_;
    std::unique_ptr<Member> member_;
    std::optional<std::uint32_t> watched_;  // the events of the member's link in the poller
    std::optional<WelcomeMessage> welcome_;
    std::optional<RoundMessage> round_;  // given out, not yet begun
    HostPart part_;
    int leaves_with_ = 0;  // the signal, once the part has ended; 0: it stays
    std::optional<int> exit_code_;
    bool is_told_end_ = false;
};

// All but the functions, of a job that has hosts.
HostsAgent::Settings hosts_settings(const AgentJob& job);

}  // namespace ddp::launcher
