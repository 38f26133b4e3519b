// A failing process that was asked to stop itself, seen by its parent. SIGILL stands for all
// faults: sanitizers have handlers of their own for the others.
#include "contract/break_on_failure.hpp"

#include "contract/error_file.hpp"

#include <ddp/error.hpp>
#include <ddp/run_worker.hpp>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace {

using ddp::contract::read_error_file;

class BreakOnFailure : public ::testing::Test {
protected:
    BreakOnFailure() {
        std::string pattern = (std::filesystem::temp_directory_path() / "ddp-test-XXXXXX").string();
        folder_ = ::mkdtemp(pattern.data());
        path_ = folder_ / "error.json";
    }
    ~BreakOnFailure() override {
        if (pid_ > 0) {
            ::kill(pid_, SIGKILL);
            ::waitpid(pid_, nullptr, 0);
        }
        std::filesystem::remove_all(folder_);
    }

    void start(const std::function<int()>& body, const char* asked = "1") {
        pid_ = ::fork();
        if (pid_ != 0) return;
        const rlimit no_core{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        ::setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
        ::setenv("DDP_BREAK_ON_FAILURE", asked, 1);
        std::freopen("/dev/null", "w", stderr);
        // GoogleTest would catch what nobody else does.
        [&]() noexcept { ::_exit(body()); }();
    }
    // The wait status at the next stop or end; an end is the last one.
    int next_status() {
        int status = 0;
        EXPECT_EQ(::waitpid(pid_, &status, WUNTRACED), pid_);
        if (!WIFSTOPPED(status)) pid_ = -1;
        return status;
    }
    void expect_held_with(const std::string& message, int then_signal) {
        ASSERT_TRUE(WIFSTOPPED(next_status()));
        const auto report = read_error_file(path_);
        ASSERT_TRUE(report) << "written before the stop";
        EXPECT_EQ(report->message, message);
        ::kill(pid_, SIGCONT);
        const int status = next_status();
        ASSERT_TRUE(WIFSIGNALED(status)) << "held once, then it dies";
        EXPECT_EQ(WTERMSIG(status), then_signal);
    }

    std::filesystem::path folder_;
    std::filesystem::path path_;
    pid_t pid_ = -1;
};

int crash(int signal) {
    ddp::contract::install_terminate_handler();
    std::raise(signal);
    return 0;
}

TEST_F(BreakOnFailure, HoldsAnExceptionOfRunWorker) {
    start([] { return ddp::run_worker([] { throw ddp::UsageError("no data"); }); });
    expect_held_with("ddp::UsageError: no data", SIGABRT);
}

TEST_F(BreakOnFailure, HoldsAnExceptionOfAnotherThread) {
    start([] {
        return ddp::run_worker([] { std::thread([] { throw ddp::UsageError("lost"); }).join(); });
    });
    expect_held_with("ddp::UsageError: lost", SIGABRT);
}

TEST_F(BreakOnFailure, HoldsASignal) {
    start([] { return crash(SIGILL); });
    expect_held_with("SIGILL", SIGILL);
}

TEST_F(BreakOnFailure, HoldsAFaultAndAnAbort) {
    start([]() -> int {
        ddp::contract::install_terminate_handler();
        __builtin_trap();
    });
    expect_held_with("SIGILL", SIGILL);
    std::filesystem::remove(path_);
    start([] { return crash(SIGABRT); });
    expect_held_with("SIGABRT", SIGABRT);
}

TEST_F(BreakOnFailure, DoesNotHoldWhoLeavesBecauseOfAPeer) {
    start([] { return ddp::run_worker([] { throw ddp::PeerError(1, "rank 1 ended"); }); });
    const int status = next_status();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 82);
}

TEST_F(BreakOnFailure, DoesNotHoldWhoLeavesByAnyErrorThatNamesAPeer) {
    start([] { return ddp::run_worker([] { throw ddp::TimeoutError("no rank 1", 1); }); });
    const int status = next_status();
    ASSERT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 82);
    const auto report = read_error_file(path_);
    ASSERT_TRUE(report);
    EXPECT_EQ(report->message, "ddp::TimeoutError: no rank 1");
    EXPECT_EQ(report->peer, 1);
}

TEST_F(BreakOnFailure, HoldsWhoIsNamedItself) {
    start([] {
        ::setenv("RANK", "1", 1);
        return ddp::run_worker([] { throw ddp::UsageError("no gradient on rank 1", 1); });
    });
    expect_held_with("ddp::UsageError: no gradient on rank 1", SIGABRT);
}

TEST_F(BreakOnFailure, DoesNotHoldAPlainMainThatEndsBecauseOfAPeer) {
    start([]() -> int {
        ddp::contract::install_terminate_handler();
        std::thread([] { throw ddp::PeerError(1, "rank 1 ended"); }).join();
        return 0;
    });
    const int status = next_status();
    ASSERT_TRUE(WIFSIGNALED(status));
    EXPECT_EQ(WTERMSIG(status), SIGABRT);
}

TEST_F(BreakOnFailure, DoesNothingWhenNotAskedFor) {
    start([] { return ddp::run_worker([] { throw ddp::UsageError("no data"); }); }, "0");
    const int status = next_status();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 1);
    start([] { return crash(SIGILL); }, "0");
    ASSERT_TRUE(WIFSIGNALED(next_status()));
    start(
        []() -> int {
            ddp::contract::install_terminate_handler();
            throw ddp::UsageError("no data");
        },
        "0");
    EXPECT_TRUE(WIFSIGNALED(next_status()));
}

TEST_F(BreakOnFailure, LeavesTheProgramsOwnHandlerAlone) {
    start([] {
        ::signal(SIGILL, [](int) { ::_exit(44); });
        return crash(SIGILL);
    });
    const int status = next_status();
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 44);
}

}  // namespace
