// Made-up stacks of PyTorch's programs, in made-up time.
#include "launcher/verdict/stack_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using FirstThread = StackJudge::FirstThread;
using Kind = Verdict::Kind;

ThreadStack python(pid_t tid, std::vector<std::string> frames, std::string own) {
    return {.tid = tid, .frames = std::move(frames), .own_frame = std::move(own)};
}
// In a collective of Python's, called there.
RankStacks in_call(int rank, const std::string& call, const std::string& place) {
    const pid_t pid = 100 + rank;
    return {.rank = rank,
            .pid = pid,
            .python = {python(pid, {call + " (distributed_c10d.py:9)", "f (" + place + ")"},
                              "f (" + place + ")")},
            .native = {{.tid = pid, .frames = {"pthread_cond_wait (libc.so.6)"}}}};
}
RankStacks elsewhere(int rank, const std::string& frame = "load (train.py:5)") {
    const pid_t pid = 100 + rank;
    return {.rank = rank,
            .pid = pid,
            .python = {python(pid, {frame}, frame)},
            .native = {{.tid = pid, .frames = {"read (libc.so.6)"}}}};
}

class StackJudgeTest : public ::testing::Test {
protected:
    StackJudgeTest() {
        for (int rank = 0; rank < 3; ++rank) threads.push_back({.rank = rank});
        states.assign(3, ProcessState{.pid = 1, .state = 'S', .waits_in = "futex"});
    }
    // Looks each second; whether it wanted to read.
    bool let_pass(std::chrono::seconds time) {
        bool wanted = false;
        for (const auto end = now + time; now < end;) {
            now += 1s;
            wanted = judge.is_time_to_read(now, threads) || wanted;
        }
        return wanted;
    }
    void run(int rank, std::uint64_t times = 1) {
        FirstThread& thread = threads[static_cast<std::size_t>(rank)];
        thread.switches += times;
        thread.cpu += times * 200us;
    }
    // Reading makes all of them run.
    void read(const std::vector<RankStacks>& stacks) {
        for (int rank = 0; rank < 3; ++rank) run(rank, 4);
        judge.judge(now, stacks, threads, states);
    }

    Verdict::Time now{1h};
    std::vector<FirstThread> threads;
    std::vector<ProcessState> states;
    StackJudge judge;
};

TEST_F(StackJudgeTest, BlamesWhoIsInNoCallOfThoseThatOthersWaitIn) {
    EXPECT_FALSE(let_pass(30s));
    EXPECT_TRUE(let_pass(1s));
    read({in_call(0, "all_reduce", "train.py:9"), elsewhere(1),
          in_call(2, "all_reduce", "train.py:9")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::missing);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->waiting, ElementsAre(0, 2));
    EXPECT_EQ(judge.verdict()->text,
              "rank 1 holds up ranks 0, 2, in all_reduce (train.py:9), since 30 s\n"
              "  rank 1 (pid 101) sleeps in futex, in load (train.py:5)");
    EXPECT_FALSE(let_pass(1h)) << "it has been found";
    EXPECT_TRUE(judge.verdict());
}

TEST_F(StackJudgeTest, AFirstThreadThatRunsNowAndThenDoesNotHang) {
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(let_pass(20s));
        for (int rank = 0; rank < 3; ++rank) run(rank);
    }
}

TEST_F(StackJudgeTest, ReadsLessAndLessOftenWhereNobodyWaitsForAnybody) {
    EXPECT_TRUE(let_pass(31s));
    read({elsewhere(0), elsewhere(1), elsewhere(2)});
    EXPECT_FALSE(judge.verdict());
    int readings = 0;
    for (int i = 0; i < 3600; ++i) {
        if (!let_pass(1s)) continue;
        ++readings;
        read({elsewhere(0), elsewhere(1), elsewhere(2)});
    }
    EXPECT_LE(readings, 11) << "of an hour";
    EXPECT_GE(readings, 6);
}

TEST_F(StackJudgeTest, WhatGoesOnWasUsualInThisJob) {
    const std::vector<RankStacks> stacks{in_call(0, "barrier", "train.py:9"), elsewhere(1),
                                         in_call(2, "barrier", "train.py:9")};
    EXPECT_TRUE(let_pass(31s));
    read(stacks);
    ASSERT_TRUE(judge.verdict());
    run(0, 4);  // as a user who looks makes it
    EXPECT_FALSE(let_pass(10s));
    EXPECT_TRUE(judge.verdict());
    run(0, 20);
    EXPECT_FALSE(let_pass(1s));
    EXPECT_FALSE(judge.verdict());
    for (int rank = 0; rank < 3; ++rank) run(rank);
    EXPECT_FALSE(let_pass(80s)) << "it has waited for 41 s before";
    EXPECT_TRUE(let_pass(10s));
}

