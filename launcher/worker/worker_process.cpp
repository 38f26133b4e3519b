// Boost.Process v2 of Boost 1.81, used for vfork, exec and the report of a failed exec. Each of its
// quirks that matters here is met where it arises.
#include "launcher/worker/worker_process.hpp"

#include "base/process/pidfd.hpp"
#include "base/sanitizers.hpp"
#include "contract/exit_code.hpp"
#include "launcher/process/signals.hpp"

// With std::filesystem (no boost_filesystem to link) its headers need these before them.
#include <algorithm>
#include <memory>

#include <boost/optional.hpp>
#include <boost/type_traits.hpp>
#define BOOST_PROCESS_USE_STD_FS 1
// A context a worker is made and thrown away: without epoll it costs one descriptor and not three.
#define BOOST_ASIO_DISABLE_EPOLL 1
#include <boost/asio/io_context.hpp>
#include <boost/process/v2/posix/default_launcher.hpp>
#include <boost/process/v2/posix/vfork_launcher.hpp>
#include <boost/process/v2/process.hpp>

#include <dirent.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <concepts>
#include <utility>

namespace ddp::launcher {
namespace {

namespace process = boost::process::v2;
// vfork() lends the child our memory until it executes: nothing is copied, and the error of a
// failed exec is a value that both see. ThreadSanitizer makes a fork() of it, which needs the other
// launcher's pipe.
#ifdef DDP_SANITIZES_THREADS
using Launcher = process::posix::default_launcher;
#else
using Launcher = process::posix::vfork_launcher;
#endif
using Path = process::filesystem::path;
using ErrorCode = process::error_code;

constexpr int first_other_fd = 3;

// The launcher tells the context of the fork in the child too, and that takes a lock, in the memory
// that vfork() lends: a child killed there would leave the agent waiting for itself. This one is
// not told. Nothing uses it in the child.
class Context : public boost::asio::io_context {
public:
    void notify_fork(fork_event) noexcept {}
};
class Executor : public boost::asio::io_context::executor_type {
public:
    explicit Executor(Context& context)
        : boost::asio::io_context::executor_type(context.get_executor()), context_(&context) {}
    Context& query(boost::asio::execution::context_t) const noexcept { return *context_; }

private:
    Context* context_;
};
static_assert(std::same_as<decltype(boost::asio::query(std::declval<const Executor&>(),
                                                       boost::asio::execution::context)),
                           Context&>);

// Without close_range(), which old kernels lack and old seccomp profiles refuse: marks all
// descriptors but the standard ones, one by one. Between vfork and exec, so that the folder is read
// by the bare system call.
void mark_others(rlim_t limit) {
    const int folder = ::open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) {
        for (int fd = first_other_fd; static_cast<rlim_t>(fd) < limit; ++fd) {
            ::fcntl(fd, F_SETFD, FD_CLOEXEC);
        }
        return;
    }
    alignas(dirent64) std::array<char, 4096> entries;
    for (;;) {
        const long got = ::syscall(SYS_getdents64, folder, entries.data(), entries.size());
        if (got <= 0) return;
        for (std::size_t at = 0; at < static_cast<std::size_t>(got);) {
            const auto* entry = reinterpret_cast<const dirent64*>(entries.data() + at);
            int fd = 0;
            for (const char* c = entry->d_name; *c >= '0' && *c <= '9'; ++c)
                fd = 10 * fd + *c - '0';
            if (fd >= first_other_fd) ::fcntl(fd, F_SETFD, FD_CLOEXEC);
            at += entry->d_reclen;
        }
    }
}

// What the child does between vfork and exec: only async-signal-safe calls, and no change of our
// memory.
class ChildSetup {
public:
    explicit ChildSetup(const WorkerStart& start)
        : descriptors_(start.descriptors),
          limit_(start.descriptor_limit),
          agent_(::getpid()),
          ignored_(ignored_at_first_start()) {
        ::getrlimit(RLIMIT_NOFILE, &agents_limit_);
    }

    // In the parent. The launcher closes all descriptors above the largest of this list.
    ErrorCode on_setup(Launcher& launcher, const Path&, const char* const*) {
        for (const int fd : {descriptors_.inherited, descriptors_.held_port}) {
            if (fd >= 0) launcher.fd_whitelist.push_back(fd);
        }
        return {};
    }

    ErrorCode on_exec_setup(Launcher&, const Path&, const char* const*) {
        if (!lead()) return last_error();
        if (::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) != 0) return last_error();
        // An agent that died before the prctl() would never be missed.
        if (::getppid() != agent_) ::_exit(contract::exit_error);
        // So that what reads stacks may, which is no ancestor. Without Yama it may anyway.
        ::prctl(PR_SET_PTRACER, agent_, 0, 0, 0);
        reset_signals(ignored_);
        if (::setrlimit(RLIMIT_NOFILE, &limit_) != 0) return last_error();
        if (::dup2(descriptors_.in, STDIN_FILENO) < 0) return last_error();
        if (::dup2(descriptors_.out, STDOUT_FILENO) < 0) return last_error();
        if (::dup2(descriptors_.err, STDERR_FILENO) < 0) return last_error();
        if (descriptors_.out_is_terminal && ::ioctl(STDOUT_FILENO, TIOCSCTTY, 0) != 0) {
            return last_error();
        }
        // The launcher's own closing leaves low descriptors open. Marked, not closed: its error
        // pipe is among them.
        if (::syscall(SYS_close_range, first_other_fd, ~0U, CLOSE_RANGE_CLOEXEC) != 0) {
            mark_others(agents_limit_.rlim_cur);
        }
        for (const int fd : {descriptors_.inherited, descriptors_.held_port}) {
            if (fd >= 0 && ::fcntl(fd, F_SETFD, 0) != 0) return last_error();
        }
        return {};
    }

