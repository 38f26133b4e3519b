// Order is that of the help. Descriptions are one clause each; docs/launcher.md says more.
#include "launcher/options/option_table.hpp"

#include "base/net/address.hpp"
#include "launcher/options/did_you_mean.hpp"
#include "launcher/options/endpoint.hpp"
#include "launcher/options/option_values.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using G = OptionGroup;
using T = TorchrunCompat;
using Value = const GivenValue&;

constexpr Limits ports{0, 65535};
constexpr Limits counts{0, 1'000'000};
constexpr ByteLimits store_sizes{std::uint64_t{1} << 20, std::uint64_t{64} << 30};

// Of an option that torchrun fills with Python entry points: what it means when nothing is chosen.
void require_only(Value value, const std::string& only, const std::string& why) {
    if (value.text != only) fail_value(value, only + ": " + why);
}

// What the command line says; of variables hosts/start/host_env.hpp knows which is which.
void keep(std::optional<std::string>& flag, Value value) {
    if (!value.label.starts_with('$')) flag = value.text;
}

// name, alias, letter | value, default, variable | group, compat | description | what it does
constexpr std::array table{
    OptionSpec{"nproc-per-node", "np", "n", "N|gpu|cpu|auto", "1", "", G::job, T::better,
               "workers to start: a number, or what to count (also -np, as in mpirun)",
               [](Options& o, Value v) { o.nproc_per_node = parse_worker_count(v); }},
    OptionSpec{"standalone", "", "", nullptr, "off", "", G::job, T::same,
               "a job of this host alone: any free port, whatever address is given",
               [](Options& o, Value v) { o.hosts.flags.standalone = parse_flag(v); }},
    OptionSpec{"master-addr", "", "", "HOST", "127.0.0.1", "", G::job, T::same,
               "MASTER_ADDR of the workers: the host of node rank 0", [](Options& o, Value v) {
                   keep(o.hosts.flags.master_addr, v);
                   o.rendezvous.master_addr = base::without_brackets(v.text);
               }},
    OptionSpec{"master-port", "", "", "PORT", "0", "", G::job, T::better,
               "MASTER_PORT of the workers; 0: a free one, held from start to end",
               [](Options& o, Value v) {
                   keep(o.hosts.flags.master_port, v);
                   o.rendezvous.master_port = static_cast<std::uint16_t>(parse_int(v, ports));
               }},
    OptionSpec{"agent-store", "", "", "on|off", "on", "", G::job, T::own,
               "on: the launcher serves the workers' store; off: rank 0 does",
               [](Options& o, Value v) {
                   o.rendezvous.agent_store = parse_choice<AgentStore>(
                       v, {{"on", AgentStore::on}, {"off", AgentStore::off}});
               }},
    OptionSpec{"store-peers", "", "", "same-user|any", "same-user", "", G::job, T::own,
               "who may use the launcher's store: this user, root and the job's own processes, or "
               "anybody on this host",
               [](Options& o, Value v) {
                   o.rendezvous.store_peers = parse_choice<store::StorePeers>(
                       v, {{"same-user", store::StorePeers::same_user},
                           {"any", store::StorePeers::any}});
               }},
    OptionSpec{"store-memory", "", "", "BYTES", "256M", "", G::job, T::own,
               "most that keys and values in the launcher's store may take; with K, M or G",
               [](Options& o, Value v) { o.rendezvous.store_bytes = parse_bytes(v, store_sizes); }},
    OptionSpec{"role", "", "", "NAME", "default", "", G::job, T::same, "ROLE_NAME of the workers",
               [](Options& o, Value v) { o.role = parse_name(v); }},
    OptionSpec{"virtual-local-rank", "", "", nullptr, "off", "", G::job, T::same,
               "LOCAL_RANK=0 and one visible GPU for each worker",
               [](Options& o, Value v) { o.program.virtual_local_rank = parse_flag(v); }},
    OptionSpec{"oversubscribe-gpu", "", "", nullptr, "off", "", G::job, T::own,
               "test only: ranks may share a GPU, slowly (sets NCCL's variables for it)",
               [](Options& o, Value v) { o.program.oversubscribe_gpu = parse_flag(v); }},

    OptionSpec{"hosts", "", "", "HOST[:N],...", "none", "", G::hosts, T::own,
               "start the job on these hosts, with N workers each: --hosts=h1:4,h2:4",
               [](Options& o, Value v) { o.remote.hosts = v.text; }},
    OptionSpec{"hostfile", "", "", "FILE", "none", "", G::hosts, T::own,
               "the same, with a host a line: h1 slots=4",
               [](Options& o, Value v) { o.remote.hostfile = v.text; }},
    OptionSpec{"rsh", "", "", "COMMAND", "ssh -x -o BatchMode=yes -o ServerAliveInterval=10",
               "", G::hosts, T::own,
               "runs a command on one of them: COMMAND HOST WORDS...; in a Slurm allocation: srun",
               [](Options& o, Value v) { o.remote.rsh = parse_command(v); }},
    OptionSpec{"env", "", "", "NAME[=VALUE]", "none", "", G::hosts, T::own,
               "one more variable that they get; may be given several times",
               [](Options& o, Value v) { o.remote.env.push_back(parse_variable(v)); }},

    OptionSpec{"module", "", "m", nullptr, "off", "", G::program, T::same,
               "the program is a Python module: python3 -u -m PROGRAM",
               [](Options& o, Value v) {
                   if (!parse_flag(v)) return;
                   if (o.program.kind == ProgramKind::executable) {
                       throw UsageError(std::string(v.label) +
                                        ": a module needs Python; leave out --no-python");
                   }
                   o.program.kind = ProgramKind::module;
               }},
    OptionSpec{"no-python", "", "", nullptr, "off", "", G::program, T::same,
               "run the program itself, even when its name ends in .py",
               [](Options& o, Value v) {
                   if (!parse_flag(v)) return;
                   if (o.program.kind == ProgramKind::module) {
                       throw UsageError(std::string(v.label) +
                                        ": a module needs Python; leave out --module");
                   }
                   if (o.program.kind == ProgramKind::script) return;
                   o.program.kind = ProgramKind::executable;
               }},
    OptionSpec{"run-path", "", "", nullptr, "off", "", G::program, T::same,
               "the program is a Python script, whatever its name: python3 -u PROGRAM",
               [](Options& o, Value v) {
                   if (parse_flag(v)) o.program.kind = ProgramKind::script;
               }},
    OptionSpec{"python", "", "", "FILE", "", "", G::program, T::own,
               "the interpreter of scripts and modules, instead of $PYTHON_EXEC's and others",
               [](Options& o, Value v) { o.program.python = v.text; }},
    OptionSpec{"pass-local-rank", "", "", nullptr, "off", "", G::program, T::own,
               "give the program --local_rank=N as its first argument",
               [](Options& o, Value v) { o.program.pass_local_rank = parse_flag(v); }},
    OptionSpec{"use-env", "", "", nullptr, "off", "", G::program, T::same,
               "the local rank is in LOCAL_RANK alone: the opposite of --pass-local-rank",
               [](Options& o, Value v) { o.program.pass_local_rank = !parse_flag(v); }},

    OptionSpec{"max-restarts", "", "", "N", "0", "", G::restarts, T::same,
               "how often all workers are started again after a failure",
               [](Options& o, Value v) { o.restart.max_restarts = parse_int(v, counts); }},
    OptionSpec{"restart-delay", "", "", "SECONDS", "0", "", G::restarts, T::own,
               "wait before the first restart; doubles each time",
               [](Options& o, Value v) { o.restart.delay = parse_seconds(v); }},
    OptionSpec{"same-failure-window", "", "", "SECONDS", "0", "", G::restarts, T::own,
               "no restart when the same rank fails the same way again so soon; 0: restart",
               [](Options& o, Value v) {
                   o.restart.same_failure_window = std::chrono::seconds(parse_int(v, counts));
               }},
    OptionSpec{"shutdown-timeout", "", "", "SECONDS", "30", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
               G::restarts, T::better,
               "time between the signal that asks workers to stop and SIGKILL",
               [](Options& o, Value v) {
                   o.stop.shutdown_timeout = std::chrono::seconds(parse_int(v, counts));
               }},
    OptionSpec{"signals-to-handle", "", "", "NAMES", "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "",
               G::restarts, T::better,
               "signals to the launcher that stop the job and are passed on to workers",
               [](Options& o, Value v) { o.stop.signals_to_handle = parse_signals(v); }},
    OptionSpec{"exit-code", "", "", "root-cause|torchrun", "root-cause", "", G::restarts, T::own,
               "after a failure: the culprit's code (128 + signal), or 1",
               [](Options& o, Value v) {
                   o.stop.exit_code = parse_choice<ExitCode>(
                       v, {{"root-cause", ExitCode::root_cause}, {"torchrun", ExitCode::torchrun}});
               }},
    OptionSpec{"on-hang", "", "", "say|stop|off", "say", "", G::restarts, T::own,
               "when ranks wait for too long: say who holds them up; stop: also end the job then",
               [](Options& o, Value v) {
                   o.stop.on_hang = parse_choice<OnHang>(v, {{"say", OnHang::say},
                                                             {"stop", OnHang::stop},
                                                             {"off", OnHang::ignore}});
               }},
    OptionSpec{"hang-timeout", "", "", "SECONDS", "30", "", G::restarts, T::own,
               "how long a verdict has to stand until --on-hang=stop ends the job",
               [](Options& o, Value v) { o.stop.hang_timeout = parse_seconds(v); }},
    OptionSpec{"no-stacks", "", "", nullptr, "off", "", G::restarts, T::own,
               "do not stop ranks that hang for a moment to read where they are",
               [](Options& o, Value v) { o.stop.reads_stacks = !parse_flag(v); }},
    OptionSpec{"contain", "", "", "base|pidns", "base", "", G::restarts, T::own,
               "pidns: workers live in a PID namespace and die with it, whatever is killed",
               [](Options& o, Value v) {
                   o.stop.contain = parse_choice<Containment>(
                       v, {{"base", Containment::base}, {"pidns", Containment::pidns}});
               }},

    OptionSpec{"log-dir", "", "", "DIR", "", "", G::logs, T::better,
               "where log and error files are kept; without it nothing stays on disk",
               [](Options& o, Value v) { o.logs.dir = v.text; }},
    OptionSpec{"redirects", "", "r", "STREAMS", "0", "", G::logs, T::better,
               "to files only: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank: 0:3,12:1",
               [](Options& o, Value v) { o.logs.redirects = parse_streams(v); }},
    OptionSpec{"tee", "", "t", "STREAMS", "0", "", G::logs, T::better,
               "to files and to the console; as for --redirects",
               [](Options& o, Value v) { o.logs.tee = parse_streams(v); }},
    OptionSpec{"local-ranks-filter", "", "", "RANKS", "", "", G::logs, T::better,
               "only these local ranks are shown: 0,3 or 2-5; files are not affected",
               [](Options& o, Value v) { o.display.local_ranks_filter = parse_ranks(v); }},
    OptionSpec{"ranks-filter", "", "", "RANKS", "", "", G::logs, T::own,
               "only these ranks of the job are shown, on all hosts; files are not affected",
               [](Options& o, Value v) { o.display.ranks_filter = parse_ranks(v); }},
    OptionSpec{"duplicate-stdout-filters", "", "", "TEXTS", "", "", G::logs, T::same,
               "tee'd lines that hold one of these texts go to one more file: loss,error",
               [](Options& o, Value v) { o.logs.duplicate_stdout_filters = parse_texts(v); }},
    OptionSpec{"duplicate-stderr-filters", "", "", "TEXTS", "", "", G::logs, T::same,
               "the same for stderr",
               [](Options& o, Value v) { o.logs.duplicate_stderr_filters = parse_texts(v); }},
    OptionSpec{"log-line-prefix-template", "", "", "TEXT", "",
               "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", G::logs, T::better,
               "what stands before each line; ${role_name}, ${rank}, ${local_rank} are filled in",
               [](Options& o, Value v) { o.display.line_prefix_template = v.text; }},
    OptionSpec{"on-closed-stdout", "", "", "stop|continue", "stop", "", G::logs, T::own,
               "when nobody reads stdout any more: stop the job with 141, or go on unseen",
               [](Options& o, Value v) {
                   o.display.on_closed_stdout = parse_choice<ClosedStdout>(
                       v, {{"stop", ClosedStdout::stop}, {"continue", ClosedStdout::go_on}});
               }},
    OptionSpec{"no-history", "", "", nullptr, "off", "", G::logs, T::own,
               "once the job has ended, ddp-launch inspect does not know it",
               [](Options& o, Value v) { o.logs.history = !parse_flag(v); }},
    OptionSpec{"metrics", "", "", "ADDRESS", "", "", G::logs, T::own,
               "serve metrics for Prometheus at a PORT of loopback, HOST:PORT or unix:PATH",
               [](Options& o, Value v) { o.logs.metrics = parse_metrics_address(v); }},
    OptionSpec{"report", "", "", "FILE.html", "", "", G::logs, T::own,
               "at the end: how the job ended and what its ranks did, as one page for a browser",
               [](Options& o, Value v) { o.logs.report_page = parse_page_file(v); }},
    OptionSpec{"trace", "", "", "FILE.json", "", "", G::logs, T::own,
               "at the end: what its ranks did, for Perfetto and chrome://tracing",
               [](Options& o, Value v) { o.logs.trace = parse_trace_file(v); }},
    OptionSpec{"flight-recorder", "", "", "PREFIX", "", "", G::logs, T::own,
               "on a hang, a failure or SIGUSR1: the last collectives of rank N in PREFIXN, as "
               "PyTorch's flight recorder",
               [](Options& o, Value v) { o.logs.flight_prefix = v.text; }},
    OptionSpec{"flight-recorder-signal", "", "", "USR1|USR2|none", "USR1", "", G::logs, T::own,
               "at which --flight-recorder writes, instead of passing it on to the workers",
               [](Options& o, Value v) {
                   o.logs.flight_signal =
                       parse_choice<int>(v, {{"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"none", 0}});
               }},
    OptionSpec{"status", "", "", "auto|off", "auto", "", G::logs, T::own,
               "auto: a live line while stderr is a terminal",
               [](Options& o, Value v) {
                   o.display.status = parse_choice<StatusLine>(
                       v, {{"auto", StatusLine::automatic}, {"off", StatusLine::off}});
               }},

    OptionSpec{"wrap", "", "", "RANKS:COMMAND", "none", "", G::debugging, T::own,
               "run these local ranks (1, 0,3, 2-5, all) under a command: --wrap='1:gdb --args'",
               [](Options& o, Value v) { o.program.wraps.push_back(parse_wrap(v)); }},
    OptionSpec{"stdin", "", "", "RANK|all|none|auto", "auto", "", G::debugging, T::own,
               "who gets the launcher's input: a rank, all (each a copy) or none; auto: a single "
               "worker",
               [](Options& o, Value v) {
                   const WantedStdin wanted = parse_stdin(v);
                   o.input.stdin_for = wanted.who;
                   o.input.stdin_rank = wanted.rank;
               }},
    OptionSpec{"tty", "", "", nullptr, "off", "", G::debugging, T::own,
               "give each worker a terminal of its own (a pseudo-terminal)",
               [](Options& o, Value v) { o.input.tty = parse_flag(v); }},
    OptionSpec{"break-on-failure", "", "", nullptr, "off", "", G::debugging, T::own,
               "hold a rank that crashes for a debugger and print its pid",
               [](Options& o, Value v) { o.stop.break_on_failure = parse_flag(v); }},
    OptionSpec{"inject", "", "", "FAULT:rank=R@step=N", "", "", G::debugging, T::own,
               "a drill: that rank does kill, stop, exit, delay, slow, oom or mismatch there",
               [](Options& o, Value v) { o.program.inject = parse_inject(v); }},
    OptionSpec{"dry-run", "", "", nullptr, "off", "", G::debugging, T::own,
               "print each worker's variables and command; start nothing",
               [](Options& o, Value v) {
                   if (parse_flag(v)) o.action = Action::dry_run;
               }},
    OptionSpec{"print-config", "", "", nullptr, "off", "", G::debugging, T::own,
               "print each option, its value and where that comes from; start nothing",
               [](Options& o, Value v) {
                   if (parse_flag(v)) o.action = Action::print_config;
               }},

    OptionSpec{"nnodes", "", "", "N|MIN:MAX", "1:1", "", G::torchrun, T::same,
               "hosts of the job: so many, or as many as come",
               [](Options& o, Value v) {
                   parse_node_range(v);
                   keep(o.hosts.flags.nnodes, v);
               }},
    OptionSpec{"node-rank", "", "", "N", "0", "", G::torchrun, T::same,
               "number of this host in a job of N hosts",
               [](Options& o, Value v) {
                   parse_int(v, counts);
                   keep(o.hosts.flags.node_rank, v);
               }},
    OptionSpec{"node-timeout", "", "", "SECONDS", "5", "", G::torchrun, T::own,
               "silence after which a host is lost",
               [](Options& o, Value v) { o.hosts.node_timeout = parse_node_timeout(v); }},
    OptionSpec{"serve-only", "", "", nullptr, "off", "", G::torchrun, T::own,
               "coordinate a job of other hosts at the endpoint, without a program",
               [](Options& o, Value v) { o.hosts.serve_only = parse_flag(v); }},
    OptionSpec{"auth", "", "", "auto|required", "auto", "", G::torchrun, T::own,
               "required: other hosts need the token of $DDP_JOB_TOKEN_FILE to join; auto: where "
               "there is one",
               [](Options& o, Value v) {
                   o.hosts.authentication = parse_choice<Authentication>(
                       v, {{"auto", Authentication::automatic},
                           {"required", Authentication::required}});
               }},
    OptionSpec{"rdzv-backend", "", "", "static|c10d", "static", "", G::torchrun, T::same,
               "both mean: meet at the endpoint",
               [](Options& o, Value v) {
                   o.rendezvous.backend = parse_rendezvous_backend(v);
                   keep(o.hosts.flags.rdzv_backend, v);
               }},
    OptionSpec{"rdzv-endpoint", "", "", "HOST[:PORT],...", "", "", G::torchrun, T::better,
               "takes the place of --master-addr and --master-port; hosts behind the first take "
               "over when it is lost",
               [](Options& o, Value v) {
                   o.rendezvous.endpoint = v.text;
                   keep(o.hosts.flags.rdzv_endpoint, v);
               }},
    OptionSpec{"rdzv-id", "", "", "ID", "random", "", G::torchrun, T::same,
               "TORCHELASTIC_RUN_ID of the workers",
               [](Options& o, Value v) { o.run_id = parse_name(v); }},
    OptionSpec{"rdzv-conf", "", "", "KEY=VALUE,...", "", "", G::torchrun, T::same,
               "join_timeout (600), last_call_timeout (30), timeout (900, of a fixed number of "
               "hosts), in seconds; others are checked",
               [](Options& o, Value v) { apply_rendezvous_settings(v, o.hosts); }},
    OptionSpec{"local-addr", "", "", "HOST", "none", "", G::torchrun, T::same,
               "accepted; one host has nobody to tell it to", [](Options&, Value) {}},
    OptionSpec{"monitor-interval", "", "", "SECONDS", "0.1", "", G::torchrun, T::better,
               "accepted; the launcher is told of a death at once and polls nothing",
               [](Options&, Value v) { parse_seconds(v); }},
    OptionSpec{"start-method", "", "", "spawn|fork|forkserver", "spawn", "", G::torchrun, T::same,
               "accepted; workers are programs, started afresh, and there is nothing to fork",
               [](Options&, Value v) {
                   parse_choice<bool>(v, {{"spawn", true}, {"fork", true}, {"forkserver", true}});
               }},
    OptionSpec{"event-log-handler", "", "", "null", "null", "", G::torchrun, T::later,
               "null alone: handlers are Python entry points; --log-dir keeps a report in JSON",
               [](Options&, Value v) {
                   require_only(v, "null",
                                "handlers are Python entry points; --log-dir keeps a report in "
                                "JSON");
               }},
    OptionSpec{"logs-specs", "", "", "default", "default", "", G::torchrun, T::later,
               "default alone: others are Python entry points; use --log-dir, --redirects, --tee",
               [](Options&, Value v) {
                   require_only(v, "default",
                                "other log specs are Python entry points; use --log-dir, "
                                "--redirects and --tee");
               }},
    OptionSpec{"numa-binding", "", "", "MODE", "none", "", G::torchrun, T::later,
               "not there yet; --wrap='all:numactl ...' does it by hand", nullptr},

    OptionSpec{"help", "", "h", nullptr, "off", "", G::other, T::same, "show all options",
               [](Options& o, Value) { o.action = Action::help; }},
    OptionSpec{"version", "", "", nullptr, "off", "", G::other, T::own, "show the version",
               [](Options& o, Value) { o.action = Action::version; }},
};

std::string with_dashes(std::string_view name) {
    std::string result(name);
    std::replace(result.begin(), result.end(), '_', '-');
    return result;
}

// What other launchers (accelerate, deepspeed, srun) and torch.multiprocessing call the same thing.
constexpr std::array<std::pair<std::string_view, const char*>, 12> words_of_others{{
    {"nprocs", "nproc-per-node"},
    {"nprocs-per-node", "nproc-per-node"},
    {"num-procs", "nproc-per-node"},
    {"num-processes", "nproc-per-node"},
    {"num-gpus", "nproc-per-node"},
    {"ntasks", "nproc-per-node"},
    {"ntasks-per-node", "nproc-per-node"},
    {"num-nodes", "nnodes"},
    {"num-machines", "nnodes"},
    {"machine-rank", "node-rank"},
    {"main-process-ip", "master-addr"},
    {"main-process-port", "master-port"},
}};

std::optional<std::string> suggestion_for(const std::string& dashed) {
    for (const auto& [word, name] : words_of_others) {
        if (dashed == word) return std::string("--") + name;
    }
    std::vector<std::string> names;
    names.reserve(std::size(table));
    for (const OptionSpec& spec : table) names.emplace_back(std::string("--") + spec.name);
    return did_you_mean("--" + dashed, names);
}

[[noreturn]] void fail_unknown(std::string_view token, const std::string& dashed) {
    const auto near = suggestion_for(dashed);
    throw UsageError("unknown option " + std::string(token) +
                     (near ? "; did you mean " + *near + "?" : "; --help lists the options"));
}

}  // namespace

bool OptionSpec::adds_up() const {
    const std::string_view me = name;
    return me == "wrap" || me == "env";
}

std::string OptionSpec::pet_variable() const {
    const std::string_view me = name;
    const bool has_one = compat != TorchrunCompat::own && me != "use-env" && me != "help" &&
                         me != "logs-specs" && me != "numa-binding";
    if (!has_one) return {};
    std::string result = "PET_";
    for (const char c : me) {
        result += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return result;
}

std::span<const OptionSpec> option_table() { return table; }

const char* title_of(OptionGroup group) {
    switch (group) {
        case OptionGroup::job:
            return "The job";
        case OptionGroup::hosts:
            return "Several hosts";
        case OptionGroup::program:
            return "The program";
        case OptionGroup::restarts:
            return "Failures, signals, restarts";
        case OptionGroup::logs:
            return "Logs";
        case OptionGroup::debugging:
            return "Debugging";
        case OptionGroup::torchrun:
            return "For torchrun's command lines";
        case OptionGroup::other:
            return "Other";
    }
    return "";
}

const OptionSpec& find_option(std::string_view token, std::string_view name) {
    const std::string dashed = with_dashes(name);
    std::vector<const OptionSpec*> found;
    for (const OptionSpec& spec : table) {
        const std::string_view alias = spec.alias;
        if (dashed == spec.name || (!alias.empty() && dashed == alias)) return spec;
        if (std::string_view(spec.name).starts_with(dashed)) found.push_back(&spec);
    }
    if (dashed.empty() || found.empty()) fail_unknown(token, dashed);
    if (found.size() == 1) return *found.front();
    std::string candidates;
    for (const OptionSpec* spec : found) {
        candidates += (candidates.empty() ? "--" : ", --") + std::string(spec->name);
    }
    throw UsageError("option " + std::string(token) + " is ambiguous: it may be " + candidates);
}

const OptionSpec* find_letter(char letter) {
    for (const OptionSpec& spec : table) {
        if (*spec.letter == letter) return &spec;
    }
    return nullptr;
}

}  // namespace ddp::launcher
