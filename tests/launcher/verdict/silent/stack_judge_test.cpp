// Made-up stacks of PyTorch's programs, in made-up time.
#include "launcher/verdict/silent/stack_judge.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
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
            .native = {{.tid = pid, .frames = {"pthread_cond_wait (libc.so.6)"}}},
            .has_all_native = true};
}
RankStacks elsewhere(int rank, const std::string& frame = "load (train.py:5)") {
    const pid_t pid = 100 + rank;
    return {.rank = rank,
            .pid = pid,
            .python = {python(pid, {frame}, frame)},
            .native = {{.tid = pid, .frames = {"read (libc.so.6)"}}},
            .has_all_native = true};
}

class StackJudgeTest : public ::testing::Test {
protected:
    StackJudgeTest() {
        states.assign(4, ProcessState{.pid = 1, .state = 'S', .waits_in = "futex"});
    }

    bool look() {
        std::vector<RankRuns> threads;
        for (int rank = 0; rank < size; ++rank) {
            if (std::ranges::count(ended, rank) > 0) continue;
            if (std::ranges::count(who_poll, rank) > 0) poll(rank, 1s);
            for (const bool is_of_first : {true, false}) {
                threads.push_back(
                    {.rank = rank, .is_of_first = is_of_first, .runs = runs[at(rank)]});
            }
        }
        return judge.is_time_to_read(now, threads);
    }
    // Looks each second; whether it wanted to read.
    bool let_pass(std::chrono::seconds time) {
        bool wanted = false;
        for (const auto end = now + time; now < end;) {
            now += 1s;
            wanted = look() || wanted;
        }
        return wanted;
    }
    void run(int rank, std::uint64_t times) {
        runs[at(rank)].switches += times;
        runs[at(rank)].sleeps += times;
        runs[at(rank)].cpu += times * 100us;
    }
    void poll(int rank, std::chrono::seconds time) {
        runs[at(rank)].switches += 50;  // others run on its processor, too
        runs[at(rank)].cpu += time;
    }
    // Reading makes all of them run a little.
    void read_once(const std::vector<RankStacks>& stacks) {
        std::vector<RankReading> ranks;
        for (const RankStacks& one : stacks) {
            run(one.rank, 4);
            RankReading& reading = ranks.emplace_back(reading_of(one));
            reading.process = states[at(one.rank)];
            reading.runs = runs[at(one.rank)];
            reading.at = now;
        }
        judge.judge(now, ranks, ended);
    }
    void read(const std::vector<RankStacks>& stacks) {
        read_once(stacks);
        EXPECT_FALSE(judge.verdict()) << "one reading is none";
        EXPECT_TRUE(let_pass(5s));
        read_once(stacks);
    }
    // As often as it takes where some poll.
    void read_again_and_again(const std::vector<RankStacks>& stacks) {
        for (int i = 0; i < StackJudge::pairs_of_polls; ++i) {
            read_once(stacks);
            EXPECT_FALSE(judge.verdict()) << i;
            EXPECT_TRUE(let_pass(5s));
        }
        read_once(stacks);
    }
    static std::size_t at(int rank) { return static_cast<std::size_t>(rank); }
    static std::vector<RankStacks> all_in(const std::string& call) {
        return {in_call(0, call, "train.py:9"), in_call(1, call, "train.py:9"),
                in_call(2, call, "train.py:9")};
    }
    std::vector<RankStacks> without_1() const {
        return {in_call(0, "all_reduce", line), elsewhere(1), in_call(2, "all_reduce", line)};
    }

    Verdict::Time now{1h};
    int size = 3;
    std::vector<int> who_poll;        // all the time
    std::string line = "train.py:9";  // of the call
    std::array<ThreadRuns, 4> runs;
    std::vector<ProcessState> states;
    std::vector<int> ended;
    StackJudge judge;
};