    // In the child. The launcher would call exit(), and with it the agent's exit handlers. It looks
    // for one list of arguments and calls with another, so any list must do.
    template <class... Arguments>
    [[noreturn]] void on_exec_error(Arguments&&...) {
        ::_exit(contract::exit_not_found);
    }

private:
    // The agent sets its signals before it starts anybody, and asks for them once: 64 calls.
    static const sigset_t& ignored_at_first_start() {
        static const sigset_t ignored = ignored_signals();
        return ignored;
    }

    // A group in the agent's session: where the kernel schedules by session (autogroup),
    // sched_yield gives the core only to others of the same one, and ranks that share a core live
    // by it. With a terminal a session: for a controlling one, and because nobody would continue
    // who stops as programs at a terminal do; a session's only group does not stop.
    bool lead() const {
        const int out = descriptors_.out_is_line_terminal ? descriptors_.err : descriptors_.out;
        for (const int fd : {descriptors_.in, out, descriptors_.err}) {
            if (::isatty(fd) != 0) return ::setsid() >= 0;
        }
        return ::setpgid(0, 0) == 0;
    }

    // An error whose number is 0 would be taken for success.
    static ErrorCode last_error() {
        if (errno == 0) errno = EINVAL;
        return {errno, process::system_category()};
    }

    ChildDescriptors descriptors_;
    rlimit limit_;
    rlimit agents_limit_{};
    pid_t agent_;
    const sigset_t& ignored_;
};

// An initialiser with a signature that is slightly off is skipped without a word.
template <class Setup>
concept Initialiser = requires(Setup setup, Launcher& launcher, const Path& path,
                               const char* const* arguments, const ErrorCode& error) {
    { setup.on_setup(launcher, path, arguments) } -> std::same_as<ErrorCode>;
    { setup.on_exec_setup(launcher, path, arguments) } -> std::same_as<ErrorCode>;
    setup.on_exec_error(launcher, error, path, arguments, error);
    setup.on_exec_error(launcher, path, arguments, error);
};
static_assert(Initialiser<ChildSetup>);

std::vector<const char*> pointers_to(const std::vector<std::string>& words) {
    std::vector<const char*> pointers;
    pointers.reserve(words.size() + 1);
    for (const std::string& word : words) pointers.push_back(word.c_str());
    pointers.push_back(nullptr);
    return pointers;
}

void kill_and_reap(pid_t pid) {
    ::kill(pid, SIGKILL);
    while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
    }
}

const char* hint_for(int code) {
    if (code == ENOEXEC) return " (no #! line, or made for another machine?)";
    if (code == ENOENT) return " (is what its #! line names there?)";
    return "";
}

// Returns the pid of a child that runs the program.
pid_t spawn(const WorkerStart& start) {
    std::vector<const char*> arguments = pointers_to(start.arguments);
    const std::vector<const char*> environment = pointers_to(start.environment);
    Context context;
    Launcher launcher;
    launcher.env = environment.data();  // instead of process_environment, which needs a source more
    ErrorCode error;
    try {
        auto child = launcher(Executor(context), error, Path(start.path), arguments.data(),
                              ChildSetup(start));
        child.detach();  // otherwise its destructor kills
    } catch (const boost::system::system_error& failed) {
        // When only the last step failed, a pidfd, the child exists all the same.
        if (launcher.pid > 0) kill_and_reap(launcher.pid);
        const int code = failed.code().value();
        throw SystemError("cannot start " + start.path + (code == EMFILE ? " (see ulimit -n)" : ""),
                          code);
    }
    if (error && launcher.pid <= 0) {
        throw SystemError(
            "cannot fork for " + start.path + (error.value() == EAGAIN ? " (see ulimit -u)" : ""),
            error.value());
    }
    if (error) {
        kill_and_reap(launcher.pid);  // it was never waited for
        throw SpawnError("cannot run " + start.path + hint_for(error.value()), error.value());
    }
    return launcher.pid;
}

}  // namespace

SpawnError::SpawnError(const std::string& what_was_tried, int code)
    : SystemError(what_was_tried, code) {}

int SpawnError::exit_code() const {
    return code() == ENOENT ? contract::exit_not_found : contract::exit_not_executable;
}

WorkerProcess WorkerProcess::start(const WorkerStart& start) {
    const pid_t pid = spawn(start);
    base::UniqueFd pidfd(base::open_pidfd(pid));
    if (!pidfd) {
        const int code = errno;
        kill_and_reap(pid);
        throw SystemError("pidfd_open for " + start.path, code);
    }
    return {pid, std::move(pidfd)};
}

std::optional<ExitStatus> WorkerProcess::reap() {
    siginfo_t info{};
    const auto handle = static_cast<id_t>(pidfd_.get());
    if (::waitid(P_PIDFD, handle, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0) {
        return std::nullopt;
    }
    return exit_status_of(info);
}

void WorkerProcess::signal(int signal) const { base::signal_pidfd(pidfd_.get(), signal); }

void WorkerProcess::signal_group(int signal) const { ::kill(-pid_, signal); }

}  // namespace ddp::launcher
