// What the kernel, a container's seccomp filter and Yama allow.
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.hpp"
#include "doctor/checks.hpp"
#include "doctor/child.hpp"
#include "doctor/numbers.hpp"

namespace ddp::doctor {
namespace {

using namespace std::chrono_literals;

// 0 or an errno: whether a child may read its parent's memory, as one rank reads another's.
int read_another_process() {
    const char token[] = "ddp";
    const pid_t parent = ::getpid();
    ::prctl(PR_SET_PTRACER, parent, 0, 0, 0);  // as a worker lets its agent's others (Yama)
    const auto answer = in_child(5s, [&] {
        char copy[sizeof token] = {};
        const iovec here{copy, sizeof copy};
        const iovec there{const_cast<char*>(token), sizeof token};
        const ssize_t count = ::process_vm_readv(parent, &here, 1, &there, 1, 0);
        return std::to_string(count == sizeof token ? 0 : count < 0 ? errno : EIO);
    });
    return answer ? std::stoi(*answer) : EIO;
}

bool may_make_pid_namespaces() {
    return in_child(5s, [] {
               return std::string(::unshare(CLONE_NEWPID) == 0 ||
                                          ::unshare(CLONE_NEWUSER | CLONE_NEWPID) == 0
                                      ? "yes"
                                      : "no");
           }) == "yes";
}

}  // namespace

Findings check_kernel(const std::string& root) {
    Findings findings;
    utsname system{};
    ::uname(&system);
    findings.push_back({"kernel", Level::ok, std::string(system.sysname) + " " + system.release});
    const base::UniqueFd self(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    if (!self) {
        findings.push_back({"kernel", Level::fail,
                            std::string("pidfd_open is refused: ") + std::strerror(errno),
                            "ddp-launch watches its workers with it: Linux 5.4 or newer, and a "
                            "seccomp filter that allows it (Docker 20.10 and newer do)"});
    }
    const long commands = ::syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0 || (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0) {
        findings.push_back({"kernel", Level::note,
                            "membarrier is refused: each small collective costs a fence more",
                            "allow it in the seccomp filter"});
    }
    const auto seccomp = number_in(root + "/proc/self/status", "Seccomp:");
    if (seccomp && *seccomp != 0) {
        findings.push_back(
            {"kernel", Level::note, "a seccomp filter is at work, as in a container"});
    }
    const auto yama = number_in(root + "/proc/sys/kernel/yama/ptrace_scope");
    const std::string sees = yama ? " (Yama's ptrace_scope is " + std::to_string(*yama) + ")" : "";
    if (const int trouble = read_another_process(); trouble != 0) {
        findings.push_back({"kernel", Level::warn,
                            "ranks may not read each other's memory: " +
                                std::string(std::strerror(trouble)) + sees,
                            "large messages are copied twice: allow process_vm_readv in the "
                            "seccomp filter (docker run --cap-add=SYS_PTRACE), and sysctl "
                            "kernel.yama.ptrace_scope=0"});
    }
    if (yama && *yama >= 2) {
        findings.push_back({"kernel", Level::warn,
                            *yama == 2 ? "none but root's debuggers may attach" + sees
                                       : "no debugger may attach until the next boot" + sees,
                            *yama == 2 ? "--break-on-failure needs sysctl "
                                         "kernel.yama.ptrace_scope=1"
                                       : ""});
    }
    if (!may_make_pid_namespaces()) {
        findings.push_back({"kernel", Level::note,
                            "PID namespaces are refused, so --contain=pidns is, too",
                            "only where jobs are to use it: allow user namespaces (sysctl "
                            "user.max_user_namespaces, the seccomp filter)"});
    }
    return findings;
}

}  // namespace ddp::doctor
