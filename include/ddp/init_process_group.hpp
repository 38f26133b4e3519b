// init_process_group: how a process becomes a rank of its job. Source: torch.distributed's function
// of that name. Programs include process_group.hpp.
#pragma once

#include <ddp/collective_options.hpp>
#include <ddp/export.hpp>
#include <ddp/store.hpp>
#include <ddp/worker_env.hpp>

#include <memory>

namespace ddp {

class ProcessGroup;

// Joins the job that the environment describes (worker_env): meets the other ranks through the
// store, agrees with them on a backend, and returns when all are there. Collective; may be called
// again for a further group, by all ranks in the same order. Without such an environment: a world
// of one. Blocks up to options.timeout. Throws UsageError (the environment makes no sense; a
// backend that cannot be had: names rank, host and reason, on every rank), TimeoutError (names the
// missing ranks), PeerError (one ended meanwhile), SystemError.
DDP_API ProcessGroup init_process_group(const InitOptions& options = {});

// The same with a place and a store of the caller's own (`me.master` is not used). The store must
// be empty of earlier groups' keys: wrap it in make_prefix_store for a second group.
DDP_API ProcessGroup init_process_group(const WorkerEnv& me, std::shared_ptr<Store> store,
                                        const InitOptions& options = {});

}  // namespace ddp
