// Runs the real ddp-launch in a test: starts it in a folder of its own (current and TMPDIR),
// collects what it writes while it runs, and gives its end under a deadline. Nothing outlives the
// object.
#pragma once

#include "base/deadline.hpp"
#include "base/sanitizers.hpp"
#include "base/unique_fd.hpp"

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace ddp::launcher::testing {

// Long enough for a busy machine; a test that meets it has failed.
inline constexpr std::chrono::seconds patience{60};

// An empty folder that goes with the object.
class TemporaryFolder {
public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }
    std::vector<std::string> names() const;

private:
    std::string path_;
};

// AddressSanitizer keeps what was freed.
#ifdef DDP_SANITIZES_ADDRESSES
inline constexpr bool memory_is_measured = false;
#else
inline constexpr bool memory_is_measured = true;
#endif

struct LaunchResult {
    int exit_code = -1;  // 128 + signal when a signal ended the front; -1: it did not end
    std::string out;
    std::string err;
    std::chrono::milliseconds time{0};
};

struct LaunchSettings {
    std::vector<std::string> environment = {};  // "NAME=value", beside the test's own
    bool read_output = true;                    // otherwise the pipes fill up until start_reading()
    bool ignore_hangup = false;                 // as nohup does
    std::string program = {};                   // instead of ddp-launch
    int terminal = -1;                          // borrowed; its stdout and stderr instead of pipes
};

class Launch {
public:
    using Words = std::vector<std::string>;

    // `arguments` are ddp-launch's.
    Launch(const TemporaryFolder& folder, const Words& arguments, LaunchSettings settings = {});
    ~Launch();  // SIGKILL to the front if it is still there
    Launch(const Launch&) = delete;
    Launch& operator=(const Launch&) = delete;

    pid_t pid() const { return pid_; }
    void signal(int signal) const;
    // The agent, as soon as there is one; nothing when the front ended before.
    std::optional<pid_t> wait_for_agent() const;

    // Until stdout holds `text` so many times. False: it never came.
    bool wait_for_output(const std::string& text, int times = 1);
    bool wait_for_error(const std::string& text);  // the same on stderr
    const std::string& out() const { return result_.out; }
    const std::string& err() const { return result_.err; }
    // Until the pipe of stdout, which nobody reads, takes no more.
    bool wait_for_full_stdout() const;
    void start_reading() { settings_.read_output = true; }
    void close_stdout() { out_.reset(); }  // its reader is gone
    LaunchResult wait(std::chrono::milliseconds at_most = patience);

private:
    void collect(std::chrono::milliseconds at_most);

    base::Deadline::Clock::time_point started_ = base::Deadline::Clock::now();
    LaunchSettings settings_;
    pid_t pid_ = -1;
    base::UniqueFd pidfd_;
    base::UniqueFd out_;
    base::UniqueFd err_;
    bool ended_ = false;
    LaunchResult result_;
};

// Starts, waits, and expects that nothing is left in the folder afterwards.
class LaunchTest : public ::testing::Test {
protected:
    LaunchResult launch(const Launch::Words& arguments, LaunchSettings settings = {});
    // The launcher's options, then the plain worker of tests/workers with its words.
    static Launch::Words plain(Launch::Words options, const Launch::Words& worker);
    void TearDown() override { EXPECT_EQ(folder_.names(), std::vector<std::string>{}); }

    TemporaryFolder folder_;
};

// Children of a process now.
std::vector<pid_t> children_now(pid_t pid);
// Processes (no zombies) whose environment holds this entry.
std::vector<pid_t> processes_with(const std::string& environment_entry);
std::vector<std::string> lines_of(const std::string& text);
// Asked of another program, so that a launcher that cannot do it fails instead of being skipped.
bool pid_namespaces_are_allowed();

}  // namespace ddp::launcher::testing
