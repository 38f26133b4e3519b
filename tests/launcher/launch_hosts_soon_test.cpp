// How soon a job of three hosts computes, by its first all_reduce of six ranks, beside what
// PyTorch's and Open MPI's launchers take for the same. What is promised is judged, as tests named
// Soak: these are benchmarks.
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using namespace testing;  // hosts_fixture.hpp
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int hosts = 3;
constexpr int ranks = 6;
constexpr const char* mark = "reduced";

class LaunchHostsSoon : public HostsTest {
protected:
    // Until the last of the ranks had its sum; the test fails where one had none.
    static Milliseconds since(Clock::time_point begun, const std::vector<std::string>& outputs) {
        std::vector<std::int64_t> times;
        for (const std::string& output : outputs) {
            std::istringstream words(output);
            std::int64_t time = 0;
            for (std::string word; words >> word;) {
                if (word == mark && words >> time) times.push_back(time);
            }
        }
        EXPECT_EQ(times.size(), static_cast<std::size_t>(ranks));
        if (times.empty()) return Milliseconds(0);
        return std::chrono::nanoseconds(std::ranges::max(times)) - begun.time_since_epoch();
    }
    // Two of the hosts have waited for so long when the last one starts.
    using StartOn = std::function<HostProgram(HostWorld& world, int host)>;
    static Milliseconds from_last_host(const StartOn& start, std::chrono::milliseconds wait) {
        HostWorld world(hosts);
        std::vector<HostProgram> launchers;
        for (int host = 1; host < hosts; ++host) launchers.push_back(start(world, host));
        std::this_thread::sleep_for(wait);
        const auto begun = Clock::now();
        launchers.push_back(start(world, hosts));
        return end(begun, launchers);
    }
    static Milliseconds end(Clock::time_point begun, std::vector<HostProgram>& launchers) {
        std::vector<std::string> outputs;
        for (HostProgram& one : launchers) {
            EXPECT_EQ(one.wait(60s).exit_code, 0) << one.err();
            outputs.push_back(one.out());
        }
        return since(begun, outputs);
    }
    // The median of so many runs.
    static Milliseconds print(const char* what, int runs,
                              const std::function<Milliseconds()>& run) {
        std::vector<Milliseconds> times;
        do {
            times.push_back(run());
        } while (static_cast<int>(times.size()) < runs && times.back().count() > 0);
        std::ranges::sort(times);
        const Milliseconds median = times[times.size() / 2];
        std::printf("%-40s median %7.1f ms (%.1f to %.1f, %zu runs)\n", what, median.count(),
                    times.front().count(), times.back().count(), times.size());
        std::fflush(stdout);
        return median;
    }

    const Words worker_{DDP_FIRST_ALL_REDUCE, mark};
    static constexpr int runs_ = 21;
    static constexpr int runs_of_torch_ = 3;
};

TEST_F(LaunchHostsSoon, SoakTheLastHostStarts60MillisecondsBeforeTheFirstAllReduce) {
    const Milliseconds took = print("ddp-launch, last of three hosts", runs_, [&] {
        return from_last_host(
            [&](HostWorld& world, int host) { return launch_static(world, host, 2, worker_); },
            300ms);
    });
    EXPECT_LE(took, 60ms);
    const Words elastic{"--nnodes=1:3", "--nproc-per-node=2", "--rdzv-id=j", "--rdzv-backend=c10d",
                        "--rdzv-endpoint=h1:29400"};
    const Milliseconds took_elastic = print("ddp-launch, c10d, 1:3 hosts", runs_, [&] {
        return from_last_host(
            [&](HostWorld& world, int host) { return launch(world, host, elastic, worker_); },
            300ms);
    });
    EXPECT_LE(took_elastic, 60ms);
    print("torchrun, c10d, 3 hosts", runs_of_torch_, [&] {
        return from_last_host(
            [&](HostWorld& world, int host) {
                return world.run(
                    host,
                    {"/usr/bin/python3", DDP_TORCHRUN, "--nnodes=3", "--nproc_per_node=2",
                     "--monitor_interval=0.1", "--rdzv_id=j", "--rdzv_backend=c10d",
                     "--rdzv_endpoint=h1:29400", DDP_TORCH_FIRST_ALL_REDUCE, mark},
                    {"OMP_NUM_THREADS=1", "TMPDIR=" + files_.path()});
            },
            8s);
    });
}

