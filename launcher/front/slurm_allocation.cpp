#include "launcher/front/slurm_allocation.hpp"

#include "base/printable.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace ddp::launcher {
namespace {

// srun takes them for options of the step.
constexpr std::array<const char*, 8> of_the_whole_job{
    "SLURM_GPUS",         "SLURM_GPUS_PER_SOCKET", "SLURM_GPUS_PER_TASK", "SLURM_NTASKS_PER_GPU",
    "SLURM_CPUS_PER_GPU", "SLURM_CPUS_PER_TASK",   "SRUN_CPUS_PER_TASK",  "SLURM_TRES_PER_TASK"};

}  // namespace

std::optional<SlurmAllocation> SlurmAllocation::of(const EnvLookup& environment) {
    constexpr std::string_view list_name = "SLURM_JOB_NODELIST";
    const std::string job = environment("SLURM_JOB_ID").value_or("");
    const std::string list = environment(list_name).value_or("");
    SlurmAllocation allocation;
    const char* const end = job.data() + job.size();
    const auto read = std::from_chars(job.data(), end, allocation.job);
    if (read.ec != std::errc{} || read.ptr != end || list.empty()) return std::nullopt;
    allocation.nodes = expand_nodelist({"$" + std::string(list_name), base::printable(list)});
    return allocation;
}

bool SlurmAllocation::has_all(std::span<const HostSlots> hosts) const {
    return std::ranges::all_of(hosts, [this](const HostSlots& one) {
        return std::ranges::find(nodes, one.host) != nodes.end();
    });
}

std::vector<std::string> SlurmAllocation::shell_for(const std::string& node) {
    std::vector<std::string> words{"env"};
    for (const char* const name : of_the_whole_job) words.insert(words.end(), {"-u", name});
    words.insert(words.end(), {"srun", "--overlap", "--nodes=1", "--ntasks=1",
                               "--ntasks-per-node=1", "--cpu-bind=none", "--nodelist=" + node});
    return words;
}

}  // namespace ddp::launcher
