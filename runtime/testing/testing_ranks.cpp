// Forks ranks and one process that serves their store, so that any rank may be killed without
// taking the meeting place along. The parent only watches: pipes for reports, pidfds for ends.
//
// It forks, where ddp::launch() of a function runs the program anew, because a body uses what its
// test has made before: pipes, shared memory, random numbers, the names of files.
#include <ddp/testing_ranks.hpp>

#include "base/deadline.hpp"
#include "base/frame.hpp"
#include "base/socket.hpp"
#include "base/unique_fd.hpp"
#include "launch/held_child.hpp"
#include "store/store_server.hpp"

#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <optional>

namespace ddp::testing {
namespace {

using launching::HeldChild;

constexpr std::size_t max_report_bytes = 16 << 20;
constexpr std::chrono::seconds time_to_die{60};  // after SIGKILL

// Calls `child` in a new process, which never returns from here and dies with this one.
template <class Child>
HeldChild fork_child(const Child& child) {
    std::fflush(nullptr);  // or both would print what is buffered
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw SystemError("run_ranks: fork", errno);
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::setpgid(0, 0);
        if (::getppid() == parent) child();
        std::fflush(nullptr);
        ::_exit(0);
    }
    return HeldChild(pid);
}

[[noreturn]] void serve(base::UniqueFd listener) {
    store::StoreServer server(std::move(listener));
    for (;;) {
        pollfd ready{server.fd(), POLLIN, 0};
        ::poll(&ready, 1, -1);
        server.run_ready();
    }
}

// With whatever it has forked itself: each child leads a process group.
void end(HeldChild& child) {
    if (child.pid() < 0) return;  // it was reaped before
    ::kill(-child.pid(), SIGKILL);
    child.signal(SIGKILL);  // it may not have its group yet
    if (child.wait(base::Deadline::after(time_to_die))) child.reap();
}

struct Rank {
    HeldChild process;
    base::UniqueFd reports;
    base::FrameReader reader{max_report_bytes};
    bool finished = false;  // its body
};

// Owns the processes: none is left however the call ends.
class Processes {
public:
    ~Processes() {
        for (Rank& rank : ranks) end(rank.process);
        end(store);
    }
    Processes() = default;
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;

    HeldChild store;
    std::vector<Rank> ranks;
};

void run_body(int rank, int ranks, std::uint16_t port, int report_fd, const RankBody& body,
              const RunRanksOptions& options) {
    RankReporter reporter(report_fd);
    WorkerEnv me;
    me.rank = me.local_rank = rank;
    me.world_size = me.local_world_size = ranks;
    me.source = WorkerEnvSource::torchrun;
    const auto join = [&] {
        const auto store = connect_tcp_store({"127.0.0.1", port}, options.init.timeout);
        return init_process_group(me, store, options.init);
    };
    try {
        body(reporter, join);
    } catch (const std::exception& error) {
        reporter.failure(std::string("exception left the body: ") + error.what());
    } catch (...) {
        reporter.failure("an exception that is no std::exception left the body");
    }
    reporter.finished();
}

// Takes what has come without waiting for more; false at the end of file.
bool read_reports(Rank& rank, int number, std::vector<RankFailure>& failures) {
    char buffer[65536];
    ssize_t got = 0;
    while ((got = ::read(rank.reports.get(), buffer, sizeof buffer)) > 0) {
        rank.reader.feed({buffer, static_cast<std::size_t>(got)});
    }
    const bool open = got < 0 && (errno == EINTR || errno == EAGAIN);
    while (const auto report = rank.reader.next()) {
        if (report->starts_with('F')) failures.push_back({number, report->substr(1)});
        rank.finished = rank.finished || report->starts_with('E');
    }
    return open;
}

// Until all ranks have ended, whoever else holds their pipes.
void collect_reports(std::vector<Rank>& ranks, const base::Deadline& deadline,
                     std::vector<RankFailure>& failures) {
    std::vector<pollfd> events;
    for (const Rank& rank : ranks) {
        events.push_back({rank.reports.get(), POLLIN, 0});
        events.push_back({rank.process.fd(), POLLIN, 0});
    }
    auto running = std::count_if(ranks.begin(), ranks.end(),
                                 [](const Rank& rank) { return rank.process.fd() >= 0; });
    while (running > 0 && !deadline.passed()) {
        ::poll(events.data(), events.size(), deadline.poll_timeout());
        for (std::size_t i = 0; i < ranks.size(); ++i) {
            pollfd& reports = events[2 * i];
            pollfd& process = events[2 * i + 1];
            const bool ended = process.fd >= 0 && process.revents != 0;
            if (reports.fd >= 0 && (ended || reports.revents != 0) &&
                !read_reports(ranks[i], static_cast<int>(i), failures)) {
                reports.fd = -1;
            }
            if (!ended) continue;
            process.fd = -1;
            reports.fd = -1;
            --running;
        }
    }
}

void open_reports(Rank& rank, int read_end) {
    rank.reports.reset(read_end);
    if (::fcntl(read_end, F_SETFL, O_NONBLOCK) != 0) {
        throw SystemError("run_ranks: fcntl of a pipe", errno);
    }
}

// What the way in which a rank ended adds to what it reported.
std::optional<std::string> describe_wrong_end(const Rank& rank, const contract::ExitStatus& status,
                                              bool may_die) {
    if (status.signal != 0 && may_die) return std::nullopt;
    if (!status.ok()) {
        return (status.signal != 0 ? "ended by " : "ended with ") + contract::to_string(status);
    }
    if (!rank.finished) return "left with exit code 0 before its body was finished";
    return std::nullopt;
}

}  // namespace

