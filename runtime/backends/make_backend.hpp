// The one place that chooses what moves a group's bytes. All ranks agree through the store: each
// tries what is wanted, publishes how that went, and reads what the others published; so all take
// the same decision and all report the same refusals.
#pragma once

#include "backends/backend.hpp"
#include "base/deadline.hpp"

#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <atomic>
#include <memory>
#include <span>

namespace ddp::backends {

struct GroupContext {
    const WorkerEnv& me;
    ddp::Store* store;  // empty of other groups' keys; not used in a world of one
    ddp::Backend wanted;
    // The control region's abort word, or null.
    const std::atomic<std::uint32_t>* agent_abort;
    // By rank in the group: its rank in the job, which errors and the abort word name. Empty: the
    // same.
    std::span<const int> job_ranks = {};
};

// `automatic` is shm on one host and gloo between hosts. Collective. Throws UsageError that names
// each rank, host and reason that stand in the way (the same on every rank), TimeoutError that
// names the ranks that did not come.
std::unique_ptr<Backend> make_backend(const GroupContext& group, const base::Deadline& deadline);

}  // namespace ddp::backends
