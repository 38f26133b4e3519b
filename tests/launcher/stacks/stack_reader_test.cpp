// Stacks of processes that this test makes: read, and the processes go on.
#include "launcher/stacks/stack_reader.hpp"

#include "base/process/process_tree.hpp"
#include "base/sanitizers.hpp"
#include "launcher/stacks/stack_copy.hpp"
#include "launcher/stacks/unwinder.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <fstream>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using Clock = std::chrono::steady_clock;

// What the processes count, so that it can be seen that they go on.
class Counter {
public:
    Counter() {
        void* const memory = ::mmap(nullptr, sizeof(std::atomic<long>), PROT_READ | PROT_WRITE,
                                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        value_ = new (memory) std::atomic<long>(0);
    }
    ~Counter() { ::munmap(value_, sizeof *value_); }
    Counter(const Counter&) = delete;
    Counter& operator=(const Counter&) = delete;

    void add() { ++*value_; }
    long value() const { return *value_; }
    bool moves() const {
        const long before = *value_;
        for (int i = 0; i < 500; ++i) {
            if (*value_ > before + 100) return true;
            std::this_thread::sleep_for(10ms);
        }
        return false;
    }

private:
    std::atomic<long>* value_;
};

// NOLINTBEGIN: its name is what is looked for.
extern "C" [[gnu::noinline]] void ddp_test_counts_for_ever(Counter& counter) {
    for (;;) counter.add();
}
extern "C" [[gnu::noinline]] void ddp_test_calls_it(Counter& counter) {
    ddp_test_counts_for_ever(counter);
    counter.add();  // no jump instead of the call
}
// NOLINTEND

class Program {
public:
    // With so many threads beside the first.
    explicit Program(Counter& counter, int threads = 0) {
        pid_ = ::fork();
        if (pid_ != 0) return;
        ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        for (int i = 0; i < threads; ++i) {
            std::thread([&] { ddp_test_calls_it(counter); }).detach();
        }
        ddp_test_calls_it(counter);
    }
    ~Program() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    pid_t pid() const { return pid_; }
    char state() const { return base::stat_of(pid_)->state; }

private:
    pid_t pid_;
};

std::vector<std::string> functions_of(const ThreadStack& stack) {
    std::vector<std::string> names;
    for (const std::string& frame : stack.frames)
        names.push_back(frame.substr(0, frame.find(" (")));
    return names;
}

// A busy host takes long to read what a large program's functions are called.
std::vector<RankStacks> read(std::vector<StackReader::Wanted> wanted,
                             StackReader::Milliseconds most = 30s) {
    StackReader reader;
    reader.begin(Clock::now(), std::move(wanted), most);
    for (;;) {
        if (auto all = reader.take(Clock::now())) return *std::move(all);
        std::this_thread::sleep_for(5ms);
    }
}

// On a host that is too busy to stop a thread in time that one is left out: once more, then.
std::vector<RankStacks> read_whole(const StackReader::Wanted& wanted) {
    std::vector<RankStacks> all = read({wanted});
    for (int i = 0; i < 20 && !all.at(0).has_all_native; ++i) all = read({wanted});
    return all;
}

TEST(StackReader, NamesTheCallsOfEachThreadWhichGoOn) {
    Counter counter;
    const Program program(counter, 2);
    ASSERT_TRUE(counter.moves());
    const std::vector<RankStacks> all = read_whole({3, program.pid()});
    ASSERT_THAT(all, SizeIs(1));
    EXPECT_EQ(all[0].rank, 3);
    EXPECT_EQ(all[0].pid, program.pid());
    EXPECT_EQ(all[0].problem, "");
    EXPECT_THAT(all[0].python, IsEmpty());
    ASSERT_THAT(all[0].native, SizeIs(3));
    EXPECT_EQ(all[0].native[0].tid, program.pid());
    for (const ThreadStack& thread : all[0].native) {
        EXPECT_THAT(functions_of(thread), Contains("ddp_test_calls_it"));
#ifdef DDP_SANITIZES_ADDRESSES  // which is built without lines
        EXPECT_THAT(thread.frames, Contains("ddp_test_calls_it (ddp_launcher_tests)"));
#else
        EXPECT_THAT(thread.frames, Contains(AllOf(StartsWith("ddp_test_calls_it (stack_reader_"),
                                                  HasSubstr("_test.cpp:"))));
#endif
        EXPECT_THAT(functions_of(thread), Not(Contains("start_thread")));
    }
    EXPECT_TRUE(counter.moves());
    EXPECT_NE(program.state(), 't');
}

TEST(StackReader, OfVeryManyThreadsItReadsTheOldestAndSaysSo) {
    Counter counter;
    const Program program(counter, 70);
    ASSERT_TRUE(counter.moves());
    while (base::names_in("/proc/" + std::to_string(program.pid()) + "/task").size() < 71) {
        std::this_thread::sleep_for(10ms);
    }
    const std::vector<RankStacks> all = read({{0, program.pid()}}, 20s);
    EXPECT_THAT(all.at(0).native, SizeIs(64));
    EXPECT_EQ(all[0].problem, "64 of its 71 threads");
    EXPECT_TRUE(counter.moves());
}

// Makes a cgroup whose processes may run for the first 20 ms of each 0.8 s; empty: this user cannot.
std::string make_slow_cgroup() {
    const bool is_v2 = std::ifstream("/sys/fs/cgroup/cgroup.controllers").good();
    if (is_v2) std::ofstream("/sys/fs/cgroup/cgroup.subtree_control") << "+cpu" << std::flush;
    const std::string cgroup = std::string("/sys/fs/cgroup/") + (is_v2 ? "" : "cpu/") +
                               "ddp-test-" + std::to_string(::getpid());
    if (::mkdir(cgroup.c_str(), 0700) != 0) return {};
    if (is_v2) {
        std::ofstream(cgroup + "/cpu.max") << "20000 800000" << std::flush;
    } else {
        std::ofstream(cgroup + "/cpu.cfs_period_us") << 800'000 << std::flush;
        std::ofstream(cgroup + "/cpu.cfs_quota_us") << 20'000 << std::flush;
    }
    return cgroup;
}

// As on a host with very much more to do than it can. It is found in its wait.
TEST(StackReader, WaitsForOneThatWaitsForAProcessor) {
    const std::string cgroup = make_slow_cgroup();
    if (cgroup.empty()) GTEST_SKIP() << "no cgroup can be made";
    std::vector<std::string> problems;
    {
        Counter counter;
        const Program program(counter);
        std::ofstream members(cgroup + "/cgroup.procs");
        members << program.pid() << std::flush;
        EXPECT_TRUE(members) << "it does not get into its cgroup";
        for (int i = 0; i < 3; ++i) {
            std::this_thread::sleep_for(100ms);
            problems.push_back(StackCopy(program.pid()).problem());
        }
    }
    EXPECT_THAT(problems, ElementsAre("", "", ""));
    EXPECT_EQ(::rmdir(cgroup.c_str()), 0);
}

TEST(StackReader, ReadsOneThatIsStoppedAndLeavesItSo) {
    Counter counter;
    const Program program(counter);
    ASSERT_TRUE(counter.moves());
    ASSERT_EQ(::kill(program.pid(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(program.pid(), &status, WUNTRACED), program.pid());
    const long before = counter.value();
    const std::vector<RankStacks> all = read_whole({0, program.pid()});
    ASSERT_THAT(all.at(0).native, SizeIs(1)) << all[0].problem;
    EXPECT_THAT(functions_of(all[0].native[0]), Contains("ddp_test_calls_it"));
    // From the reader's stop to its own it passes through the kernel's run queue.
    for (int i = 0; i < 1000 && program.state() != 'T'; ++i) std::this_thread::sleep_for(10ms);
    EXPECT_EQ(program.state(), 'T');
    EXPECT_EQ(counter.value(), before);
    ASSERT_EQ(::kill(program.pid(), SIGCONT), 0);
    EXPECT_TRUE(counter.moves());
}

TEST(StackReader, SaysWhyThereIsNothing) {
    Counter counter;
    const Program traced(counter);
    ASSERT_TRUE(counter.moves());
    ASSERT_EQ(::ptrace(PTRACE_SEIZE, traced.pid(), nullptr, nullptr), 0);
    const pid_t gone = ::fork();
    if (gone == 0) ::_exit(0);
    ASSERT_EQ(::waitpid(gone, nullptr, 0), gone);
    const std::vector<RankStacks> all = read({{0, traced.pid()}, {1, gone}});
    ASSERT_THAT(all, SizeIs(2));
    EXPECT_THAT(all[0].native, IsEmpty());
    EXPECT_THAT(all[0].problem, HasSubstr("a debugger holds it (pid "));
    EXPECT_EQ(all[1].problem, "the process has ended");
    EXPECT_TRUE(counter.moves());
}

// They stand still for nobody, and that is no failure.
TEST(StackReader, OfProgramsThatDoNotCommunicateNothingIsRead) {
    Counter counter;
    const Program program(counter);
    StackReader reader;
    reader.begin(Clock::now(), {{7, program.pid()}}, 30s, StackReader::Whom::who_may_communicate);
    std::optional<std::vector<RankStacks>> all;
    while (!(all = reader.take(Clock::now()))) std::this_thread::sleep_for(5ms);
    ASSERT_EQ(all->size(), 1U);
    EXPECT_EQ(all->at(0).rank, 7);
    EXPECT_EQ(all->at(0).pid, program.pid());
    EXPECT_EQ(all->at(0).problem, "");
    EXPECT_TRUE(all->at(0).native.empty() && !all->at(0).has_all_native);
}

TEST(StackReader, WhatIsNotReadInTimeIsSaidToBe) {
    Counter counter;
    const Program program(counter);
    StackReader reader;
    reader.begin(Clock::now(), {{7, program.pid()}});
    ASSERT_EQ(::kill(reader.helper(), SIGSTOP), 0);
    EXPECT_FALSE(reader.take(Clock::now()));
    const auto all = reader.take(Clock::now() + StackReader::most_time + 1s);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->at(0).rank, 7);
    EXPECT_THAT(all->at(0).problem, HasSubstr("time for all was over"));
    EXPECT_FALSE(reader.is_reading());
    EXPECT_TRUE(counter.moves());
}

// Wherever in its work the reader is killed: at most 100 ms later all threads run.
void kill_readers(int times) {
    Counter counter;
    const Program program(counter, 7);
    ASSERT_TRUE(counter.moves());
    const unsigned seed = std::random_device{}();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    const auto tasks = "/proc/" + std::to_string(program.pid()) + "/task";
    for (int i = 0; i < times; ++i) {
        {
            StackReader reader;
            reader.begin(Clock::now(), {{0, program.pid()}});
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 15'000));
        }
        const auto is_held = [&](pid_t tid) {
            const auto status =
                base::read_small_file(tasks + "/" + std::to_string(tid) + "/status", 4096);
            return base::number_behind("\nTracerPid:", status).value_or(0) != 0;
        };
        const StackCopy seen(program.pid());
        for (std::size_t thread = 0; thread < seen.size(); ++thread) {
            for (int look = 0; look < 500 && is_held(seen[thread].tid); ++look) {
                std::this_thread::sleep_for(2ms);
            }
            ASSERT_FALSE(is_held(seen[thread].tid)) << "round " << i;
        }
        ASSERT_TRUE(counter.moves());
        while (::waitpid(-1, nullptr, WNOHANG) > 0) continue;  // readers
    }
}

TEST(StackReader, NobodyIsHeldWhenItIsKilled) { kill_readers(20); }
TEST(StackReader, SoakNobodyIsHeldWhenItIsKilled) { kill_readers(1000); }

TEST(Unwinder, FollowsFramePointersWithoutNames) {
    ThreadCopy thread;
    const auto put = [&](std::size_t at, std::uint64_t word) {
        std::copy_n(reinterpret_cast<const std::byte*>(&word), sizeof word,
                    thread.bytes.begin() + static_cast<std::ptrdiff_t>(at));
    };
    thread.begin = 0x1000;
    thread.size = 0x40;
    put(0x10, 0x1020);  // a frame: the next, and where it returns to
    put(0x18, 0xaaaa);
    put(0x20, 0x1010);  // one that leads inwards, as nothing true does
    put(0x28, 0xbbbb);
#if defined(__aarch64__)
    thread.registers.pc = 0x9999;
    thread.registers.regs[29] = 0x1010;
#else
    thread.registers.rip = 0x9999;
    thread.registers.rbp = 0x1010;
#endif
    EXPECT_THAT(frame_pointers_of(thread), ElementsAre(0x9999, 0xaaaa, 0xbbbb));
    EXPECT_FALSE(thread.word_at(0xfff));
    EXPECT_FALSE(thread.word_at(0x1039));
    EXPECT_TRUE(thread.word_at(0x1038));
    EXPECT_FALSE(thread.word_at(~std::uint64_t{0}));
}

TEST(Unwinder, WithoutItsLibraryItTellsPlaces) {
    Counter counter;
    const Program program(counter);
    ASSERT_TRUE(counter.moves());
    std::optional<StackCopy> copy;
    do {
        copy.emplace(program.pid());
    } while (copy->is_late());
    ASSERT_EQ(copy->problem(), "");
    const std::vector<ThreadStack> threads = unwind_without_names(*copy);
    ASSERT_THAT(threads, SizeIs(1));
    ASSERT_FALSE(threads[0].frames.empty());
    EXPECT_THAT(threads[0].frames[0], AllOf(StartsWith("0x"), HasSubstr("(ddp_launcher_tests)")));
}

}  // namespace
}  // namespace ddp::launcher
