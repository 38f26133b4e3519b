// What the front does from the agent's start to its end: it relays signals, prints what comes from
// the agent, and cleans up when that has died.
#pragma once

#include "base/unique_fd.hpp"
#include "contract/host_link.hpp"
#include "launcher/channel/channel.hpp"
#include "launcher/channel/line_cutter.hpp"
#include "launcher/console/console.hpp"
#include "launcher/options/options.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/process_sweep.hpp"
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

// Whether this process may have children that are neither the agent nor below it.
enum class Strangers { none, possible };

class Front {
public:
    Front(AgentHandle agent, SignalReader& signals, const Options& options, Strangers strangers,
          ConsoleSettings console, const contract::HostLink& host)
        : agent_(std::move(agent)),
          signals_(signals),
          parent_liveness_(host.parent_liveness_fd()),
          failure_policy_(host.failure_policy()),
          stop_signals_(options.signals_to_handle),
          grace_(options.shutdown_timeout),
          on_closed_stdout_(options.on_closed_stdout),
          strangers_(strangers),
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
    void note_strangers();
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
    int parent_liveness_;  // -1 when there is no host, or no more
    contract::FailurePolicy failure_policy_;
    std::string report_;                   // the last one
    std::vector<contract::RankEnd> ends_;  // when the host judges
    std::vector<int> stop_signals_;
    std::chrono::milliseconds grace_;
    ClosedStdout on_closed_stdout_;
    Strangers strangers_;
    ExcludedProcesses pre_existing_;  // the strangers of the last look
    Clock::time_point look_for_strangers_at_{};
    std::string left_;  // what an agent that has ended by itself may have told already
    Console console_;
    std::optional<ExitStatus> agent_end_;
    std::optional<int> done_;
    std::optional<Clock::time_point> stop_asked_at_;
    std::optional<Clock::time_point> agent_must_end_by_;
    std::optional<Clock::time_point> agent_killed_at_;  // by us
    std::chrono::milliseconds time_to_die_{5000};       // from then on
    bool agent_stopped_ = false;                        // as by SIGSTOP
    bool gave_up_ = false;
    int interrupts_ = 0;
    int workers_running_ = 0;
    bool channel_drained_ = false;
};

}  // namespace ddp::launcher
