#include "launcher/front/slurm_allocation.hpp"

#include "base/printable.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace ddp::launcher {

std::string value_in(std::span<const std::string> environment, std::string_view name) {
    for (const std::string& entry : environment) {
        const bool is_it = entry.starts_with(name) && entry.substr(name.size()).starts_with('=');
        if (is_it) return entry.substr(name.size() + 1);
    }
    return {};
}

std::optional<SlurmAllocation> SlurmAllocation::of(std::span<const std::string> environment) {
    constexpr std::string_view list_name = "SLURM_JOB_NODELIST";
    const std::string job = value_in(environment, "SLURM_JOB_ID");
    const std::string list = value_in(environment, list_name);
    SlurmAllocation allocation;
    const char* const end = job.data() + job.size();
    if (std::from_chars(job.data(), end, allocation.job).ptr != end || job.empty()) return {};
    if (list.empty()) return std::nullopt;
    allocation.nodes = expand_nodelist({"$" + std::string(list_name), base::printable(list)});
    return allocation;
}

bool SlurmAllocation::has_all(std::span<const HostSlots> hosts) const {
    return std::ranges::all_of(hosts, [this](const HostSlots& one) {
        return std::ranges::find(nodes, one.host) != nodes.end();
    });
}

std::vector<std::string> SlurmAllocation::shell_for(const std::string& node) {
    return {"srun",
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--ntasks-per-node=1",
            "--cpu-bind=none",
            "--nodelist=" + node};
}

}  // namespace ddp::launcher
