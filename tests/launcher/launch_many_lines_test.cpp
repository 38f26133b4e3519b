// Eight ranks that write as fast as they can: every line in the files and on the console, in order,
// and a launcher that stays small.
#include "launcher/launch_fixture.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace ddp::launcher::testing {
namespace {

constexpr int ranks = 8;
constexpr long most_kib = 64 * 1024;

class LaunchManyLines : public LaunchTest {
protected:
    std::string file_of(int rank) const {
        const auto jobs = logs_.names();
        return jobs.empty() ? ""
                            : logs_.path() + "/" + jobs[0] + "/attempt_0/" + std::to_string(rank) +
                                  "/stdout.log";
    }

    void write_into_files(int lines_a_rank);

    TemporaryFolder logs_;
};

std::string line_of(int rank, int number) {
    return "rank " + std::to_string(rank) + " line " + std::to_string(number);
}

// The most memory that a process has had; 0 when it is gone.
long peak_kib(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    std::string line;
    while (std::getline(status, line)) {
        if (line.starts_with("VmHWM:")) return std::stol(line.substr(6));
    }
    return 0;
}

void expect_all_lines(const std::string& path, int rank, int lines_a_rank) {
    std::ifstream file(path);
    std::string line;
    for (int number = 0; number < lines_a_rank; ++number) {
        ASSERT_TRUE(std::getline(file, line)) << path << " ends before line " << number;
        ASSERT_EQ(line, line_of(rank, number)) << path;
    }
    EXPECT_FALSE(std::getline(file, line)) << path << " goes on with " << line;
}

void LaunchManyLines::write_into_files(int lines_a_rank) {
    Launch job(folder_, {"bash", "-c",
                         "exec \"$0\" --log-dir=\"$1\" --nproc-per-node=8 \"$2\" many_lines " +
                             std::to_string(lines_a_rank) + " out > /dev/null",
                         DDP_LAUNCH, logs_.path(), DDP_TEST_WORKER});
    long peak = 0;
    LaunchResult result;
    const auto deadline = base::Deadline::after(std::chrono::minutes{5});
    while (result.exit_code < 0 && !deadline.passed()) {
        result = job.wait(std::chrono::milliseconds{20});
        // The outer launcher's agent has the inner launcher as its worker, and that its own agent.
        for (const pid_t outer : children_now(job.pid())) {
            for (const pid_t front : children_now(outer)) {
                peak = std::max(peak, peak_kib(front));
                for (const pid_t agent : children_now(front)) {
                    peak = std::max(peak, peak_kib(agent));
                }
            }
        }
    }
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_GT(peak, 0);
    if (memory_is_measured) {
        EXPECT_LE(peak, most_kib);
    }
    for (int rank = 0; rank < ranks; ++rank) expect_all_lines(file_of(rank), rank, lines_a_rank);
}

TEST_F(LaunchManyLines, AllAreInTheFilesInOrderAndTheLauncherStaysSmall) {
    write_into_files(100'000);
}

TEST_F(LaunchManyLines, SoakAllAreInTheFilesInOrderAndTheLauncherStaysSmall) {
    write_into_files(1'000'000);
}

TEST_F(LaunchManyLines, AllAreOnTheConsoleInOrderPerRank) {
    constexpr int console_lines = 10'000;
    const LaunchResult result =
        launch(plain({"--log-line-prefix-template=$rank:", "--nproc-per-node=8"},
                     {"many_lines", std::to_string(console_lines), "out"}));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::vector<int> next(ranks, 0);
    for (const std::string& line : lines_of(result.out)) {
        const auto rank = static_cast<std::size_t>(line.at(0) - '0');
        ASSERT_LT(rank, next.size()) << line;
        ASSERT_EQ(line, std::to_string(rank) + ":" + line_of(static_cast<int>(rank), next[rank]));
        ++next[rank];
    }
    EXPECT_EQ(next, std::vector<int>(ranks, console_lines));
}

}  // namespace
}  // namespace ddp::launcher::testing