TEST_F(StackJudgeTest, BlamesTheFewThatHaveCalledSomethingElse) {
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "all_reduce", "train.py:9"), in_call(1, "broadcast", "train.py:12"),
          in_call(2, "all_reduce", "train.py:9")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::mismatch);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->waiting, ElementsAre(0, 2));
    EXPECT_THAT(judge.verdict()->text, AllOf(HasSubstr("called different things"),
                                             HasSubstr("\n  ranks 0, 2: all_reduce (train.py:9)"),
                                             HasSubstr("\n  rank 1: broadcast (train.py:12)")));
}

TEST_F(StackJudgeTest, BlamesAllWhereNoneAreMore) {
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "all_reduce", "train.py:9"), in_call(1, "broadcast", "train.py:12"),
          in_call(2, "barrier", "train.py:13")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(0, 1, 2));
    EXPECT_THAT(judge.verdict()->waiting, IsEmpty());
}

TEST_F(StackJudgeTest, AllInOneCallAreStuckOnlyWhereNobodyComputes) {
    const std::vector<RankStacks> stacks{in_call(0, "all_reduce", "train.py:9"),
                                         in_call(1, "all_reduce", "train.py:9"),
                                         in_call(2, "all_reduce", "train.py:9")};
    EXPECT_TRUE(let_pass(31s));
    read(stacks);
    EXPECT_FALSE(judge.verdict()) << "who knows";
    EXPECT_TRUE(let_pass(30s));
    states[1].cpu_time = 5s;  // of a thread that moves bytes
    read(stacks);
    EXPECT_FALSE(judge.verdict());
    EXPECT_TRUE(let_pass(60s));
    read(stacks);
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::stuck);
    EXPECT_THAT(judge.verdict()->text, HasSubstr("all ranks are in all_reduce (train.py:9)"));
}

TEST_F(StackJudgeTest, OneThatCannotRunIsToBlameWhereverItIs) {
    EXPECT_TRUE(let_pass(31s));
    states[1] = {.pid = 1, .state = 'S', .is_frozen = true};
    read({in_call(0, "all_reduce", "train.py:9"),
          {.rank = 1, .pid = 101, .problem = "no"},
          in_call(2, "all_reduce", "train.py:9")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::held);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->text, HasSubstr("rank 1 (pid 101) is frozen, with its cgroup"));
}

TEST_F(StackJudgeTest, SaysNothingWhereOneCannotBeRead) {
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "all_reduce", "train.py:9"),
          {.rank = 1, .pid = 101, .problem = "no"},
          in_call(2, "all_reduce", "train.py:9")});
    EXPECT_FALSE(judge.verdict());
}

TEST(StackCall, IsKnownByNamesOfFunctions) {
    const auto native = [](const std::string& frame) {
        return call_of({.pid = 1,
                        .native = {{.tid = 1, .frames = {"poll (libc.so.6)"}},
                                   {.tid = 2, .frames = {"__futex (libc.so.6)", frame}}}});
    };
    EXPECT_EQ(native("c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)")->words(),
              "a collective");
    EXPECT_EQ(native("MPI_Allreduce (libmpi.so.40)")->words(), "MPI_Allreduce");
    EXPECT_FALSE(native("c10d::ProcessGroupGloo::runLoop (libtorch_cpu.so)"));
    EXPECT_FALSE(native("gloo::transport::tcp::Loop::run (libgloo.so)"));
    EXPECT_FALSE(call_of({}));
}

TEST(StackCall, WithinABackwardIsNamedByIt) {
    const RankStacks stacks{
        .pid = 1,
        .python = {python(1,
                          {"backward (__init__.py:197)", "Tensor.backward (_tensor.py:488)",
                           "<module> (train.py:47)"},
                          "<module> (train.py:47)")},
        .native = {{.tid = 2, .frames = {"c10d::ProcessGroupGloo::AsyncWork::execute (x)"}}}};
    EXPECT_EQ(call_of(stacks)->words(), "a collective within Tensor.backward (train.py:47)");
}

TEST(FirstThread, IsReadOffTheKernel) {
    const auto own = StackJudge::first_thread_of(3, ::getpid());
    if (!own) GTEST_SKIP() << "this kernel has no /proc/PID/schedstat";
    EXPECT_EQ(own->rank, 3);
    EXPECT_GT(own->cpu, 0ns);
    EXPECT_FALSE(StackJudge::first_thread_of(3, 0));
}

}  // namespace
}  // namespace ddp::launcher