TEST_F(StackJudgeTest, BlamesWhoIsInNoCallOfThoseThatOthersWaitIn) {
    EXPECT_FALSE(let_pass(30s));
    EXPECT_TRUE(let_pass(1s));
    read(without_1());
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::missing);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->waiting, ElementsAre(0, 2));
    EXPECT_TRUE(judge.verdict()->may_end_job);
    EXPECT_EQ(judge.verdict()->text,
              "rank 1 holds up ranks 0, 2, in all_reduce (train.py:9), since 35 s\n"
              "  rank 1 (pid 101) sleeps in futex, in load (train.py:5)");
    EXPECT_FALSE(let_pass(1h)) << "it has been found";
    EXPECT_TRUE(judge.verdict());
}

// As those that look for a slow rank: a job that begins to hang meanwhile is found as soon.
TEST_F(StackJudgeTest, IsNotPutOffByReadingsOfOthers) {
    for (int second = 0; second < 30; second += 2) {
        judge.note_foreign_reading();
        for (int rank = 0; rank < 3; ++rank) run(rank, 4);
        EXPECT_FALSE(let_pass(2s));
    }
    EXPECT_TRUE(let_pass(1s));
    EXPECT_FALSE(judge.is_between_readings());
    read_once(without_1());
    EXPECT_TRUE(judge.is_between_readings());
}

// More than readers make it: it goes on.
TEST_F(StackJudgeTest, WaitsWhereAThreadRunsBesideReadingsOfOthers) {
    for (int second = 0; second < 60; second += 2) {
        judge.note_foreign_reading();
        for (int rank = 0; rank < 3; ++rank) run(rank, 4 + 20);
        EXPECT_FALSE(let_pass(2s));
    }
}

TEST_F(StackJudgeTest, WhoHasMuchToDoDoesNotEndTheJob) {
    EXPECT_TRUE(let_pass(31s));
    read_once(without_1());
    EXPECT_TRUE(let_pass(5s));
    states[1].cpu_time += 4s;
    read_once(without_1());
    ASSERT_TRUE(judge.verdict());
    EXPECT_FALSE(judge.verdict()->may_end_job);
    EXPECT_THAT(judge.verdict()->text, HasSubstr("rank 1 (pid 101) computes, in load"));
}

TEST_F(StackJudgeTest, AFirstThreadThatRunsNowAndThenDoesNotHang) {
    for (int i = 0; i < 20; ++i) {
        EXPECT_FALSE(let_pass(20s));
        for (int rank = 0; rank < 3; ++rank) run(rank, 1);
    }
}

// As where the first thread waits for another for ever, which trains.
TEST_F(StackJudgeTest, AThreadThatHasRunBetweenTheReadingsDoesNotWait) {
    EXPECT_TRUE(let_pass(31s));
    read_once(without_1());
    EXPECT_TRUE(let_pass(5s));
    run(0, 30);
    read_once(without_1());
    EXPECT_FALSE(judge.verdict());
}

TEST_F(StackJudgeTest, ReadsLessAndLessOftenWhereNobodyWaitsForAnybody) {
    int readings = 0;
    for (int i = 0; i < 3600; ++i) {
        if (!let_pass(1s)) continue;
        ++readings;
        read_once({elsewhere(0), elsewhere(1), elsewhere(2)});
    }
    EXPECT_FALSE(judge.verdict());
    EXPECT_LE(readings, 11) << "of an hour";
    EXPECT_GE(readings, 6);
}

TEST_F(StackJudgeTest, WhatGoesOnWasUsualInThisJob) {
    EXPECT_TRUE(let_pass(31s));
    read(without_1());
    ASSERT_TRUE(judge.verdict());
    run(0, 4);  // as a user who looks makes it
    EXPECT_FALSE(let_pass(10s));
    EXPECT_TRUE(judge.verdict());
    run(0, 20);
    EXPECT_FALSE(let_pass(1s));
    EXPECT_FALSE(judge.verdict());
    for (int rank = 0; rank < 3; ++rank) run(rank, 1);
    EXPECT_FALSE(let_pass(80s)) << "it has waited for 46 s before";
    EXPECT_TRUE(let_pass(20s));
}

