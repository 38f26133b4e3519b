#include "launcher/verdict/process_use.hpp"

#include "base/process/cgroup.hpp"
#include "base/process/process_tree.hpp"
#include "launcher/verdict/verdict_text.hpp"

#include <unistd.h>

#include <algorithm>
#include <cmath>

namespace ddp::launcher {
namespace {

using Duration = ProcessUse::Duration;

// A quota binds all below its group, which alone counts for it.
std::vector<CpuQuota> quotas_of(pid_t pid) {
    std::vector<CpuQuota> quotas;
    for (const base::CgroupFolders& folders : base::cgroups_of(std::to_string(pid), "cpu")) {
        for (const std::string& folder : folders) {
            const std::string stat = "\n" + base::read_small_file(folder + "/cpu.stat");
            const auto periods = base::number_behind("\nnr_periods ", stat);
            const auto used_up = base::number_behind("\nnr_throttled ", stat);
            if (periods && used_up) quotas.push_back({folder, *periods, *used_up});
        }
    }
    return quotas;
}

double throttled(const std::vector<CpuQuota>& before, const std::vector<CpuQuota>& after) {
    double most = 0;
    for (const CpuQuota& now : after) {
        const auto then = std::ranges::find(before, now.folder, &CpuQuota::folder);
        if (then == before.end() || now.periods <= then->periods) continue;
        const std::uint64_t used_up = now.used_up - std::min(then->used_up, now.used_up);
        most = std::max(
            most, static_cast<double>(used_up) / static_cast<double>(now.periods - then->periods));
    }
    return std::min(most, 1.0);
}

double share(std::optional<Duration> before, std::optional<Duration> after, Duration of) {
    if (!before || !after || of <= Duration(0)) return 0;
    return std::clamp(std::chrono::duration<double>(*after - *before) / of, 0.0, 1.0);
}

}  // namespace

std::optional<ProcessUse> look_at_use(pid_t pid) {
    const auto at = std::chrono::steady_clock::now();
    const auto stat = base::stat_of(pid);
    if (!stat) return std::nullopt;
    const std::string folder = "/proc/" + std::to_string(pid);
    const std::string status = base::read_small_file(folder + "/status", 4096);
    const std::string scheduled = base::read_small_file(folder + "/schedstat");  // "ran waited ..."
    const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
    ProcessUse use{.at = at,
                   .cpu = std::chrono::milliseconds(stat->cpu_ticks * 1000 / ticks),
                   .waited_for_processor = std::nullopt,
                   .quotas = quotas_of(pid),
                   .major_faults = stat->major_faults,
                   .swapped_bytes = base::number_behind("\nVmSwap:", status).value_or(0) * 1024,
                   .processors = std::string(base::text_behind("\nCpus_allowed_list:", status))};
    if (const auto waited = base::number_behind(" ", scheduled)) {
        use.waited_for_processor = Duration(static_cast<std::int64_t>(*waited));
    }
    return use;
}

UseRate rate_of(const ProcessUse& before, const ProcessUse& after) {
    const Duration time = after.at - before.at;
    if (time <= Duration(0)) return {};
    const double seconds = std::chrono::duration<double>(time).count();
    const std::uint64_t faults =
        after.major_faults - std::min(before.major_faults, after.major_faults);
    return {.cpu = std::max(std::chrono::duration<double>(after.cpu - before.cpu).count(), 0.0) /
                   seconds,
            .waited_for_processor =
                share(before.waited_for_processor, after.waited_for_processor, time),
            .throttled = throttled(before.quotas, after.quotas),
            .major_faults = static_cast<double>(faults) / seconds,
            .swapped_bytes = after.swapped_bytes,
            .processors = after.processors};
}

std::string what_differs(const UseRate& slow, const UseRate& others) {
    constexpr double much = 0.1;        // of the time, or of the periods
    constexpr double many_faults = 20;  // a second: each takes a disk a millisecond, or ten
    constexpr double busy = 0.7;
    const std::string where = slow.processors.empty() ? "" : " (" + slow.processors + ")";
    if (slow.throttled >= others.throttled + much) {
        return " was stopped by its cgroup's CPU quota in " + percent(slow.throttled) +
               " of its periods (the others in " + percent(others.throttled) + ")";
    }
    if (slow.major_faults >= many_faults && slow.major_faults >= 3 * others.major_faults) {
        const std::string faults = std::to_string(std::lround(slow.major_faults));
        const std::string usual = std::to_string(std::lround(others.major_faults));
        const std::string swapped = std::to_string(slow.swapped_bytes >> 20) + " MiB";
        return " waited for memory from the disk: " + faults +
               " page faults a second (the others " + usual + ")" +
               (slow.swapped_bytes == 0 ? "" : ", " + swapped + " of it swapped out");
    }
    if (slow.waited_for_processor >= others.waited_for_processor + much) {
        return " waited for a processor for " + percent(slow.waited_for_processor) +
               " of the time (the others " + percent(others.waited_for_processor) +
               "): others run on its processors" + where;
    }
    if (slow.throttled >= much) {
        return " has more to do than the others, or a slower processor; the cgroup's CPU quota "
               "stopped them all in " +
               percent(slow.throttled) + " of its periods";
    }
    if (slow.cpu < busy) {
        return " slept: it used " + percent(slow.cpu) +
               " of a processor; it waits for what is not a collective: data, a disk, a lock";
    }
    if (!others.processors.empty() && slow.processors != others.processors && !where.empty()) {
        return " may run on other processors than the others do: " + slow.processors +
               ", they on " + others.processors;
    }
    return " computed all the time, and nothing on its host held it up: it has more to do than the "
           "others, or a slower processor" +
           where;
}

}  // namespace ddp::launcher
