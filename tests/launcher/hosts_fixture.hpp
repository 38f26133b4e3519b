// The real ddp-launch on hosts made of namespaces, one on each, for tests of jobs of several hosts.
#pragma once

#include "launcher/launch_fixture.hpp"
#include "support/host_world.hpp"
#include "support/program_output.hpp"

#include <gtest/gtest.h>
#include <sys/types.h>

#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher::testing {

using ddp::testing::count_of;
using ddp::testing::HostProgram;
using ddp::testing::HostProgramResult;
using ddp::testing::HostWorld;
using Words = HostWorld::Words;

inline Words bash(const std::string& script) { return {"bash", "-c", script}; }

// "weights a045b08b7df0ae64" of the first rank that an example of training prints.
inline std::string weights_in(const std::string& text) {
    const std::size_t at = text.find("weights ");
    return at == text.npos ? "no weights in: " + text : text.substr(at, text.find('\n', at) - at);
}

// The name of a process; empty when it is gone.
inline std::string comm_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
    std::string name;
    std::getline(file, name);
    return name;
}

// SIGKILL, as if to all in one moment: none of them sees that another has died.
inline void kill_at_once(const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) ::kill(pid, SIGSTOP);
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
}

struct LaunchedHow {
    Words environment = {};  // "NAME=value"
    Words before = {};       // what starts the launcher
};

class HostsTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (const auto reason = HostWorld::unavailable()) GTEST_SKIP() << *reason;
    }

    HostProgram launch(HostWorld& world, int host, const Words& options, const Words& command,
                       LaunchedHow how = {}) {
        Words words = std::move(how.before);
        words.emplace_back(DDP_LAUNCH);
        words.insert(words.end(), options.begin(), options.end());
        words.emplace_back("--");
        words.insert(words.end(), command.begin(), command.end());
        Words environment{"TMPDIR=" + files_.path(), "OMP_NUM_THREADS=1"};
        environment.insert(environment.end(), how.environment.begin(), how.environment.end());
        return world.run(host, std::move(words), std::move(environment));
    }
    // A job of as many hosts as the world has: its part on one of them.
    HostProgram launch_static(HostWorld& world, int host, int workers, const Words& command,
                              const Words& more = {}, LaunchedHow how = {}) {
        Words options{"--nnodes=" + std::to_string(world.size()),
                      "--node-rank=" + std::to_string(host - 1), "--master-addr=h1",
                      "--nproc-per-node=" + std::to_string(workers)};
        options.insert(options.end(), more.begin(), more.end());
        return launch(world, host, options, command, std::move(how));
    }
    // Two workers on each host.
    std::vector<HostProgram> launch_all(HostWorld& world, const Words& command,
                                        const Words& more = {}) {
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= world.size(); ++host) {
            launchers.push_back(launch_static(world, host, 2, command, more));
        }
        return launchers;
    }

    const TemporaryFolder files_;
};

}  // namespace ddp::launcher::testing