void RankReporter::send(char kind, const std::string& message) {
    std::string frame;
    base::append_frame(frame, kind + message.substr(0, max_report_bytes - 1));
    for (std::string_view rest = frame; !rest.empty();) {
        const ssize_t written = ::write(fd_, rest.data(), rest.size());
        if (written < 0 && errno != EINTR) return;  // the parent is gone, and this process with it
        if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
    }
}

std::vector<RankFailure> fork_ranks(int ranks, const RankBody& body,
                                    const RunRanksOptions& options) {
    if (ranks < 1) throw UsageError("run_ranks: " + std::to_string(ranks) + " ranks; at least 1");
    base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
    const std::uint16_t port = base::local_port(listener.get());
    Processes processes;
    processes.store = fork_child([&] { serve(std::move(listener)); });
    listener.reset();
    for (int r = 0; r < ranks; ++r) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) throw SystemError("run_ranks: pipe", errno);
        const base::UniqueFd write_end(ends[1]);
        Rank& rank = processes.ranks.emplace_back();
        open_reports(rank, ends[0]);
        rank.process =
            fork_child([&] { run_body(r, ranks, port, write_end.get(), body, options); });
    }
    std::vector<RankFailure> failures;
    collect_reports(processes.ranks, base::Deadline::after(options.timeout), failures);
    for (int r = 0; r < ranks; ++r) {
        Rank& rank = processes.ranks[static_cast<std::size_t>(r)];
        if (!rank.process.wait(base::Deadline::after(std::chrono::milliseconds{0}))) {
            failures.push_back(
                {r, "still ran after " + base::to_string(options.timeout) + " and was killed"});
            continue;  // by the destructor
        }
        ::kill(-rank.process.pid(), SIGKILL);  // before its number is free for others
        const auto status = rank.process.reap().value_or(contract::ExitStatus{});
        const bool may_die =
            std::find(options.may_die.begin(), options.may_die.end(), r) != options.may_die.end();
        if (const auto wrong = describe_wrong_end(rank, status, may_die)) {
            failures.push_back({r, *wrong});
        }
    }
    std::stable_sort(failures.begin(), failures.end(),
                     [](const RankFailure& a, const RankFailure& b) { return a.rank < b.rank; });
    return failures;
}

}  // namespace ddp::testing
