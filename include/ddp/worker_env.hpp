// Who am I: what the environment says about this process's place in the job. One pure function, so
// every launcher's dialect is tested as a table. (The ranks of ddp/testing.hpp look at RANK, too.)
#pragma once

#include <ddp/export.hpp>
#include <ddp/master_address.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace ddp {

// Whose variables were believed.
enum class WorkerEnvSource {
    torchrun,  // RANK, WORLD_SIZE, ...: ddp-launch, torchrun, or set by hand
    open_mpi,  // OMPI_COMM_WORLD_*
    pmi,       // PMI_RANK, PMI_SIZE: MPICH, Intel MPI, srun --mpi=pmi2
    slurm,     // SLURM_PROCID, only inside a step (SLURM_STEP_ID): a batch shell is not rank 0
    none,      // a world of one
};

// This process's place.
struct WorkerEnv {
    int rank = 0;                         // 0 <= rank < world_size
    int world_size = 1;                   // processes in the job
    int local_rank = 0;                   // 0 <= local_rank < local_world_size
    int local_world_size = 1;             // processes of the job on this host
    std::optional<MasterAddress> master;  // where the store is; always there when world_size > 1
    bool agent_store = false;             // the launcher serves the store; otherwise rank 0 does
    int attempt = 0;                      // how often the job was restarted before
    // Tells one start of the job's ranks from others, whose ranks it never meets: DDP_ROUND, which
    // counts each start, else the attempt.
    int round = 0;
    // Tells this job from others that might be given the same port: TORCHELASTIC_RUN_ID (unless it
    // is `none`), Slurm's job and step, PMIx's namespace. Empty: it has no name.
    std::string job = {};
    bool on_one_host = false;  // the launcher says that all ranks are on this host
    WorkerEnvSource source = WorkerEnvSource::none;  // whose variables said so
};

// Reads a variable; nothing when it is not set.
using EnvLookup = std::function<std::optional<std::string>(std::string_view name)>;

// Looks for, in this order: torchrun's names, Open MPI's, PMI's, Slurm's; a world of one when none
// of them claims anything. The master address is MASTER_ADDR (an IPv6 address without its brackets)
// and MASTER_PORT for all of them.
// Throws UsageError that names the variable and says what to set: a number that is none, a rank
// outside its world, RANK without WORLD_SIZE, more than one rank and no way to meet.
DDP_API WorkerEnv worker_env(const EnvLookup& lookup);

// The same for this process's own environment.
DDP_API WorkerEnv worker_env();

}  // namespace ddp
