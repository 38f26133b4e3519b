// The order of events matters in one place: workers' pidfds, whose order says who failed first.
#include "launcher/agent/attempt/attempt.hpp"

#include "base/deadline.hpp"
#include "base/log.hpp"
#include "base/net/socket.hpp"
#include "contract/exit_code.hpp"
#include "launcher/agent/attempt/debugger_stops.hpp"
#include "launcher/agent/attempt/likely_stop.hpp"
#include "launcher/console/output_rules.hpp"
#include "launcher/plan/error_folder.hpp"
#include "launcher/plan/visible_gpus.hpp"
#include "launcher/plan/worker_variables.hpp"
#include "launcher/process/descriptor_limit.hpp"
#include "launcher/timeline/timeline_files.hpp"
#include "launcher/verdict/verdict_text.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <utility>

namespace ddp::launcher {
namespace {

using Clock = StopSequence::Clock;
using std::chrono::milliseconds;

constexpr milliseconds sweep_time{5000};

void log_step(const Worker& worker, const std::string& step) {
    base::log_debug("launcher", "rank " + std::to_string(worker.local_rank) + " (pid " +
                                    std::to_string(worker.process.pid()) + ") " + step);
}

// `known`: what the attempt alone knows.
JobVariables job_variables(const AgentJob& job, const Attempt::Numbers& numbers,
                           AttemptVariables known) {
    JobVariables variables = job.plan.variables;
    variables.master_port = job.rendezvous.port;
    known.held_port = job.rendezvous.holder.get();
    known.restart_count = numbers.restarts;
    known.place = numbers.place;
    variables.attempt = std::move(known);
    return variables;
}

}  // namespace

Attempt::Attempt(AttemptContext context, const Numbers& numbers)
    : agent_(std::move(context)),
      numbers_(numbers),
      error_files_(agent_.tree.wanted() ? agent_.tree.error_files(numbers.attempt)
                                        : error_files_in(agent_.job.error_folder)),
      control_(contract::ControlRegion::create(
          agent_.job.plan.workers(),
          agent_.job.keeps_timelines ? JobTimeline::entries_for(numbers.place.world_size) : 0)) {
    agent_.events.add(relay_.fd(), EPOLLIN, agent_.tags.pipes);
}

Attempt::~Attempt() {
    input_.reset();  // and with it its place in the poller
    agent_.events.remove(relay_.fd());
    for (const Worker& worker : workers_) {
        if (worker.running()) agent_.events.remove(worker.process.pidfd());
    }
}

void Attempt::prepare() {
    require_descriptors_for(agent_.job.plan.workers());
    if (agent_.tree.wanted()) {
        agent_.logs.open(agent_.job.plan.workers(), numbers_.attempt);
    } else {
        make_error_folder(agent_.job.error_folder);
    }
    relay_.begin_attempt(agent_.job.plan.workers(), numbers_.place.first_rank);
}

void Attempt::start_workers(const rlimit& users_descriptor_limit, const std::string& store_socket) {
    const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!null) throw SystemError("open /dev/null", errno);
    const std::vector<std::string> inherited = own_environment();
    const JobVariables variables = job_variables(agent_.job, numbers_,
                                                 {.store_socket = store_socket,
                                                  .error_files = error_files_,
                                                  .control = control_.handover(control_.fd())});
    if (agent_.job.handed.in_for_all) input_.emplace(agent_.job.handed.in.get());
    workers_.reserve(static_cast<std::size_t>(agent_.job.plan.workers()));
    for (int rank = 0; rank < agent_.job.plan.workers(); ++rank) {
        const RankOfWorker both{rank, numbers_.place.first_rank + rank};
        const WorkerCommand& command = agent_.job.plan.commands[static_cast<std::size_t>(rank)];
        WorkerStart start{
            command.path, command.arguments, worker_environment(variables, rank, inherited),
            agent_.job.handed.for_worker(both.local, both.global, null.get(), control_.fd()),
            users_descriptor_limit};
        if (rank == 0) start.descriptors.held_port = agent_.job.rendezvous.holder.get();
        const base::UniqueFd input = input_ ? input_->add_worker() : base::UniqueFd();
        if (input) start.descriptors.in = input.get();
        const std::size_t index = workers_.size();
        const bool terminal =
            agent_.job.options.input.tty || is_only_shown(agent_.job.options, both, Stream::out);
        Worker& worker = workers_.emplace_back(
            start_worker(std::move(start), rank, terminal ? agent_.job.terminal : std::nullopt));
        agent_.events.add(worker.process.pidfd(), EPOLLIN, agent_.tags.worker(index));
        relay_.add_pipes_of(index);
        agent_.channel.queue(StateMessage{WorkerState::started, rank, worker.process.pid()});
        log_step(worker, "started: " + command.path);
    }
    if (input_) agent_.events.add(input_->fd(), EPOLLIN, agent_.tags.input);
    watch_.begin(Clock::now());
    oom_before_ = read_oom_counts();  // now, while the workers get ready
}