TEST_F(StackJudgeTest, OneThatWaitedAndHasEndedWaitsNoMore) {
    EXPECT_TRUE(let_pass(31s));
    read(without_1());
    ASSERT_TRUE(judge.verdict());
    ended = {0};
    EXPECT_FALSE(let_pass(1s));
    EXPECT_FALSE(judge.verdict());
}

TEST_F(StackJudgeTest, BlamesTheFewThatHaveCalledSomethingElse) {
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "all_reduce", "train.py:9"), in_call(1, "broadcast", "train.py:12"),
          in_call(2, "all_reduce", "train.py:9")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::mismatch);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->waiting, ElementsAre(0, 1, 2));
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
}

// The root of a scatter calls it at another line; a receiver receives.
TEST_F(StackJudgeTest, CallsThatMayDifferAreNoMismatch) {
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "send", "train.py:9"), in_call(1, "recv", "train.py:12"),
          in_call(2, "recv", "train.py:12")});
    EXPECT_FALSE(judge.verdict());
    EXPECT_TRUE(let_pass(2min));
    read({in_call(0, "broadcast", "train.py:9"), in_call(1, "broadcast", "train.py:12"),
          in_call(2, "broadcast", "train.py:12")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::stuck);
}

TEST_F(StackJudgeTest, AllInOneCallAreStuckOnlyWhereNobodyComputes) {
    EXPECT_TRUE(let_pass(31s));
    read_once(all_in("all_reduce"));
    EXPECT_TRUE(let_pass(5s));
    states[1].cpu_time = 1s;  // of a thread that moves bytes
    read_once(all_in("all_reduce"));
    EXPECT_FALSE(judge.verdict());
    EXPECT_TRUE(let_pass(60s));
    read(all_in("all_reduce"));
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::stuck);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(0, 1, 2));
    EXPECT_THAT(judge.verdict()->worth_reading(), ElementsAre(0, 1, 2));
    EXPECT_THAT(judge.verdict()->text, HasSubstr("all ranks have been in all_reduce (train.py:9)"));
}

TEST_F(StackJudgeTest, WhoHasEndedWillNeverCome) {
    ended = {1};
    EXPECT_TRUE(let_pass(31s));
    read({in_call(0, "barrier", "train.py:9"), in_call(2, "barrier", "train.py:9")});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::ahead);
    EXPECT_EQ(judge.verdict()->text,
              "ranks 0, 2 have been in barrier (train.py:9) for 35 s; rank 1 never will be: it has "
              "ended");
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
    EXPECT_FALSE(judge.verdict()->in_debugger);
}

TEST_F(StackJudgeTest, OneInADebuggerIsLeftToIt) {
    EXPECT_TRUE(let_pass(31s));
    states[1] = {.pid = 1, .state = 't', .tracer = 77};
    read(without_1());
    ASSERT_TRUE(judge.verdict());
    EXPECT_TRUE(judge.verdict()->in_debugger);
    EXPECT_THAT(judge.verdict()->text, HasSubstr("is held by a debugger (pid 77)"));
}

TEST_F(StackJudgeTest, SaysNothingWhereOneIsNotReadAsWellAsTheOthers) {
    std::vector<RankStacks> stacks = without_1();
    stacks[1].has_all_native = false;  // as of more than 64 threads
    EXPECT_TRUE(let_pass(31s));
    read_once(stacks);
    EXPECT_FALSE(let_pass(5s));
    EXPECT_TRUE(let_pass(120s));
    stacks = all_in("all_reduce");
    stacks[2].python.clear();  // py-spy was too slow
    read_once(stacks);
    EXPECT_FALSE(let_pass(5s));
    EXPECT_FALSE(judge.verdict());
}

