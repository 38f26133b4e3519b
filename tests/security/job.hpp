// A job of ddp-launch that the test leads: it joins, and ends, when the test says so.
#pragma once

#include "launcher/launch_fixture.hpp"
#include "security/stranger.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ddp::security_test {

using launcher::testing::Launch;
using launcher::testing::LaunchResult;
using launcher::testing::TemporaryFolder;

struct JobSettings {
    int ranks = 2;
    Launch::Words options = {};         // of ddp-launch, beside the number of ranks
    Launch::Words before_program = {};  // as setpriv, for the workers
    uid_t user = 0;                     // of the launcher
    std::string address_space = {};     // of each of its processes: a number of bytes, or any
};

class Job {
public:
    explicit Job(const JobSettings& settings);

    // Where its store is, once all ranks wait to join. Nothing: it has come to its end before.
    std::optional<std::uint16_t> wait_until_ready();
    // The name of its store's local socket, then.
    std::string store_socket() const;
    void let_join() { open_gate("join"); }
    // Until all ranks have joined and compute.
    bool wait_until_joined();
    void let_end() { open_gate("end"); }
    LaunchResult wait() { return launch_.wait(patience); }

    Launch& launch() { return launch_; }
    // The inodes of memory files that its ranks have mapped, when they had joined.
    std::vector<std::uint64_t> mapped_memory() const;

private:
    Launch::Words words() const;
    void open_gate(const std::string& name) const;

    JobSettings settings_;
    TemporaryFolder folder_;  // the job's current folder and TMPDIR
    TemporaryFolder gates_;
    Launch launch_;
};

// Whether that user can run what was built here.
bool can_run_programs(uid_t user);

// Exit code 0, every sum right, and by shared memory.
void expect_right(const LaunchResult& result, int ranks);

}  // namespace ddp::security_test
