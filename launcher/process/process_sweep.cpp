// Reads /proc/<pid>/task/*/children from our own children downwards, kills, reaps, and begins
// again: a process that forked in between is found in the next round, below us or as our own child.
// Processes that fork as fast as they are killed are ended by their group: the kernel lets no fork
// get past a signal to a group. Without that, a chain of them outran this process on a busy host.
#include "launcher/process/process_sweep.hpp"

#include "base/printable.hpp"
#include "base/process/pidfd.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"

#include <ddp/error.hpp>

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <optional>

namespace ddp::launcher {
namespace {

using base::children_of;

std::optional<pid_t> parent_of(pid_t pid) {
    const auto state = base::stat_of(pid);
    return state ? std::optional(state->parent) : std::nullopt;
}

// A pid that is not our own child's may be anybody's by the time it is used: hold it by a pidfd and
// look again who its parent is before the signal.
void signal_if_child(pid_t pid, pid_t parent, int signal) {
    const base::UniqueFd handle(base::open_pidfd(pid));
    const bool held = handle || errno != ESRCH;  // else there are no pidfds here
    const auto parent_now = parent_of(pid);
    // A parent that has ended meanwhile has left it to us.
    if (!held || (parent_now != parent && parent_now != ::getpid())) return;
    if (!handle) {
        ::kill(pid, signal);
    } else {
        base::signal_pidfd(handle.get(), signal);
    }
}

// Whether a session was begun by us or by a descendant, so that nobody else is in it. Of one whose
// leader has ended nobody can say: a lost agent's is such a one, and its orphans have come to us.
bool is_session_of_ours(pid_t session) {
    const pid_t self = ::getpid();
    if (session == ::getsid(0)) return session == self;
    return session > 0 && (!base::stat_of(session) || base::descends_from(session, self));
}

// Kills the group of a child in one call, whoever is in it and forks meanwhile, when it can have no
// member but our descendants: it is another than ours, and no group of `others`. The child, which
// nobody has waited for, keeps the group's number from being used again. Adds the group to
// `others`: once a round is enough.
void kill_group_of(pid_t child, std::vector<pid_t>& others) {
    const pid_t group = ::getpgid(child);
    if (group <= 1 || group == ::getpgrp() || std::ranges::count(others, group) != 0) return;
    others.push_back(group);
    if (is_session_of_ours(::getsid(child))) ::kill(-group, SIGKILL);
}

constexpr int max_depth = 512;  // deeper ones become children of ours in a later round

// Children first are listed, then the parent is killed: killed before, they would be listed nowhere
// until they became ours. The root of the tree is a child that nobody has waited for.
void kill_tree(pid_t pid, pid_t parent, int depth) {
    const std::vector<pid_t> below = depth < max_depth ? children_of(pid) : std::vector<pid_t>{};
    if (depth == 0) {
        ::kill(pid, SIGKILL);
    } else {
        signal_if_child(pid, parent, SIGKILL);
    }
    for (const pid_t child : below) kill_tree(child, pid, depth + 1);
}

void list_living(pid_t parent, const ExcludedProcesses& excluded, int depth,
                 std::vector<Descendant>& found) {
    if (depth > max_depth) return;
    for (const pid_t pid : children_of(parent)) {
        if (excluded.contains(pid)) continue;
        const auto state = base::stat_of(pid);
        const bool alive = state && state->state != 'Z' && state->state != 'X';
        if (alive) found.push_back({pid, parent, state->name});
        list_living(pid, excluded, depth + 1, found);
    }
}

bool reap(pid_t pid) {
    siginfo_t info{};
    return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | __WALL) == 0 &&
           info.si_pid == pid;
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

bool has_children() {
    siginfo_t info{};
    return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

void ExcludedProcesses::add(pid_t pid) {
    if (const auto state = base::stat_of(pid)) started_[pid] = state->started;
}

void ExcludedProcesses::add_with_descendants(pid_t pid) {
    std::vector<pid_t> next{pid};
    while (!next.empty()) {
        const pid_t one = next.back();
        next.pop_back();
        add(one);
        const std::vector<pid_t> below = children_of(one);
        next.insert(next.end(), below.begin(), below.end());
    }
}

bool ExcludedProcesses::contains(pid_t pid) const {
    const auto found = started_.find(pid);
    if (found == started_.end()) return false;
    const auto state = base::stat_of(pid);
    return state && state->started == found->second;
}

std::vector<pid_t> ExcludedProcesses::groups() const {
    std::vector<pid_t> groups;
    for (const auto& [pid, started] : started_) {
        const pid_t group = contains(pid) ? ::getpgid(pid) : -1;
        if (group > 0) groups.push_back(group);
    }
    return groups;
}

SweepResult sweep_descendants(const base::Deadline& deadline, const ExcludedProcesses& given) {
    if (!has_children()) return {true, {}};  // the usual end of a job, without a look at /proc
    const ChildSignal child_signal;
    const pid_t self = ::getpid();
    ExcludedProcesses excluded = given;
    for (int round = 0;; ++round) {
        std::vector<pid_t> children = children_of(self);
        std::vector<pid_t> left;
        for (const pid_t child : children) {
            // With all that we inherit when it ends.
            if (excluded.contains(child)) excluded.add_with_descendants(child);
        }
        std::vector<pid_t> other_groups = excluded.groups();
        bool progress = false;
        // The newest first: they are those that may fork again.
        std::reverse(children.begin(), children.end());
        for (const pid_t child : children) {
            if (excluded.contains(child)) continue;
            kill_group_of(child, other_groups);
            if (reap(child)) {
                progress = true;
                continue;
            }
            kill_tree(child, self, 0);
            if (reap(child)) {
                progress = true;
            } else {
                left.push_back(child);
            }
        }
        // The list may miss somebody while it changes; waitid() does not.
        if (left.empty() && (!has_children() || (!progress && !excluded.empty())))
            return {true, {}};
        if (deadline.passed()) return {false, left};
        if (!progress) {
            constexpr std::chrono::milliseconds longest{10};
            child_signal.wait(
                std::min(longest, std::max(deadline.left(), std::chrono::milliseconds{1})));
        }
    }
}

SweepResult sweep_below(pid_t ancestor, const base::Deadline& deadline) {
    for (;;) {
        std::vector<Descendant> left;
        list_living(ancestor, {}, 0, left);
        if (left.empty()) return {true, {}};
        for (const Descendant& one : left) signal_if_child(one.pid, one.parent, SIGKILL);
        if (deadline.passed()) {
            SweepResult result;
            for (const Descendant& one : left) result.survivors.push_back(one.pid);
            return result;
        }
        constexpr timespec pause{0, 10'000'000};
        ::nanosleep(&pause, nullptr);
    }
}

std::vector<Descendant> living_descendants(const ExcludedProcesses& excluded) {
    std::vector<Descendant> found;
    list_living(::getpid(), excluded, 0, found);
    return found;
}

void signal_descendants(const std::vector<Descendant>& descendants, int signal) {
    for (auto one = descendants.rbegin(); one != descendants.rend(); ++one) {  // children first
        signal_if_child(one->pid, one->parent, signal);
    }
}

std::string describe_survivors(const SweepResult& result) {
    std::string text;
    for (const pid_t pid : result.survivors) {
        text += (text.empty() ? "pid " : ", pid ") + std::to_string(pid);
    }
    return text.empty() ? "processes that cannot be seen (is /proc mounted?)" : text;
}

std::string describe(const std::vector<Descendant>& descendants) {
    constexpr std::size_t most = 5;
    std::string text;
    for (std::size_t i = 0; i < std::min(most, descendants.size()); ++i) {
        const Descendant& one = descendants[i];
        text += (i == 0 ? "pid " : ", pid ") + std::to_string(one.pid) + " (" +
                base::printable(one.name) + ")";
    }
    if (descendants.size() > most) {
        text += " and " + std::to_string(descendants.size() - most) + " more";
    }
    return text;
}

}  // namespace ddp::launcher
