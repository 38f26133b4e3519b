// The part of ddp/testing.hpp that needs no test framework: processes, their group, and what became
// of them. Use it directly to bring another framework than GoogleTest.
#pragma once

#include <ddp/export.hpp>
#include <ddp/process_group.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

struct RunRanksOptions {
    // A rank that still runs by then is killed and fails the test.
    std::chrono::milliseconds timeout = std::chrono::seconds{60};
    // Ranks whose death by a signal is what the test is about.
    std::vector<int> may_die = {};
    InitOptions init = {};
};

struct RankFailure {
    int rank;
    std::string message;
};

// In a rank: reports to the process that forked it.
class DDP_API RankReporter {
public:
    explicit RankReporter(int fd) : fd_(fd) {}
    void failure(const std::string& message) { send('F', message); }
    // The body has been left in the regular way; a rank that ends without it has failed.
    void finished() { send('E', {}); }

private:
    void send(char kind, const std::string& message);
    int fd_;
};

using RankBody =
    std::function<void(RankReporter& reporter, const std::function<ProcessGroup()>& join)>;

// Forks the ranks; each runs `body`, in which `join` makes the group. Returns when all have ended,
// with everything that went wrong, ordered by rank. Throws SystemError when a process cannot be
// made.
DDP_API std::vector<RankFailure> fork_ranks(int ranks, const RankBody& body,
                                            const RunRanksOptions& options);

}  // namespace ddp::testing
