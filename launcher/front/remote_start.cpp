// One loop over poll(), as the front's: signals, the pipes of all --rsh, our two outputs.
#include "launcher/front/remote_start.hpp"

#include "base/log.hpp"
#include "contract/exit_code.hpp"
#include "launcher/front/remote_host.hpp"
#include "launcher/front/remote_output.hpp"
#include "launcher/process/descriptor_limit.hpp"
#include "launcher/process/signals.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using Clock = RemoteOutput::Clock;
using Time = RemoteOutput::Time;
using std::chrono::milliseconds;

constexpr std::size_t most_at_a_time = 32;  // sshd refuses some of many at once
constexpr milliseconds start_time{300'000};
// After the first host that could not be started: for others to be named with it.
constexpr milliseconds time_for_more_failures{10'000};
// From the end of the launcher with the coordinator to that of the others.
constexpr milliseconds time_without_coordinator{10'000};
// What launchers whose leash was cut may take, before --rsh is killed.
constexpr milliseconds time_after_cut{5'000};

class RemoteStart {
public:
    RemoteStart(const RemoteJob& job, int parent_liveness)
        : job_(job),
          parent_liveness_(parent_liveness),
          signals_(signals_of(job)),
          output_(STDOUT_FILENO, STDERR_FILENO, job.greeting) {
        for (const RemoteJob::Host& host : job.hosts) hosts_.emplace_back(host);
    }

    int run() {
        if (base::log_enabled(base::LogLevel::info)) output_.say(job_.line);
        while (!is_finished()) {
            start_more();
            wait_and_handle();
            look_at_times(Clock::now());
            output_.run(Clock::now(), stop_.first_at);
            follow_closed_outputs();
        }
        return exit_code();
    }
    // How it ended, for a program that has launched it.
    const std::string& report() const { return report_; }
    std::vector<contract::HostEnd> ends() const {
        std::vector<contract::HostEnd> ends;
        for (const RemoteHost& host : hosts_) ends.push_back({host.name(), host.exit_code()});
        return ends;
    }

private:
    using State = RemoteHost::State;

    static std::vector<int> signals_of(const RemoteJob& job) {
        std::vector<int> signals = job.stop_signals;
        signals.insert(signals.end(), {SIGUSR1, SIGUSR2, SIGCHLD});
        return signals;
    }

    std::size_t count(State state) const {
        return static_cast<std::size_t>(std::ranges::count(hosts_, state, &RemoteHost::state));
    }
    bool is_finished() {
        if (count(State::ended) < hosts_.size()) return false;
        output_.end_status();
        return output_.is_idle();
    }

    void start_more() {
        std::size_t starting = count(State::starting);
        for (RemoteHost& host : hosts_) {
            if (starting >= most_at_a_time) return;
            if (host.state() != State::waiting) continue;
            host.start(Clock::now());
            ++starting;
        }
    }

    // Events ------------------------------------------------------------------------------------

    int wait_time() const {
        constexpr int soon_ms = 100;
        const bool is_ending = stop_.first_at || first_end_ || failed_at_ || leave_by_;
        if (is_ending) return soon_ms;
        const bool waits = count(State::running) == hosts_.size() && !output_.has_status();
        return waits ? -1 : 10 * soon_ms;
    }

    // What is not read, its writer keeps.
    bool wants(const RemoteHost& host, Stream stream) const {
        return is_muted_ || !host.has_greeted(stream) || output_.takes(stream);
    }

    // Of a pollfd: the host's stdin, or one of its outputs.
    struct Source {
        std::size_t host;
        std::optional<Stream> stream;
    };

    std::vector<Source> add_sources(std::vector<pollfd>& events) {
        std::vector<Source> sources;
        // In another order each time: what one of them says first fills an output.
        next_first_ = (next_first_ + 1) % hosts_.size();
        for (std::size_t i = 0; i < hosts_.size(); ++i) {
            const std::size_t index = (next_first_ + i) % hosts_.size();
            const RemoteShell* shell = hosts_[index].shell();
            if (shell == nullptr) continue;
            const auto add = [&](int fd, short wanted, std::optional<Stream> stream) {
                events.push_back({fd, wanted, 0});
                sources.push_back({index, stream});
            };
            if (shell->wants_to_send()) add(shell->input_fd(), POLLOUT, {});
            for (const Stream stream : streams) {
                const int fd = shell->output_fd(stream);
                if (fd >= 0 && wants(hosts_[index], stream)) add(fd, POLLIN, stream);
            }
        }
        return sources;
    }

    void wait_and_handle() {
        const std::array<pollfd, 2> outputs = output_.wanted();
        std::vector<pollfd> events{
            outputs[0], outputs[1], {signals_.fd(), POLLIN, 0}, {parent_liveness_, POLLIN, 0}};
        const std::size_t own = events.size();
        const std::vector<Source> sources = add_sources(events);
        if (::poll(events.data(), events.size(), wait_time()) < 0 && errno != EINTR) {
            throw SystemError("poll", errno);
        }
        while (const auto signal = signals_.next()) handle_signal(*signal);
        if (events[own - 1].revents != 0) {
            parent_liveness_ = -1;
            cut();
        }
        for (std::size_t i = 0; i < sources.size(); ++i) {
            if (events[own + i].revents != 0) handle(sources[i]);
        }
        for (std::size_t i = 0; i < hosts_.size(); ++i) finish_ended(i);
    }

    void handle(const Source& source) {
        RemoteHost& host = hosts_[source.host];
        if (host.shell() == nullptr) return;
        if (!source.stream) {
            host.shell()->flush();
        } else if (wants(host, *source.stream)) {
            take_in(source.host, *source.stream);
        }
    }

    // Whether there was anything.
    bool take_in(std::size_t index, Stream stream) {
        RemoteHost& host = hosts_[index];
        std::string bytes = host.shell()->read(stream);
        const bool has_come = !bytes.empty();
        bytes = host.after_greeting(stream, std::move(bytes));
        if (bytes.empty() || is_muted_) return has_come;
        output_.put(static_cast<int>(index), stream, bytes);
        last_output_ = Clock::now();
        return has_come;
    }

    // All that it has written is there. Who has the other end of a pipe now is not the job: a
    // master of ssh's connections, say.
    void finish_ended(std::size_t index) {
        RemoteHost& host = hosts_[index];
        if (host.shell() == nullptr || !host.shell()->end()) return;
        bool has_all = true;
        for (const Stream stream : streams) {
            while (host.shell()->output_fd(stream) >= 0 && wants(host, stream)) {
                if (!take_in(index, stream)) host.shell()->close_output(stream);
            }
            has_all = has_all && host.shell()->output_fd(stream) < 0;
        }
        if (has_all) handle_end(index, host.shell()->end()->exit_code());
    }

    void handle_end(std::size_t index, int exit_code) {
        RemoteHost& host = hosts_[index];
        const bool was_stopped = stop_.signal != 0 && host.state() == State::starting;
        host.end(was_stopped ? contract::exit_signal_base + stop_.signal : exit_code);
        for (const Stream stream : streams) output_.end(static_cast<int>(index), stream);
        const Time now = Clock::now();
        if (!host.has_begun()) {
            if (stop_.signal == 0 && !leave_by_) failed_at_ = failed_at_.value_or(now);
        } else {
            if (!host.was_cut) last_code_ = exit_code;
            note_end(index, exit_code, now);
        }
    }

    // By when the others should have ended. Where all hosts are needed there is no coordinator
    // without the first, and from any other a bad end is that of all, or of a host that the job has
    // lost.
    void note_end(std::size_t index, int exit_code, Time now) {
        if (is_elastic() ? !is_end_of_rest(index) : exit_code == contract::exit_ok && index != 0) {
            return;
        }
        const bool are_told = output_.job_code() || index == 0;
        const Time by = now + (are_told ? time_without_coordinator : job_.time_to_end);
        first_end_ = std::min(first_end_.value_or(by), by);
    }

    // A job that may lose hosts goes on until one is told of its end, as long as enough are left,
    // with the first where no other can take over.
    bool is_end_of_rest(std::size_t index) const {
        return output_.job_code() || stop_.signal != 0 ||
               !is_enough(hosts_.size() - count(State::ended)) ||
               (index == 0 && !job_.has_successors);
    }

    bool is_elastic() const { return job_.least_hosts < hosts_.size(); }
    bool is_enough(std::size_t hosts) const { return hosts >= job_.least_hosts; }

    // A reader that is gone is gone for the hosts, too; each of them knows what that means for the
    // job (--on-closed-stdout).
    void follow_closed_outputs() {
        for (const Stream stream : streams) {
            if (!output_.lost_its_reader(stream)) continue;
            for (const RemoteHost& host : hosts_) {
                if (host.state() == State::running) host.shell()->close_output(stream);
            }
        }
    }

    // Signals -----------------------------------------------------------------------------------

    void handle_signal(int signal) {
        if (signal == SIGCHLD) {
            for (const RemoteHost& host : hosts_) {
                if (host.shell() != nullptr) host.shell()->look_for_end();
            }
            return;
        }
        const std::vector<int>& stops = job_.stop_signals;
        if (std::ranges::find(stops, signal) != stops.end()) ask_to_stop(signal);
        for (const RemoteHost& host : hosts_) {
            if (host.state() == State::running) host.shell()->send(frame_of(PassedSignal{signal}));
        }
    }

    // Hosts that run hear it; where nothing does, nothing is started any more. The third Ctrl-C
    // does not trust the hosts.
    void ask_to_stop(int signal) {
        if (leave_by_) kill_shells();
        stop_.first_at = stop_.first_at.value_or(Clock::now());
        if (stop_.signal == 0) stop_.signal = signal;
        for (RemoteHost& host : hosts_) {
            if (host.state() == State::waiting) {
                host.end(contract::exit_signal_base + signal);
            } else if (host.state() == State::starting) {
                host.shell()->close_input();
                host.shell()->signal(SIGTERM);
            }
        }
        if (signal == SIGINT && ++stop_.interrupts > 2) cut();
    }

    // The end -----------------------------------------------------------------------------------

    void look_at_times(Time now) {
        for (RemoteHost& host : hosts_) {
            const bool is_late =
                host.state() == State::starting && now - host.started_at() >= start_time;
            if (!is_late) continue;
            host.set_trouble("no answer within " + std::to_string(start_time.count() / 1000) +
                             " s");
            host.shell()->signal(SIGKILL);
        }
        if (failed_at_ && !leave_by_) {
            const bool all_known = count(State::starting) + count(State::waiting) == 0;
            const bool is_time = !may_do_without() && now - *failed_at_ >= time_for_more_failures;
            if (does_without() || all_known || is_time) report_failed_start();
        }
        if (leave_by_ && now >= *leave_by_) kill_shells();
        if (!first_end_ || leave_by_ || !output_.is_idle()) return;
        if (now >= std::max(*first_end_, last_output_ + time_without_coordinator)) leave_the_rest();
    }

    void leave_the_rest() {
        std::string names;
        for (const RemoteHost& host : hosts_) {
            if (host.state() != State::ended) names += (names.empty() ? "" : ", ") + host.name();
        }
        if (names.empty()) return;
        const bool has_ended = !is_elastic() || output_.job_code() || stop_.signal != 0;
        say_at_last((has_ended ? "the job has ended, but no end has come from " + names
                               : "of at least " + std::to_string(job_.least_hosts) +
                                     " hosts there are only " + names + " left") +
                    "; what runs there ends when it hears that nobody waits for it");
        cut();
    }

    // Launchers that run kill their workers and end; what is still being started has none.
    void cut() {
        leave_by_ = leave_by_.value_or(Clock::now() + time_after_cut);
        for (RemoteHost& host : hosts_) {
            if (host.state() == State::waiting) host.end(contract::exit_error);
            if (host.state() == State::ended) continue;
            host.was_cut = true;
            host.shell()->close_input();
            if (host.state() == State::starting) host.shell()->signal(SIGTERM);
        }
    }

    void kill_shells() const {
        for (const RemoteHost& host : hosts_) {
            if (host.shell() != nullptr) host.shell()->signal(SIGKILL);
        }
    }

    void say_at_last(std::string text) {
        output_.say(text);
        report_ += (report_.empty() ? "" : "\n") + std::move(text);
    }

    // The hosts that have begun are a job without those that could not be started: enough are
    // there, or have been. Without the first host nobody coordinates it.
    bool does_without() const {
        const auto begun = static_cast<std::size_t>(
            std::ranges::count_if(hosts_, [](const RemoteHost& host) { return host.has_begun(); }));
        return is_elastic() && hosts_.front().has_begun() && is_enough(begun);
    }
    bool may_do_without() const {
        const auto failed = static_cast<std::size_t>(std::ranges::count_if(hosts_, has_failed));
        return is_elastic() && !has_failed(hosts_.front()) && is_enough(hosts_.size() - failed);
    }
    static bool has_failed(const RemoteHost& host) {
        return host.state() == State::ended && !host.has_begun();
    }

    void report_failed_start() {
        const bool goes_on = does_without();
        const auto say = [&](std::string text) {
            goes_on ? output_.say(text) : say_at_last(std::move(text));
        };
        std::map<std::string, std::vector<std::string>> hosts;  // by what was said there
        std::size_t failed = 0;
        const std::string ours = "ddp-launch: ";
        std::optional<int> own_code;
        bool all_are_ours = true;
        for (RemoteHost& host : hosts_) {
            if (!has_failed(host) || host.is_named) continue;
            ++failed;
            host.is_named = goes_on;
            const std::string words = host.last_words();
            const bool is_ours = words.starts_with(ours);
            all_are_ours =
                all_are_ours && is_ours && own_code.value_or(host.exit_code()) == host.exit_code();
            own_code = host.exit_code();
            const std::string code = " (exit code " + std::to_string(host.exit_code()) + ")";
            hosts[is_ours ? words.substr(ours.size()) : words + code].push_back(host.name());
        }
        say(std::string(goes_on ? "the job starts without some of its hosts: "
                                : "the job was not started: ") +
            std::to_string(failed) + " of " + std::to_string(hosts_.size()) +
            (hosts_.size() == 1 ? " host" : " hosts") +
            (failed == 1 ? " has failed" : " have failed"));
        for (const auto& [words, names] : hosts) {
            std::string list;
            for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
            say(list + ": " + words);
        }
        if (goes_on) return failed_at_.reset();
        failed_code_ = all_are_ours ? *own_code : contract::exit_error;
        is_muted_ = true;
        for (const RemoteHost& host : hosts_) {  // sooner than by the end of its input
            if (host.state() == State::running) host.shell()->send(frame_of(PassedSignal{SIGTERM}));
        }
        cut();
    }

    int exit_code() const {
        if (is_elastic() && output_.job_code()) return *output_.job_code();
        if (failed_code_) return *failed_code_;
        if (is_elastic() && last_code_) return *last_code_;
        const bool all_were_cut = std::ranges::all_of(hosts_, &RemoteHost::was_cut);
        for (const RemoteHost& host : hosts_) {
            const bool counts = all_were_cut || !host.was_cut;
            if (counts && host.exit_code() != contract::exit_ok) return host.exit_code();
        }
        return contract::exit_ok;
    }

    const RemoteJob& job_;
    int parent_liveness_;
    SignalReader signals_;
    RemoteOutput output_;
    std::vector<RemoteHost> hosts_;  // by node rank
    std::size_t next_first_ = 0;
    struct StopRequests {
        std::optional<Time> first_at;
        int signal = 0;
        int interrupts = 0;
    } stop_;
    std::optional<Time> failed_at_;  // the first that could not be started
    std::optional<int> failed_code_;
    std::optional<int> last_code_;   // of a host that had begun, and was not cut off
    std::optional<Time> first_end_;  // by when all should have ended, since one has
    std::optional<Time> leave_by_;   // all leashes are cut
    Time last_output_{};
    bool is_muted_ = false;
    std::string report_;
};

void require_descriptors(std::size_t hosts) {
    constexpr std::size_t for_a_host = 3;
    constexpr std::size_t own = 64;
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    if (hosts * for_a_host + own <= limit.rlim_cur) return;
    raise_descriptor_limit();
    if (hosts * for_a_host + own <= limit.rlim_max) return;
    throw UsageError(std::to_string(hosts) + " hosts need " +
                     std::to_string(hosts * for_a_host + own) + " descriptors, and the limit is " +
                     std::to_string(limit.rlim_max) + " (ulimit -Hn)");
}

}  // namespace

int start_on_hosts(const RemoteJob& job, const contract::HostLink& host) {
    if (host.failure_policy() == contract::FailurePolicy::tell_host) {
        throw UsageError(
            "--hosts: a program that judges failures itself has workers on its own "
            "host alone");
    }
    require_descriptors(job.hosts.size());
    prepare_signals(job.stop_signals);
    RemoteStart start(job, host.parent_liveness_fd());
    const int exit_code = start.run();
    host.send({.exit_code = exit_code, .report = start.report(), .hosts = start.ends()});
    return exit_code;
}

}  // namespace ddp::launcher
