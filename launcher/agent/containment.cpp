// clone() and not unshare(): unshare() would move the front too. The child writes its own id maps,
// which the kernel allows for the one id that it has.
#include "launcher/agent/containment.hpp"

#include "base/log.hpp"
#include "launcher/process/process_sweep.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>

namespace ddp::launcher {
namespace {

constexpr unsigned long namespaces = CLONE_NEWPID | CLONE_NEWNS;

pid_t clone_into(unsigned long flags) {
    return static_cast<pid_t>(::syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, 0));
}

void write_own(const char* name, const std::string& text) {
    const std::string path = std::string("/proc/self/") + name;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    const bool written =
        fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const int code = errno;
    if (fd >= 0) ::close(fd);
    if (!written) throw SystemError("--contain=pidns: cannot write " + path, code);
}

std::string identity_map(unsigned id) {
    return std::to_string(id) + " " + std::to_string(id) + " 1\n";
}

void mount_own_proc() {
    // Mounts made here must not show outside; those made outside may show here.
    if (::mount("none", "/", nullptr, MS_REC | MS_SLAVE, nullptr) != 0 ||
        ::mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) {
        throw SystemError(
            "--contain=pidns: this host allows a PID namespace but no /proc for it (a container "
            "that hides parts of /proc?); use --contain=base",
            errno);
    }
}

}  // namespace

ForkedAgent fork_agent(Containment containment) {
    std::fflush(nullptr);  // or both would print what is buffered
    ForkedAgent agent{.containment = containment, .uid = ::geteuid(), .gid = ::getegid()};
    if (containment == Containment::base) {
        agent.pid = ::fork();
        if (agent.pid < 0) throw SystemError("fork the agent", errno);
        return agent;
    }
    agent.pid = clone_into(namespaces);
    if (agent.pid < 0 && errno == EPERM) {
        agent.in_user_namespace = true;
        agent.pid = clone_into(namespaces | CLONE_NEWUSER);
    }
    if (agent.pid < 0) {
        throw SystemError(
            "--contain=pidns: this host allows no PID namespace here; run as root, allow "
            "unprivileged user namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, AppArmor or the container's seccomp profile), or "
            "use --contain=base",
            errno);
    }
    return agent;
}

void finish_containment(const ForkedAgent& me) {
    if (me.containment == Containment::base) return;
    if (me.in_user_namespace) {
        write_own("setgroups", "deny");
        write_own("uid_map", identity_map(me.uid));
        write_own("gid_map", identity_map(me.gid));
    }
    mount_own_proc();
}

void become_agent(base::UniqueFd err) {
    if (::setsid() < 0) throw SystemError("setsid", errno);  // the workers' too: signals, terminal
    ::prctl(PR_SET_NAME, "ddp-agent", 0, 0, 0);
    base::set_log_name("agent");
    become_subreaper();
    const base::UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) throw SystemError("open /dev/null", errno);
    ::dup2(null.get(), STDIN_FILENO);
    ::dup2(null.get(), STDOUT_FILENO);
    ::dup2(err.get(), STDERR_FILENO);
}

}  // namespace ddp::launcher
