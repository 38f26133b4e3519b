// SlurmAllocation: the nodes that Slurm has given to this shell, by salloc or sbatch, and how a
// step is started on one of them. Pure.
#pragma once

#include "launcher/hosts/start/hostfile.hpp"

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
    static std::optional<SlurmAllocation> of(std::span<const std::string> environment);
    bool has_all(std::span<const HostSlots> hosts) const;
    // srun and its options, before the command's words: beside other steps of the job, with all of
    // the node's processors that the job has.
    static std::vector<std::string> shell_for(const std::string& node);
};

// Empty: the entries have no such variable, or nothing in it.
std::string value_in(std::span<const std::string> environment, std::string_view name);

}  // namespace ddp::launcher
