// Reads /proc/<pid>/task/*/children from our own children downwards, kills, reaps, and begins
// again: a process that forked in between is found in the next round, below us or as our own child.
#include "launcher/process_sweep.hpp"

#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <dirent.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <memory>
#include <optional>

namespace ddp::launcher {
namespace {

// Names in a folder of /proc; whoever ends meanwhile may be missing.
std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), &::closedir);
    if (!entries) return names;
    while (const dirent* entry = ::readdir(entries.get())) {
        if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    return names;
}

// The parent as /proc/<pid>/stat names it: "pid (any name) state ppid ...".
std::optional<pid_t> parent_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return std::nullopt;
    const std::size_t after_name = text.rfind(')');
    if (after_name == text.npos || after_name + 4 >= text.size()) return std::nullopt;
    pid_t parent = 0;
    const char* const start = text.data() + after_name + 4;
    const auto result = std::from_chars(start, text.data() + text.size(), parent);
    return result.ec == std::errc{} ? std::optional(parent) : std::nullopt;
}

// For kernels without /proc/<pid>/task/<tid>/children.
std::vector<pid_t> children_by_scan(pid_t pid) {
    std::vector<pid_t> children;
    for (const std::string& name : names_in("/proc")) {
        pid_t child = 0;
        const auto result = std::from_chars(name.data(), name.data() + name.size(), child);
        if (result.ptr != name.data() + name.size()) continue;
        if (parent_of(child) == pid) children.push_back(child);
    }
    return children;
}

bool kernel_lists_children() {
    static const bool answer = ::access("/proc/thread-self/children", R_OK) == 0;
    return answer;
}

// A pid that is not our own child's may be anybody's by the time it is used: hold it by a pidfd and
// look again who its parent is before killing.
void kill_if_child(pid_t pid, pid_t parent) {
    const base::UniqueFd handle(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (handle && parent_of(pid) == parent) {
        ::syscall(SYS_pidfd_send_signal, handle.get(), SIGKILL, nullptr, 0);
    }
}

// Children first are listed, then the parent is killed: killed before, they would be listed nowhere
// until they became ours.
void kill_tree(pid_t pid, pid_t parent, int depth) {
    constexpr int max_depth = 64;  // deeper ones become children of ours in a later round
    const std::vector<pid_t> below = depth < max_depth ? children_of(pid) : std::vector<pid_t>{};
    kill_if_child(pid, parent);
    for (const pid_t child : below) kill_tree(child, pid, depth + 1);
}

bool reap(pid_t pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL) == 0 &&
           info.si_pid == pid;
}

bool has_no_child() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0 && errno == ECHILD;
}

// Blocked SIGCHLD, so that a death between looking and waiting still ends the wait.
class ChildSignal {
public:
    ChildSignal() {
        sigemptyset(&set_);
        sigaddset(&set_, SIGCHLD);
        ::sigprocmask(SIG_BLOCK, &set_, &before_);
    }
    ~ChildSignal() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
    ChildSignal(const ChildSignal&) = delete;
    ChildSignal& operator=(const ChildSignal&) = delete;

    void wait(std::chrono::milliseconds at_most) const {
        const timespec time{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
        ::sigtimedwait(&set_, nullptr, &time);
    }

private:
    sigset_t set_;
    sigset_t before_;
};

}  // namespace

void become_subreaper() {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) {
        throw SystemError("become a subreaper", errno);
    }
}

std::vector<pid_t> children_of(pid_t pid) {
    if (!kernel_lists_children()) return children_by_scan(pid);
    std::vector<pid_t> children;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const std::string& task : names_in(tasks)) {
        std::ifstream file(tasks + "/" + task + "/children");
        for (pid_t child = 0; file >> child;) children.push_back(child);
    }
    return children;
}

SweepResult sweep_descendants(const base::Deadline& deadline, std::span<const pid_t> spared) {
    if (has_no_child()) return {true, {}};  // the usual end of a job, without a look at /proc
    const ChildSignal child_signal;
    const pid_t self = ::getpid();
    for (int round = 0;; ++round) {
        std::vector<pid_t> left;
        bool progress = false;
        for (const pid_t child : children_of(self)) {
            if (std::find(spared.begin(), spared.end(), child) != spared.end()) continue;
            kill_tree(child, self, 0);
            if (reap(child)) {
                progress = true;
            } else {
                left.push_back(child);
            }
        }
        // The list may miss somebody while it changes; waitid() does not.
        if (left.empty() && (has_no_child() || (!progress && !spared.empty()))) return {true, {}};
        if (deadline.passed()) return {false, left};
        if (!progress) {
            constexpr std::chrono::milliseconds longest{10};
            child_signal.wait(
                std::min(longest, std::max(deadline.left(), std::chrono::milliseconds{1})));
        }
    }
}

std::string describe_survivors(const SweepResult& result) {
    std::string text;
    for (const pid_t pid : result.survivors) {
        text += (text.empty() ? "pid " : ", pid ") + std::to_string(pid);
    }
    return text.empty() ? "processes that cannot be seen (is /proc mounted?)" : text;
}

}  // namespace ddp::launcher