void Attempt::request_stop(int signal, milliseconds grace) {
    if (may_be_stopped_from_outside()) {
        user_signal_ = signal;
        announces_stop_ = false;
    }
    leftovers_.shorten(Clock::now() + grace);
    stop_.on_signal(signal, Clock::now(), grace);
}

void Attempt::kill_soon() {
    leftovers_.shorten(Clock::now());
    stop_.kill_now(Clock::now());
}

void Attempt::hold_output(bool hold) { relay_.hold(hold, agent_.events, agent_.tags.pipes); }

void Attempt::kill_now() const {
    for (const Worker& worker : workers_) {
        if (worker.running()) worker.process.signal_group(SIGKILL);
    }
}

void Attempt::signal_workers(int signal) const {
    for (const Worker& worker : workers_) {
        if (worker.running()) worker.process.signal(signal);
    }
}

void Attempt::apply_stop_sequence() {
    while (const auto signal = stop_.due(Clock::now())) send_to_living(*signal);
}

void Attempt::send_to_living(int signal) {
    // Who has ended already must not be counted among those that we stopped.
    for (std::size_t i = 0; i < workers_.size(); ++i) note_end(i);
    for (Worker& worker : workers_) {
        if (!worker.running()) continue;
        if (std::exchange(announces_stop_, false)) announce_stop();
        if (worker.stopped_with == 0) worker.asked_to_stop_at = Clock::now();
        worker.stopped_with = signal;
        log_step(worker, signal_name(signal) + " to its process group");
        worker.process.signal_group(signal);
        // A stopped process sees no other signal than SIGKILL.
        if (signal != SIGKILL) worker.process.signal_group(SIGCONT);
    }
}

void Attempt::note_end(std::size_t index) {
    Worker& worker = workers_[index];
    if (!worker.running()) return;
    worker.ended = worker.process.reap();
    if (!worker.ended) return;
    worker.ended_at = Clock::now();
    order_.push_back(index);
    agent_.events.remove(worker.process.pidfd());
    agent_.channel.queue(StateMessage{WorkerState::ended, worker.local_rank, worker.process.pid(),
                                      *worker.ended, worker.stopped_with});
    log_step(worker, "ended: " + to_string(*worker.ended));
    if (!worker.ended->ok() && !stop_.active()) {
        if (agent_.on_failure) tell_of_failure(index);
        start_failure_stop();
    }
    note_children();
}

// In a tree error files may lie on a file system that hangs.
std::optional<FirstFailure> Attempt::failure_so_far() const {
    HostWorkers so_far = host_workers();
    so_far.gpu_of = nullptr;
    const ErrorTexts texts = agent_.tree.wanted() ? ErrorTexts::unknown : ErrorTexts::known;
    return first_failure(ends_of(so_far, texts), texts);
}

void Attempt::tell_of_failure(std::size_t index) const {
    HostWorkers one = host_workers();
    const std::array order{index};
    one.order = order;
    const ErrorTexts texts = agent_.tree.wanted() ? ErrorTexts::unknown : ErrorTexts::known;
    agent_.on_failure(ends_of(one, texts).front(), workers_[index].ended_at);
}

