// The launcher's command line. Its own part ends at the first token that is no option and no
// option's value: that token is the program, and all after it is the worker's, untouched ("--" in
// it too). Options are torchrun's where torchrun has them, with dashes or underscores.
#pragma once

#include "launcher/options/option_kinds.hpp"
#include "store/admission/store_peers.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launcher {

enum class Action { run, help, version, dry_run, print_config };

struct RendezvousOptions {  // where ranks meet
    std::string master_addr = "127.0.0.1";
    std::uint16_t master_port = 0;  // 0: a free one is found and held
    AgentStore agent_store = AgentStore::on;
    store::StorePeers store_peers = store::StorePeers::same_user;
    std::uint64_t store_bytes = std::uint64_t{256} << 20;  // of keys and values
    RendezvousBackend backend = RendezvousBackend::fixed;
    std::string endpoint;  // takes the place of the master's address and port
};

// What the command line says about the job's hosts, as text. PET_* are read beside it, each where
// its option is not here (hosts/start/host_env.hpp).
struct HostFlags {
    bool standalone = false;
    std::optional<std::string> nnodes = {};
    std::optional<std::string> node_rank = {};
    std::optional<std::string> master_addr = {};
    std::optional<std::string> master_port = {};
    std::optional<std::string> rdzv_endpoint = {};
    std::optional<std::string> rdzv_backend = {};
};

struct HostOptions {
    HostFlags flags;
    std::chrono::milliseconds node_timeout{5000};  // silence after which a host is lost
    Authentication authentication = Authentication::automatic;
    // --rdzv-conf; nothing: torchrun's default.
    std::optional<std::chrono::milliseconds> join_timeout = {};
    std::optional<std::chrono::milliseconds> last_call = {};
    bool serve_only = false;  // coordinates, and has no workers
};

struct ProgramOptions {  // what each worker executes
    ProgramKind kind = ProgramKind::automatic;
    std::string python;               // of scripts and modules; empty: find_interpreter()
    bool virtual_local_rank = false;  // LOCAL_RANK=0 and one visible GPU for each worker
    bool oversubscribe_gpu = false;   // ranks may share a GPU: tests only
    bool pass_local_rank = false;     // --local_rank=N before the worker's arguments
    std::string inject;               // a contract::Injection; empty: none
    std::vector<Wrap> wraps;
    std::vector<std::string> command;  // as given; empty: none is needed
};

struct RestartOptions {
    int max_restarts = 0;
    std::chrono::milliseconds delay{0};  // before the first restart; doubles each time
    // A restart is not worth it when the same rank fails the same way again so soon; 0: always.
    std::chrono::seconds same_failure_window{0};
};

struct StopOptions {                            // how the job ends
    std::chrono::seconds shutdown_timeout{30};  // between the signal that asks and SIGKILL
    std::vector<int> signals_to_handle{SIGTERM, SIGINT, SIGHUP, SIGQUIT};
    Containment contain = Containment::base;
    ExitCode exit_code = ExitCode::root_cause;
    bool break_on_failure = false;
    OnHang on_hang = OnHang::say;
    std::chrono::milliseconds hang_timeout{30'000};  // until it stops the job
    bool reads_stacks = true;                        // of ranks that hang
};

// What of the workers' output goes to files.
struct LogOptions {
    std::string dir;  // empty: no log files
    StreamsOfRanks redirects;
    StreamsOfRanks tee;
    bool history = true;  // the last view of the job stays, for ddp-launch inspect
    std::optional<MetricsAddress> metrics;
    std::string report_page;  // files that are written at the end; empty: not wanted
    std::string trace;
    std::string flight_prefix;    // of the ranks' flight records; empty: not wanted
    int flight_signal = SIGUSR1;  // at which they are written; 0: at none
    // Lines that hold one of these are kept once more, of all ranks together.
    std::vector<std::string> duplicate_stdout_filters;
    std::vector<std::string> duplicate_stderr_filters;
};

// What of it is shown, and how.
struct DisplayOptions {
    std::optional<std::vector<int>> local_ranks_filter;  // who is shown; nothing: all
    std::optional<std::vector<int>> ranks_filter;        // of the job, as well
    std::string line_prefix_template;                    // empty: "[rank] "
    StatusLine status = StatusLine::automatic;
    ClosedStdout on_closed_stdout = ClosedStdout::stop;
};

struct InputOptions {
    bool tty = false;  // each worker gets a pseudo-terminal
    StdinFor stdin_for = StdinFor::automatic;
    std::optional<int> stdin_rank;  // of StdinFor::rank: the job's
};

struct Options {
    Action action = Action::run;
    WorkerCount nproc_per_node;
    HostOptions hosts;
    RemoteOptions remote;
    std::string role = "default";
    std::string run_id;  // empty until the job starts: a random one then
    RendezvousOptions rendezvous;
    ProgramOptions program;
    RestartOptions restart;
    StopOptions stop;
    LogOptions logs;
    DisplayOptions display;
    InputOptions input;
};

// Reads a variable; nothing when it is not set.
using EnvLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Throws UsageError whose text is the one line to show: the option or variable, the value, what is
// allowed. A command line that asks for help or the version is not read any further.
Options parse_options(std::span<char* const> arguments, const EnvLookup& environment);

// Throws UsageError when an option names a local rank that is not below this number.
// parse_options() does it for a number; who counts workers later does it then.
void check_local_ranks(const Options& options, int workers);

std::string help_text();

// What --print-config prints: each option, its value, where that comes from.
std::string config_text(std::span<char* const> arguments, const EnvLookup& environment);

}  // namespace ddp::launcher