// As in MPI's calls: they compute all the time, and never sleep.
TEST_F(StackJudgeTest, WhoPollsWaitsWhereTheOneToBlameStandsStill) {
    who_poll = {0, 2};
    EXPECT_TRUE(let_pass(31s));
    read_again_and_again(without_1());
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::missing);
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(1));
    EXPECT_THAT(judge.verdict()->waiting, ElementsAre(0, 2));
    EXPECT_FALSE(judge.verdict()->may_end_job) << "it might have no part in the call";
    EXPECT_EQ(judge.verdict()->text,
              "rank 1 holds up ranks 0, 2, in all_reduce (train.py:9), since 15 s\n"
              "  rank 1 (pid 101) sleeps in futex, in load (train.py:5); it has not run for 45 s");
    for (int hour = 0; hour < 10; ++hour) {  // users look
        for (int rank = 0; rank < 3; ++rank) run(rank, 8);
        EXPECT_FALSE(let_pass(1h));
    }
    EXPECT_TRUE(judge.verdict());
}

TEST_F(StackJudgeTest, WhoPollsWaitsForWhoIsStopped) {
    who_poll = {0, 2};
    states[1].state = 'T';
    EXPECT_TRUE(let_pass(31s));
    read_again_and_again(without_1());
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->kind, Kind::held);
    EXPECT_THAT(judge.verdict()->text, HasSubstr("\n  rank 1 (pid 101) is stopped (SIGSTOP)"));
}

TEST_F(StackJudgeTest, WhoPollsWaitsNoLongerThanTheOneToBlameStandsStill) {
    const std::vector<std::function<void()>> ends{
        [&] { run(1, 30); },
        [&] { runs[1].cpu += 1s; },  // on a processor of its own
        [&] { ended = {1}; },
        [&] { runs[0].sleeps += 20; },
    };
    for (std::size_t i = 0; i < ends.size(); ++i) {
        SCOPED_TRACE(i);
        judge = StackJudge();
        ended.clear();
        who_poll = {0, 2};
        EXPECT_TRUE(let_pass(31s));
        read_again_and_again(without_1());
        ASSERT_TRUE(judge.verdict());
        ends[i]();
        let_pass(20s);
        EXPECT_FALSE(judge.verdict());
    }
}

TEST_F(StackJudgeTest, WhoPollsNowAndThenGoesOn) {
    const std::vector<std::function<void()>> between{
        [&] { runs[0].sleeps += 20; },
        [&] { runs[0].cpu -= 4900ms; },  // it has slept for most of the time
        [&] { run(1, 20); },
        [&] { runs[1].cpu += 5s; },
        [&] { states[1].cpu_time += 5s; },  // in another thread, for which the first one waits
        [&] { line = "train.py:12"; },
    };
    for (std::size_t i = 0; i < between.size(); ++i) {
        SCOPED_TRACE(i);
        judge = StackJudge();
        who_poll = {0};
        EXPECT_TRUE(let_pass(31s));
        read_once(without_1());
        EXPECT_TRUE(let_pass(5s));
        read_once(without_1());
        EXPECT_TRUE(let_pass(5s));
        between[i]();
        read_once(without_1());
        let_pass(5s);
        read_once(without_1());
        EXPECT_FALSE(judge.verdict());
        line = "train.py:9";
    }
}

// It would be said of each job in which one has more to do.
TEST_F(StackJudgeTest, WhoPollsWaitsForNobodyWhoComputes) {
    std::vector<RankStacks> stacks = without_1();
    stacks.push_back(elsewhere(3));  // has stood still for long
    size = 4;
    who_poll = {0, 1, 2};
    EXPECT_TRUE(let_pass(31s));
    for (int i = 0; i < 4; ++i) {
        read_once(stacks);
        let_pass(5s);
    }
    EXPECT_FALSE(judge.verdict());
}

TEST_F(StackJudgeTest, AllInOneCallThatPollMayGoOn) {
    size = 4;  // one of which is not read, as it is about to end
    who_poll = {0, 1, 2};
    EXPECT_TRUE(let_pass(31s));
    for (int i = 0; i < 4; ++i) {
        read_once(all_in("MPI_Allreduce"));
        let_pass(5s);
    }
    EXPECT_FALSE(judge.verdict());
}

