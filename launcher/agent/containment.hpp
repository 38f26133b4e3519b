// How the agent is set apart. With `base` it is a plain fork. With `pidns` it is PID 1 of a new PID
// namespace: when it ends, however, the kernel kills all that is in there, so that nothing survives
// even when front and agent are killed together. That takes root, or a user namespace in which this
// user keeps its own ids; the namespace has a /proc of its own.
#pragma once

#include "base/unique_fd.hpp"
#include "launcher/options/options.hpp"

#include <sys/types.h>

namespace ddp::launcher {

struct ForkedAgent {
    pid_t pid = 0;  // 0 in the agent
    Containment containment = Containment::base;
    bool in_user_namespace = false;
    uid_t uid = 0;  // as the front has them: in a user namespace they are nobody's until mapped
    gid_t gid = 0;
};

// As fork(). Throws SystemError, in the caller alone, which says what the host does not allow. Call
// it single-threaded.
ForkedAgent fork_agent(Containment containment);

// In the agent, before anything else: a session of its own, and what standard descriptors it gets:
// nothing to read, nobody to write to but `err`. Throws SystemError.
void become_agent(base::UniqueFd err);

// Then: what a new namespace still lacks. Throws SystemError.
void finish_containment(const ForkedAgent& me);

}  // namespace ddp::launcher
