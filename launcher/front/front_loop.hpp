// What the front does from the agent's start to its end: it relays signals, prints what comes from
// the agent, and cleans up when that has died.
#pragma once

#include "base/unique_fd.hpp"
#include "contract/host_link.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/channel/line_cutter.hpp"
#include "launcher/console/console.hpp"
#include "launcher/front/stranger_watch.hpp"
#include "launcher/options/options.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/signals.hpp"
#include "launcher/worker/worker.hpp"

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {

struct AgentHandle {
    pid_t pid;
    base::UniqueFd pidfd;
    Channel channel;
    OutputPipe messages;  // the agent's stderr
    LineCutter message_lines{};
};

class Front {
public:
    // `signals` and `options` are borrowed and outlive the front.
    Front(AgentHandle agent, SignalReader& signals, const Options& options, StrangerWatch strangers,
          ConsoleSettings console, const contract::HostLink& host)
        : agent_(std::move(agent)),
          signals_(signals),
          options_(options),
          host_{host.parent_liveness_fd(),
                host.is_starter(),
                host.shows_status(),
                host.greeting(),
                host.failure_policy(),
                {},
                {}},
          strangers_(std::move(strangers)),
          console_(std::move(console), STDOUT_FILENO, STDERR_FILENO) {}
    int run();
    // The agent could not be killed, and is left behind.
    bool gave_up() const { return gave_up_; }
    void give(const std::vector<std::string>& notices);
    // What the host is told.
    contract::LaunchEnd end(int exit_code) const;

private:
    using Clock = Console::Clock;

    bool finished() const;
    int abandon(const std::string& why);
    void wait_and_handle();
    int wait_time() const;
    void handle_signals();
    void handle_end_of_host();
    void report(std::string text);
    void handle_messages();
    void handle(const Message& message);
    void handle_agent_end();
    void look_at_children();
    void look_at_agent();
    void limit_agent(Clock::time_point end_by);
    void continue_agent();
    void leave_agent();
    void ask_to_stop(int signal);
    void end_hanging_agent();
    void handle_agents_log();
    void run_console();
    void handle_closed_outputs();
    bool stdout_ends_the_job() const;
    bool lost_output() const;
    int exit_code() const;
    int exit_code_without_done() const;

    AgentHandle agent_;
    SignalReader& signals_;
    const Options& options_;
    // The program that launched the job, and what it is to be told.
    struct Host {
        int parent_liveness;  // -1 when there is no host, or no more
        bool is_starter;      // on another host
        bool shows_status;
        std::string greeting;  // of the starter
        contract::FailurePolicy failure_policy;
        std::string report;                   // the last one
        std::vector<contract::RankEnd> ends;  // when the host judges
    } host_;
    StrangerWatch strangers_;
    // Who could not be killed; shown where the agent, which ended by itself, has said nothing.
    std::string survivors_;
    Console console_;
    std::optional<ExitStatus> agent_end_;
    std::optional<int> done_;
    struct StopRequests {
        std::optional<Clock::time_point> first_at;
        int interrupts = 0;
    } stop_;
    // Until when the agent may live, and what it has after our SIGKILL.
    struct AgentDeadline {
        std::optional<Clock::time_point> end_by;
        std::optional<Clock::time_point> killed_at;
        std::chrono::milliseconds time_to_die{5000};
    } agent_deadline_;
    bool agent_stopped_ = false;  // as by SIGSTOP
    bool gave_up_ = false;
    int workers_running_ = 0;
    bool channel_drained_ = false;
};

}  // namespace ddp::launcher