void Attempt::announce_stop() {
    if (const auto failure = failure_so_far()) {
        agent_.channel.send(FailureMessage{failure->text +
                                           "; stopping the others: SIGTERM now, SIGKILL after " +
                                           base::to_string(agent_.grace())});
    }
}

void Attempt::start_failure_stop() {
    if (all_ended() || agent_.job.failure_policy == contract::FailurePolicy::tell_host) return;
    if (const auto failure = failure_so_far()) {
        set_abort_word(failure->ended);
    }
    if (stop_may_come_until()) {
        stop_.on_likely_stop(Clock::now(), agent_.grace());
    } else {
        stop_.on_failure(Clock::now(), agent_.grace());
    }
    announces_stop_ = true;
}

// The first one counts.
void Attempt::set_abort_word(int rank) {
    std::uint32_t none = 0;
    control_.header().abort_word.compare_exchange_strong(none, 1 + static_cast<std::uint32_t>(rank),
                                                         std::memory_order_release);
}

void Attempt::stop_because_of(int rank) {
    leftovers_.shorten(Clock::now() + agent_.grace());
    if (rank < 0) return stop_.on_signal(SIGTERM, Clock::now(), agent_.grace());
    set_abort_word(rank);
    stop_.on_failure(Clock::now(), agent_.grace());
}

// Who looks at the abort word is told of a rank of this host: no other is known to have failed.
void Attempt::end_now() {
    set_abort_word(numbers_.place.first_rank);
    kill_soon();
}

void Attempt::set_lease(Time ends) {
    control_.header().lease_end_ns.store(
        std::chrono::duration_cast<std::chrono::nanoseconds>(ends.time_since_epoch()).count(),
        std::memory_order_release);
}

bool Attempt::may_be_stopped_from_outside() const {
    if (user_signal_ != 0) return false;
    if (all_ended() && !all_fine()) return stop_may_come_until().has_value();
    return (!stop_.active() && !killed_orphans_.complete) || stop_may_come_until();
}

std::optional<Attempt::Time> Attempt::stop_may_come_until() const {
    return launcher::stop_may_come_until(workers_, order_,
                                         agent_.job.options.stop.signals_to_handle);
}

// Daemons and other orphans that ended are zombies of ours. A worker among them is left to its
// pidfd, which knows the order.
void Attempt::note_children() {
    watch_.look_at_processes();
    if (agent_.job.options.stop.break_on_failure && may_read_error_files()) {
        const std::string held = describe_newly_stopped(workers_, error_files_);
        if (!held.empty()) agent_.channel.send(NoticeMessage{held, true});
    }
    for (;;) {
        siginfo_t info{};
        if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        const bool is_worker = std::any_of(workers_.begin(), workers_.end(), [&](const Worker& w) {
            return w.running() && w.process.pid() == info.si_pid;
        });
        if (is_worker) return;
        if (info.si_pid == agent_.logs.pid()) {
            agent_.logs.reap();
            continue;
        }
        ::waitid(P_PID, static_cast<id_t>(info.si_pid), &info, WEXITED | WNOHANG);
    }
}

void Attempt::look_at_workers() {
    const auto to_blame = watch_.look(watched(), stop_.active(), agent_.channel, agent_.tell);
    if (to_blame) stop_because_of(*to_blame);
}

void Attempt::pass_input() {
    if (!input_) return;
    input_->run(Clock::now());
    std::string notice = input_->take_notice();
    if (!notice.empty()) agent_.channel.send(NoticeMessage{std::move(notice)});
}

std::optional<Attempt::Time> Attempt::wakes_at() const {
    std::optional<Time> first;
    for (const auto& time :
         {stop_.next(), watch_.next(stop_.active()), input_ ? input_->wakes_at() : first}) {
        if (time) first = std::min(first.value_or(Time::max()), *time);
    }
    return first;
}

ExcludedProcesses Attempt::excluded() const {
    ExcludedProcesses own{agent_.logs.pid(), watch_.stack_reader()};
    for (const pid_t pid : agent_.flight.children()) own.add(pid);
    return own;
}

