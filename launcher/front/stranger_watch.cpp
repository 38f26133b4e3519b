#include "launcher/front/stranger_watch.hpp"

#include "base/process/process_tree.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace ddp::launcher {

// While the agent lives, its orphans are its own; all other children of ours are strangers, and so
// is what is below them. An agent that dies meanwhile spoils the list, since its orphans become our
// children in the same moment in which it can be waited for.
void StrangerWatch::run(Clock::time_point now, pid_t agent) {
    if (!possible_ || now < look_at_) return;
    look_at_ = now + time_between_looks;
    ExcludedProcesses strangers;
    for (const pid_t child : base::children_of(::getpid())) {
        if (child != agent) strangers.add_with_descendants(child);
    }
    siginfo_t info{};
    const auto id = static_cast<id_t>(agent);
    const bool waited = ::waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (waited && info.si_pid == 0) found_ = std::move(strangers);
}

}  // namespace ddp::launcher