// NCCL's collectives are awaited there.
TEST_F(StackJudgeTest, WhoWaitsForItsGpuWaitsForWhoStandsStill) {
    const auto waits_for_gpu = [](int rank) {
        RankStacks stacks = elsewhere(rank, "step (train.py:50)");
        stacks.native[0].frames = {"(libcuda.so.1)", "cuStreamSynchronize (libcuda.so.1)"};
        return stacks;
    };
    EXPECT_TRUE(let_pass(31s));
    read_again_and_again({waits_for_gpu(0), elsewhere(1), waits_for_gpu(2)});
    ASSERT_TRUE(judge.verdict());
    EXPECT_EQ(judge.verdict()->text,
              "rank 1 holds up ranks 0, 2, in a wait for the GPU (train.py:50), since 45 s\n"
              "  rank 1 (pid 101) sleeps in futex, in load (train.py:5); it has not run for 45 s");
    EXPECT_FALSE(judge.verdict()->may_end_job) << "it may have much to do of its own";
    judge = StackJudge();
    EXPECT_TRUE(let_pass(31s));
    read_once({waits_for_gpu(0), waits_for_gpu(1), waits_for_gpu(2)});
    EXPECT_FALSE(let_pass(5s)) << "nobody is known to wait for anybody";
    EXPECT_TRUE(let_pass(60s));
    read({waits_for_gpu(0), in_call(1, "barrier", "train.py:9"),
          in_call(2, "barrier", "train.py:9")});
    ASSERT_TRUE(judge.verdict()) << "its GPU may hang";
    EXPECT_THAT(judge.verdict()->ranks, ElementsAre(0));
    EXPECT_THAT(judge.verdict()->text,
                HasSubstr("\n  rank 0 (pid 100) waits for its GPU, in step"));
    EXPECT_FALSE(judge.verdict()->may_end_job);
}

TEST_F(StackJudgeTest, SaysOnceWhoCannotBeReadAgainAndAgain) {
    std::vector<RankStacks> stacks = without_1();
    const auto read_with = [&](const std::string& problem) {
        stacks[1].has_all_native = problem.empty();
        stacks[1].problem = problem;
        EXPECT_TRUE(let_pass(1200s));
        read_once(stacks);
        return judge.take_unread();
    };
    EXPECT_FALSE(read_with("it does not stop in time"));
    EXPECT_FALSE(read_with("not permitted")) << "another reason";
    EXPECT_FALSE(read_with(""));
    judge.judge(now, {}, {});
    EXPECT_FALSE(read_with("not permitted")) << "not again and again";
    const auto unread = read_with("not permitted");
    ASSERT_TRUE(unread);
    EXPECT_THAT(unread->ranks, ElementsAre(1));
    EXPECT_EQ(unread->text,
              "whether the job hangs cannot be told: the stacks of rank 1 are not known in full\n"
              "  rank 1 (pid 101): not permitted");
    EXPECT_FALSE(read_with("not permitted")) << "it is known by now";
    EXPECT_FALSE(judge.verdict());
}

TEST_F(StackJudgeTest, SaysNothingOfWhoCannotBeReadWhereNobodyIsKnownToWait) {
    std::vector<RankStacks> stacks{elsewhere(0), elsewhere(1), elsewhere(2)};
    const auto read_twice = [&] {
        for (int i = 0; i < 2; ++i) {
            EXPECT_TRUE(let_pass(1200s));
            read_once(stacks);
        }
        return judge.take_unread().has_value();
    };
    stacks[1].has_all_native = false;
    stacks[1].problem = "64 of its 80 threads";
    EXPECT_FALSE(read_twice());
    for (RankStacks& one : stacks) one = {.rank = one.rank, .pid = one.pid};
    EXPECT_FALSE(read_twice()) << "programs of which nothing is known";
    for (RankStacks& one : stacks) one.problem = "libdw is not there";
    EXPECT_TRUE(read_twice());
}

