#include "security/stranger.hpp"

#include "base/deadline.hpp"

#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

namespace ddp::security_test {
namespace {

constexpr int could_not_become = 94;
constexpr int came_to_grief = 95;

bool become(uid_t user) {
    if (user == ::geteuid()) return true;
    return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
           ::setresuid(user, user, user) == 0;
}

}  // namespace

Stranger::Stranger(uid_t user, const std::function<void()>& act) : pid_(::fork()) {
    if (pid_ < 0) throw std::runtime_error("fork");
    if (pid_ > 0) return;
    if (!become(user)) ::_exit(could_not_become);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a change of user has cleared it
    ::prctl(PR_SET_DUMPABLE, 1);         // as a program that this user has started
    try {
        act();
    } catch (const std::exception& error) {
        std::fprintf(stderr, "stranger: %s\n", error.what());
        ::_exit(came_to_grief);
    }
    ::_exit(0);
}

bool Stranger::runs() {
    int status = 0;
    if (pid_ > 0 && ::waitpid(pid_, &status, WNOHANG) == pid_) {
        pid_ = -1;
        ended_well_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    return pid_ > 0;
}

bool Stranger::wait(std::chrono::milliseconds at_most) {
    const auto deadline = base::Deadline::after(at_most);
    while (runs() && !deadline.passed()) ::poll(nullptr, 0, 1);
    return ended_well_;
}

Stranger::~Stranger() {
    if (pid_ < 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace ddp::security_test
