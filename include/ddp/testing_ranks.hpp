// The part of ddp/testing.hpp that needs no test framework: ranks that run a function of a test,
// and what became of them. Use it directly to bring another framework than GoogleTest.
#pragma once

#include <ddp/call_site.hpp>
#include <ddp/export.hpp>
#include <ddp/launch.hpp>
#include <ddp/process_group.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace ddp::testing {

struct RunRanksOptions {
    // A rank that still runs by then is killed and fails the test. The start of the ranks counts.
    std::chrono::milliseconds timeout = std::chrono::seconds{60};
    // Ranks whose death by a signal is what the test is about.
    std::vector<int> may_die = {};
    // Its timeout is cut to three quarters of the test's, so that a rank that others wait for is
    // named by their errors.
    InitOptions init = {};
    // How many ranks each of several hosts has, in the order of the ranks, as if there were so many
    // (DDP_HOST_ID, DDP_SOCKET_IFNAME). Empty: one host.
    std::vector<int> hosts = {};
    std::vector<std::string> arguments = {};  // of the launcher, as LaunchOptions::arguments
    std::string launcher = DDP_LAUNCH_PATH;   // as LaunchOptions::launcher
};

// What went wrong in one.
struct RankFailure {
    int rank;             // in the job
    std::string message;  // a line or more
};

// In a rank: reports to the test's process.
class DDP_API RankReporter {
public:
    explicit RankReporter(int fd) : fd_(fd) {}                        // that is written to
    void failure(const std::string& message) { send('F', message); }  // this rank's own
    // Likewise, of what another rank has brought about.
    void consequence(const std::string& message) { send('C', message); }
    // The body has been left in the regular way; a rank that ends without it has failed.
    void finished() { send('E', {}); }

private:
    void send(char kind, const std::string& message);
    int fd_;
};

// What ranks run; `join` makes their group.
using RankBody =
    std::function<void(RankReporter& reporter, const std::function<ProcessGroup()>& join)>;

// The words that this program was given, without its name.
DDP_API std::vector<std::string> program_arguments();

// A test of this program, one object for each time that it runs. Its ranks are workers of launch():
// each starts the program anew and comes to the same call of the same test, where it runs the body
// and exits. What it prints on stdout before that is dropped.
class DDP_API RankTest {
public:
    // `name`: no other test has it. `arguments`: with these words, and with this `environment` as
    // LaunchOptions has it, the program runs the test, no other one, and once.
    RankTest(std::string name, std::vector<std::string> arguments,
             std::vector<std::string> environment = {});

    // Starts the ranks; each runs `body`, in which `join` makes the group. Returns when all have
    // ended, with everything that went wrong, ordered by rank, consequences of another rank's
    // failure last; nothing of them is left. One that
    // fails stops no other. Throws what launch() does. In a rank it returns only from the calls
    // before its own, without failures.
    std::vector<RankFailure> run(int ranks, const RankBody& body,
                                 const RunRanksOptions& options = {},
                                 const CallSite& where = CallSite::here());

    // What `make` returns in the test's own process; `make` is not called in ranks. Not inside a
    // body (UsageError).
    std::string made_once(const std::function<std::string()>& make);

private:
    std::string name_;
    std::vector<std::string> arguments_;
    std::vector<std::string> environment_;
    int calls_ = 0;
    std::vector<std::string> values_;  // made until now
};

}  // namespace ddp::testing
