// SlurmAllocation: the nodes that Slurm has given to this shell, by salloc or sbatch, and how a
// step is started on one of them. Pure.
#pragma once

#include "launcher/hosts/start/hostfile.hpp"
#include "launcher/options/options.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace ddp::launcher {

struct SlurmAllocation {
    std::int64_t job = 0;
    std::vector<std::string> nodes;

    // Nothing where SLURM_JOB_ID and SLURM_JOB_NODELIST do not say so. Throws UsageError for a list
    // that is none.
    static std::optional<SlurmAllocation> of(const EnvLookup& environment);
    bool has_all(std::span<const HostSlots> hosts) const;
    // srun and its options, before the command's words: one task beside other steps of the job,
    // with all of the node's processors and GPUs that the job has. What the job was asked for as a
    // whole, or for each of its tasks, does not hold for the step.
    static std::vector<std::string> shell_for(const std::string& node);
};

}  // namespace ddp::launcher
