// What a program that cannot be started is called: by the step that failed.
#include "launcher/worker/worker_process.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace ddp::launcher {
namespace {

WorkerStart start_of(const std::string& path) {
    return {.path = path,
            .arguments = {path},
            .environment = {},
            .descriptors = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO, -1},
            .descriptor_limit = {64, 64}};
}

TEST(WorkerProcess, AFileThatIsNotThereIsNotFound) {
    try {
        WorkerProcess::start(start_of("/nowhere/program"));
        FAIL();
    } catch (const SpawnError& error) {
        EXPECT_EQ(error.exit_code(), 127);
    }
}

void start_without_a_process_left() {
    constexpr uid_t nobody = 65534;  // root has no limit
    if (::geteuid() == 0 && ::setuid(nobody) != 0) ::_exit(2);
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NPROC, &none);
    try {
        WorkerProcess::start(start_of("/bin/true"));
    } catch (const SpawnError& error) {
        std::fprintf(stderr, "it was executed: %s\n", error.what());
        ::_exit(3);
    } catch (const SystemError& error) {
        std::fprintf(stderr, "%s\n", error.what());
        ::_exit(0);
    }
    ::_exit(4);
}

TEST(WorkerProcess, ALimitOnProcessesIsNoFaultOfTheProgram) {
    EXPECT_EXIT(start_without_a_process_left(), ::testing::ExitedWithCode(0), "ulimit -u");
}

}  // namespace
}  // namespace ddp::launcher