std::optional<Attempt::Time> Attempt::end_leftovers(Time now) {
    const auto look_again = leftovers_.look(now, stop_, agent_.grace(), excluded());
    const std::string asked = leftovers_.take_asked();
    // Of a job that was stopped or failed nobody expects that something goes on.
    if (!asked.empty() && all_fine()) {
        agent_.channel.send(NoticeMessage{"left running by the workers: " + asked +
                                          "; SIGTERM now, SIGKILL after " +
                                          base::to_string(agent_.grace())});
    }
    return look_again;
}

// What the workers leave behind may still write, also into the error files that tell whose fault
// it was.
void Attempt::sweep() {
    for (std::size_t i = 0; i < workers_.size(); ++i) note_end(i);
    input_.reset();  // and with it its place in the poller
    watch_.end_reading_stacks();
    killed_orphans_ = sweep_descendants(base::Deadline::after(sweep_time), excluded());
    for (Worker& worker : workers_) {
        if (!worker.running()) continue;
        agent_.events.remove(worker.process.pidfd());
        worker.left_to_sweep = true;
    }
    const std::string missed = missed_drill(agent_.job.options.program.inject, watched());
    if (numbers_.attempt == 0 && !missed.empty()) agent_.channel.send(NoticeMessage{missed});
}

WatchedWorkers Attempt::watched() const {
    return {control_, workers_, numbers_.place.first_rank, numbers_.place.world_size};
}

bool Attempt::all_fine() const {
    return all_ended() && std::all_of(workers_.begin(), workers_.end(),
                                      [](const Worker& worker) { return worker.ended->ok(); });
}

// In a tree the log writer has a call to the file system that hangs, or has just had others done.
bool Attempt::may_read_error_files() const {
    return !agent_.tree.wanted() || !agent_.logs.unresponsive();
}

// The agent itself looks for none there: the file system may hang. Of workers that ended well, and
// when nobody is left to be told, none is wanted.
bool Attempt::copy_error_files() {
    if (!agent_.tree.wanted()) return false;
    const bool wanted = agent_.channel.open() && !all_fine();
    try {
        if (wanted) make_error_folder(agent_.job.error_folder);
    } catch (const SystemError&) {
        // No place for copies: then from where they lie.
        if (may_read_error_files()) return false;
    }
    error_files_ = error_files_in(agent_.job.error_folder);
    if (wanted)
        agent_.logs.copy_error_files(agent_.job.plan.workers(), numbers_.attempt,
                                     agent_.job.error_folder);
    return wanted;
}

AttemptEnd Attempt::end() const {
    return {.workers = host_workers(),
            .job = {.workers = static_cast<int>(workers_.size()),
                    .user_signal = user_signal_,
                    .exit_code = agent_.job.options.stop.exit_code,
                    .facts = {.host = base::host_name(),
                              .attempt = 1 + numbers_.attempt,
                              .attempts = 1 + agent_.job.options.restart.max_restarts,
                              .report_file =
                                  agent_.logs.unresponsive() ? "" : agent_.tree.report_file(),
                              .wants_json = !agent_.job.options.logs.report_page.empty(),
                              .hang = agent_.tell.sighting ? std::nullopt : watch_.facts(watched()),
                              .slow = watch_.slow(),
                              .lines = agent_.job.lines},
                    .error_files = error_files_},
            .survivors = killed_orphans_.complete
                             ? ""
                             : "could not be killed: " + describe_survivors(killed_orphans_),
            .seen = agent_.tell.sighting ? watch_.see_end(watched()) : Sighting{}};
}

HostWorkers Attempt::host_workers() const {
    return {.workers = workers_,
            .order = order_,
            .first_rank = numbers_.place.first_rank,
            .world_size = numbers_.place.world_size,
            .error_files = error_files_,
            .oom_before = oom_before_,
            .gpu_of =
                [this](int rank) {
                    return gpu_of(agent_.job.options, listed_gpus(from_environment), rank);
                },
            .last_call_of = [this](int rank) { return last_call_of(control_.page(rank)); }};
}

std::optional<RunView> view_now(const Attempt* attempt) {
    if (attempt == nullptr) return std::nullopt;
    return view_of(attempt->end(), attempt->watched());
}

}  // namespace ddp::launcher