// Workers that only sleep: what the launchers notice by themselves.
TEST_F(LaunchHostsSoon, SoakTheOthersStopWithinTheNodeTimeoutOfACutCable) {
    const auto until_stopped = [&](const StartOn& start) -> std::optional<Milliseconds> {
        HostWorld world(hosts);
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= hosts; ++host) launchers.push_back(start(world, host));
        for (HostProgram& one : launchers) EXPECT_TRUE(one.wait_for_output("up", 2)) << one.err();
        const auto cut = Clock::now();
        world.cut(hosts);
        while (Clock::now() < cut + 60s) {
            if (world.count_on(1, "sleep") + world.count_on(2, "sleep") == 0) {
                return Clock::now() - cut;
            }
            std::this_thread::sleep_for(10ms);
        }
        return std::nullopt;
    };
    const Words worker = bash("echo up; exec sleep 600");
    const auto ours = until_stopped(
        [&](HostWorld& world, int host) { return launch_static(world, host, 2, worker); });
    ASSERT_TRUE(ours);
    std::printf("ddp-launch: all have stopped %.0f ms after the cut\n", ours->count());
    EXPECT_LE(*ours, 6s);
    const auto theirs = until_stopped([&](HostWorld& world, int host) {
        return world.run(host,
                         {"/usr/bin/python3", DDP_TORCHRUN, "--nnodes=3", "--nproc_per_node=2",
                          "--monitor_interval=0.1", "--rdzv_id=j", "--rdzv_backend=c10d",
                          "--rdzv_endpoint=h1:29400", "--no_python", "bash", "-c", worker.back()},
                         {"OMP_NUM_THREADS=1", "TMPDIR=" + files_.path()});
    });
    if (theirs) {
        std::printf("torchrun, c10d: %.0f ms\n", theirs->count());
    } else {
        std::printf("torchrun, c10d: none has within 60 s\n");
    }
}

TEST_F(LaunchHostsSoon, SoakACommandForAllHostsIs150MillisecondsBeforeTheFirstAllReduce) {
    const auto from_command = [&](const std::function<HostProgram(HostWorld&)>& start) {
        HostWorld world(hosts);
        world.rsh();
        const auto begun = Clock::now();
        std::vector<HostProgram> command;
        command.push_back(start(world));
        return end(begun, command);
    };
    const Milliseconds took = print("ddp-launch --hosts --rsh", runs_, [&] {
        return from_command([&](HostWorld& world) {
            return launch(world, 1, {"--hosts=h1:2,h2:2,h3:2", "--rsh=" + world.rsh()}, worker_);
        });
    });
    EXPECT_LE(took, 150ms);
    const std::string program = files_.path() + "/mpi_first";
    const std::string build = "mpicxx.openmpi -std=c++20 -O2 -w " +
                              std::string(DDP_MPI_FIRST_ALL_REDUCE) + " -o " + program;
    ASSERT_EQ(std::system(build.c_str()), 0) << "tools/install-deps.sh --interop installs it";
    print("mpirun (Open MPI), plm_rsh_agent", runs_, [&] {
        return from_command([&](HostWorld& world) {
            return world.run(
                1, {"mpirun.openmpi", "--allow-run-as-root", "--host", "h1:2,h2:2,h3:2", "--mca",
                    "plm_rsh_agent", world.rsh(), program, mark});
        });
    });
}

}  // namespace
}  // namespace ddp::launcher
