// Forks ranks and one process that serves their store, so that any rank may be killed without
// taking the meeting place along. The parent only watches: pipes for reports, pidfds for ends.
#include <ddp/testing_ranks.hpp>

#include "base/deadline.hpp"
#include "base/frame.hpp"
#include "base/socket.hpp"
#include "base/unique_fd.hpp"
#include "store/store_server.hpp"

#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace ddp::testing {
namespace {

constexpr std::size_t max_report_bytes = 16 << 20;

// Calls `child` in a new process, which never returns from here and dies with this one.
template <class Child>
pid_t fork_child(const Child& child) {
    std::fflush(nullptr);  // or both would print what is buffered
    const pid_t parent = ::getpid();
    const pid_t pid = ::fork();
    if (pid < 0) throw SystemError("run_ranks: fork", errno);
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::getppid() == parent) child();
        std::fflush(nullptr);
        ::_exit(0);
    }
    return pid;
}

[[noreturn]] void serve(base::UniqueFd listener) {
    store::StoreServer server(std::move(listener));
    for (;;) {
        pollfd ready{server.fd(), POLLIN, 0};
        ::poll(&ready, 1, -1);
        server.run_ready();
    }
}

void end(pid_t pid) {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

struct Rank {
    pid_t pid = -1;
    base::UniqueFd reports;
    base::FrameReader reader{max_report_bytes};
};

// Owns the processes: none is left however the call ends.
class Processes {
public:
    ~Processes() {
        for (const Rank& rank : ranks) {
            if (rank.pid > 0) end(rank.pid);
        }
        if (store > 0) end(store);
    }
    Processes() = default;
    Processes(const Processes&) = delete;
    Processes& operator=(const Processes&) = delete;

    pid_t store = -1;
    std::vector<Rank> ranks;
};

std::string describe_end(int status) {
    if (WIFSIGNALED(status)) {
        const char* name = ::sigabbrev_np(WTERMSIG(status));
        return std::string("ended by SIG") + (name != nullptr ? name : "?") + " (signal " +
               std::to_string(WTERMSIG(status)) + ")";
    }
    return "ended with exit code " + std::to_string(WEXITSTATUS(status));
}

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
}

// Reads what has come; false at the end of file.
bool read_reports(Rank& rank) {
    char buffer[65536];
    const ssize_t got = ::read(rank.reports.get(), buffer, sizeof buffer);
    if (got > 0) rank.reader.feed({buffer, static_cast<std::size_t>(got)});
    return got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
}

void collect_reports(std::vector<Rank>& ranks, const base::Deadline& deadline,
                     std::vector<RankFailure>& failures) {
    std::vector<pollfd> open;
    for (const Rank& rank : ranks) open.push_back({rank.reports.get(), POLLIN, 0});
    const auto still_open = [](const pollfd& entry) { return entry.fd >= 0; };
    while (std::any_of(open.begin(), open.end(), still_open) && !deadline.passed()) {
        ::poll(open.data(), open.size(), deadline.poll_timeout());
        for (std::size_t i = 0; i < open.size(); ++i) {
            if (open[i].fd < 0 || open[i].revents == 0) continue;
            if (!read_reports(ranks[i])) open[i].fd = -1;
            while (const auto report = ranks[i].reader.next()) {
                failures.push_back({static_cast<int>(i), *report});
            }
        }
    }
}

// The end of its pipe comes a moment before a process can be reaped, so wait for that too.
bool reap_before(pid_t pid, const base::Deadline& deadline, int& status) {
    for (;;) {
        const pid_t got = ::waitpid(pid, &status, WNOHANG);
        if (got == pid) return true;
        if (deadline.passed()) return false;
        ::poll(nullptr, 0, 1);
    }
}

}  // namespace

void RankReporter::failure(const std::string& message) {
    std::string frame;
    base::append_frame(frame, message.substr(0, max_report_bytes));
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
        Rank& rank = processes.ranks.emplace_back();
        rank.reports.reset(ends[0]);
        base::UniqueFd write_end(ends[1]);
        rank.pid = fork_child([&] { run_body(r, ranks, port, write_end.get(), body, options); });
    }
    const base::Deadline deadline = base::Deadline::after(options.timeout);
    std::vector<RankFailure> failures;
    collect_reports(processes.ranks, deadline, failures);
    for (int r = 0; r < ranks; ++r) {
        pid_t& pid = processes.ranks[static_cast<std::size_t>(r)].pid;
        int status = 0;
        if (!reap_before(pid, deadline, status)) {
            failures.push_back(
                {r, "still ran after " + base::to_string(options.timeout) + " and was killed"});
            continue;  // by the destructor
        }
        pid = -1;
        const auto& may_die = options.may_die;
        const bool foreseen =
            WIFSIGNALED(status) && std::find(may_die.begin(), may_die.end(), r) != may_die.end();
        if (status != 0 && !foreseen) failures.push_back({r, describe_end(status)});
    }
    std::stable_sort(failures.begin(), failures.end(),
                     [](const RankFailure& a, const RankFailure& b) { return a.rank < b.rank; });
    return failures;
}

}  // namespace ddp::testing
