#include "launcher/inspect/run_stacks.hpp"

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"
#include "launcher/stacks/stack_reader.hpp"

#include <fcntl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <utility>

namespace ddp::launcher {

std::vector<RankStacks> read_stacks(const nlohmann::json& run) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds for_each{200};
    const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ::dup2(null.get(), STDIN_FILENO);
    std::vector<RankStacks> stacks;
    std::vector<StackReader::Wanted> wanted;
    for (const auto& row : run.at("ranks")) {
        if (row.at("state") == "ended") continue;
        const int rank = row.at("rank").get<int>();
        const auto pid = row.at("pid").get<pid_t>();
        // A number from elsewhere may be anybody's.
        if (base::descends_from(pid, run.at("launcher_pid").get<pid_t>())) {
            wanted.push_back({rank, pid});
        } else {
            stacks.push_back(
                {.rank = rank,
                 .pid = pid,
                 .problem = "it is in another PID namespace, or its launcher is gone"});
        }
    }
    const std::chrono::milliseconds most =
        StackReader::most_time + for_each * static_cast<int>(wanted.size());
    StackReader reader;
    reader.begin(Clock::now(), std::move(wanted), most);
    while (reader.is_reading()) {
        base::wait_readable(reader.fd(), base::Deadline::after(std::chrono::milliseconds{50}));
        if (auto some = reader.take(Clock::now())) {
            stacks.insert(stacks.end(), some->begin(), some->end());
        }
    }
    std::ranges::sort(stacks, {}, &RankStacks::rank);
    return stacks;
}

}  // namespace ddp::launcher