TEST_F(StackJudgeTest, SaysWhoHasNoPySpyWhereOthersHaveOne) {
    std::vector<RankStacks> stacks = all_in("all_reduce");
    stacks[2].python.clear();
    stacks[2].problem = "py-spy is not on PATH";
    stacks[1].problem = "12 of its 13 threads";  // nobody needs more
    for (int i = 0; i < 2; ++i) {
        EXPECT_TRUE(let_pass(1200s));
        read_once(stacks);
    }
    const auto unread = judge.take_unread();
    ASSERT_TRUE(unread);
    EXPECT_THAT(unread->ranks, ElementsAre(2));
    EXPECT_THAT(unread->text, HasSubstr("\n  rank 2 (pid 102): py-spy is not on PATH"));
}

TEST(StackCall, IsKnownByNamesOfFunctions) {
    const auto native = [](const std::string& frame) {
        return reading_of({.pid = 1,
                           .native = {{.tid = 1, .frames = {"poll (libc.so.6)"}},
                                      {.tid = 2, .frames = {"__futex (libc.so.6)", frame}}}})
            .call;
    };
    EXPECT_EQ(native("c10d::ProcessGroupGloo::AsyncWork::execute (libtorch_cpu.so)")->words(),
              "a collective");
    EXPECT_EQ(native("MPI_Allreduce (libmpi.so.40)")->words(), "MPI_Allreduce");
    EXPECT_FALSE(native("c10d::ProcessGroupGloo::runLoop (libtorch_cpu.so)"));
    EXPECT_FALSE(native("gloo::transport::tcp::Loop::run (libgloo.so)"));
    EXPECT_FALSE(reading_of({}).call);
    EXPECT_FALSE(native("c10d::ProcessGroupMPI::runLoop (libtorch_cpu.so)"));
    EXPECT_FALSE(native("c10d::TCPStore::get (libtorch_cpu.so)")) << "not of the first thread";
    EXPECT_FALSE(native("cudaEventSynchronize (libcudart.so)")) << "nor this";
    const auto first = [](const std::string& frame) {
        return reading_of({.pid = 1, .native = {{.tid = 1, .frames = {"ioctl", frame}}}}).call;
    };
    EXPECT_TRUE(first("cuMemcpyDtoHAsync_v2 (libcuda.so.1)")->on_gpu);
    EXPECT_FALSE(first("MPI_Allreduce (libmpi.so.40)")->on_gpu);
    EXPECT_FALSE(first("cuLaunchKernel (libcuda.so.1)"));
    EXPECT_EQ(first("c10d::TCPStore::get (libtorch_cpu.so)")->words(), "a wait for the store");
    const ThreadStack of_backward{.tid = 3,
                                  .frames = {"cudaStreamSynchronize (libcudart.so)",
                                             "torch::autograd::Engine::thread_main (x)"}};
    const auto backward = reading_of({.pid = 1, .native = {{.tid = 1}, of_backward}}).call;
    ASSERT_TRUE(backward);
    EXPECT_TRUE(backward->on_gpu);
    EXPECT_EQ(backward->tid, 3);
}

TEST(StackCall, WithinABackwardIsNamedByIt) {
    const RankStacks stacks{
        .pid = 1,
        .python = {python(1,
                          {"backward (__init__.py:197)", "Tensor.backward (_tensor.py:488)",
                           "<module> (train.py:47)"},
                          "<module> (train.py:47)")},
        .native = {{.tid = 2, .frames = {"c10d::ProcessGroupGloo::AsyncWork::execute (x)"}}}};
    EXPECT_EQ(reading_of(stacks).call->words(),
              "a collective within Tensor.backward (train.py:47)");
}

TEST(ThreadRuns, AreReadOffTheKernel) {
    std::this_thread::sleep_for(1ms);  // the kernel counts at a switch
    const auto own = runs_of(::getpid(), ::getpid());
    if (!own) GTEST_SKIP() << "this kernel has no /proc/PID/schedstat";
    EXPECT_GT(own->cpu, 0ns);
    EXPECT_FALSE(runs_of(0, 0));
}

}  // namespace
}  // namespace ddp::launcher
