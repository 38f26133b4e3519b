#include "launcher/inspect/run_stacks.hpp"

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"
#include "launcher/stacks/stack_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

namespace ddp::launcher {
namespace {

// Why it is not read; empty: it is. A number from elsewhere may be anybody's, and so may one in the
// document of another user.
std::string why_not(pid_t pid, const nlohmann::json& run, uid_t owner) {
    struct stat process {};
    if (run.value("is_contained", false)) return "it is in a PID namespace of its own";
    if (::stat(("/proc/" + std::to_string(pid)).c_str(), &process) != 0) return "it has ended";
    if (owner != ::geteuid() && owner != process.st_uid) return "it is another user's";
    const auto launcher = run.at("launcher_pid").get<pid_t>();
    return base::descends_from(pid, launcher) ? "" : "it is no process of this launcher's";
}

// Readers that have been killed, of which nobody else is the parent.
void wait_for_readers() {
    constexpr std::chrono::milliseconds most{100};
    const auto deadline = base::Deadline::after(most);
    while (::waitpid(-1, nullptr, WNOHANG) == 0 && !deadline.passed()) {
        std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
}

}  // namespace

std::vector<RankStacks> read_stacks(const nlohmann::json& run, uid_t owner) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::milliseconds for_each{500};
    const base::UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    ::dup2(null.get(), STDIN_FILENO);
    std::vector<RankStacks> stacks;
    std::vector<StackReader::Wanted> wanted;
    for (const auto& row : run.at("ranks")) {
        if (!row.at("exit_code").is_null() || !row.value("is_here", true)) continue;
        const int rank = row.at("rank").get<int>();
        const auto pid = row.at("pid").get<pid_t>();
        std::string problem = why_not(pid, run, owner);
        if (problem.empty()) {
            wanted.push_back({rank, pid});
        } else {
            stacks.push_back({.rank = rank, .pid = pid, .problem = std::move(problem)});
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
    wait_for_readers();
    std::ranges::sort(stacks, {}, &RankStacks::rank);
    return stacks;
}

}  // namespace ddp::launcher
