#include "launcher/verdict/process_state.hpp"

#include "launcher/verdict/child_process.hpp"
#include "launcher/verdict/system_call.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <thread>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using testing::Child;

template <class Condition>
bool comes_true(const Condition& condition) {
    for (int i = 0; i < 2'000; ++i) {
        if (condition()) return true;
        std::this_thread::sleep_for(5ms);
    }
    return false;
}

TEST(ProcessState, TellsAStoppedProcessFromOneThatSleeps) {
    const Child child;
    EXPECT_TRUE(comes_true([&] { return look_at_process(child.pid()).state == 'S'; }));
    EXPECT_FALSE(look_at_process(child.pid()).is_held());
    ::kill(child.pid(), SIGSTOP);
    EXPECT_TRUE(comes_true([&] { return look_at_process(child.pid()).is_held(); }));
    ::kill(child.pid(), SIGCONT);
    EXPECT_TRUE(comes_true([&] { return !look_at_process(child.pid()).is_held(); }));
}

TEST(ProcessState, TellsWhatItSleepsIn) {
    const Child child;
    std::string line;
    std::ifstream file("/proc/" + std::to_string(child.pid()) + "/syscall");
    if (!std::getline(file, line)) {
        GTEST_SKIP() << "this host lets nobody look (Yama, or a sandbox)";
    }
    EXPECT_TRUE(comes_true([&] {
        const std::string where = look_at_process(child.pid()).waits_in;
        return where == "pause" || where == "ppoll";  // as the kernel has it
    }));
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const pid_t reader = ::fork();
    if (reader == 0) {
        char byte = 0;
        ::close(pipe[1]);
        ::_exit(::read(pipe[0], &byte, 1) == 0 ? 0 : 1);
    }
    EXPECT_TRUE(comes_true([&] { return system_call_of(reader) == "read of a pipe"; }));
    ::close(pipe[1]);
    ::close(pipe[0]);
    EXPECT_EQ(::waitpid(reader, nullptr, 0), reader);
    EXPECT_EQ(system_call_of(reader), "") << "it is gone";
}

TEST(ProcessState, CountsTheTimeOfAProcessThatComputes) {
    const Child child(Child::Does::computes);
    EXPECT_TRUE(comes_true([&] { return look_at_process(child.pid()).cpu_time >= 50ms; }));
}

TEST(ProcessState, KnowsNothingOfAProcessThatIsGone) {
    pid_t pid = 0;
    {
        const Child child;
        pid = child.pid();
    }
    EXPECT_EQ(look_at_process(pid).state, 0);
    EXPECT_FALSE(look_at_process(pid).is_held());
}

TEST(ProcessState, IsThatOfADescendantAlone) {
    const Child child;
    EXPECT_EQ(process_of_rank(child.pid(), ::getpid()), child.pid());
    EXPECT_EQ(process_of_rank(::getpid(), child.pid()), child.pid()) << "it is the parent";
    EXPECT_EQ(process_of_rank(0, child.pid()), child.pid()) << "it has not joined";
    EXPECT_EQ(process_of_rank(-5, child.pid()), child.pid());
    EXPECT_EQ(process_of_rank(1 << 30, child.pid()), child.pid()) << "there is none";
}

}  // namespace
}  // namespace ddp::launcher
