// Ends of real children as values and as words.
#include "launcher/process/exit_status.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace ddp::launcher {
namespace {

// Of a child that ends as told: by a signal when that is not 0.
ExitStatus status_of_child(const ExitStatus& wanted) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        if (wanted.signal != 0) ::kill(::getpid(), wanted.signal);
        ::_exit(wanted.code);
    }
    siginfo_t info{};
    EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED), 0);
    return exit_status_of(info);
}

TEST(ExitStatus, AnExitCodeIsKept) {
    for (const int code : {0, 1, 7, 82, 255}) {
        const ExitStatus status = status_of_child({.code = code});
        EXPECT_EQ(status, (ExitStatus{.code = code}));
        EXPECT_EQ(status.exit_code(), code);
        EXPECT_EQ(status.ok(), code == 0);
        EXPECT_EQ(to_string(status), "exit code " + std::to_string(code));
    }
}

TEST(ExitStatus, ASignalCountsAs128AndItsNumber) {
    const ExitStatus status = status_of_child({.signal = SIGKILL});
    EXPECT_EQ(status, (ExitStatus{.signal = SIGKILL}));
    EXPECT_FALSE(status.ok());
    EXPECT_EQ(status.exit_code(), 137);
    EXPECT_EQ(to_string(status), "SIGKILL (signal 9)");
}

TEST(ExitStatus, ACoreDumpIsMentioned) {
    EXPECT_EQ(to_string(ExitStatus{.signal = SIGSEGV, .core_dumped = true}),
              "SIGSEGV (signal 11), core dumped");
}

TEST(ExitStatus, ASignalWithoutANameHasItsNumber) {
    EXPECT_EQ(signal_name(40), "signal 40");
    EXPECT_EQ(to_string(ExitStatus{.signal = 40}), "signal 40");
}

// As the C library's, where it has them.
TEST(ExitStatus, SignalsHaveTheUsualNames) {
    for (int signal = 0; signal < 100; ++signal) {
        const char* const name = ::sigabbrev_np(signal);
        EXPECT_EQ(signal_name(signal),
                  name != nullptr ? std::string("SIG") + name : "signal " + std::to_string(signal));
    }
}

}  // namespace
}  // namespace ddp::launcher
