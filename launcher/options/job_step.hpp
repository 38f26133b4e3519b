// A step of srun, mpirun or another MPI launcher in which this ddp-launch is one of several: each
// would start a whole job of its own, and all of them would write the same checkpoints.
#pragma once

#include "launcher/options/options.hpp"

#include <string>

namespace ddp::launcher {

// What says so, as "SLURM_STEP_NUM_TASKS=4 (srun)"; empty: nobody does. A batch shell is no step.
std::string step_of_several(const EnvLookup& environment);

// Throws UsageError that says what to write. Who was told what the job is does not ask.
void refuse_step_of_several(const EnvLookup& environment);

}  // namespace ddp::launcher
