#include "launcher/stacks/rank_stacks.hpp"

#include "launcher/stacks/python_stacks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

RankStacks example() {
    return {.rank = 1,
            .pid = 40,
            .native = {{.tid = 41, .name = "io", .frames = {"poll (poll.c:29)", "run (io.cpp:7)"}},
                       {.tid = 40,
                        .name = "train",
                        .frames = {"syscall (syscall.S:38)", "futex_wait<int> (futex.hpp:3)",
                                   "ddp::base::wait (futex.cpp:9)", "wait (waiter.hpp:2)",
                                   "ddp::shm::begin (op.cpp:8)", "ddp::Work::wait (work.cpp:25)",
                                   "std::_Function_handler<void ()>::_M_invoke (invoke.h:61)",
                                   "step (train.cpp:42)", "ddp::run_worker (run_worker.cpp:37)",
                                   "main (train.cpp:60)"}}}};
}

TEST(RankStacks, OfOneThreadTellsWhatItsUserHasWritten) {
    EXPECT_EQ(text_of_one(example(), ", which waits"),
              "stack of rank 1 (pid 40), which waits:\n"
              "    syscall (syscall.S:38)\n"
              "    futex_wait<int> (futex.hpp:3)\n"
              "    ... 3 within ddp\n"
              "    ddp::Work::wait (work.cpp:25)\n"
              "    step (train.cpp:42)\n"
              "    ddp::run_worker (run_worker.cpp:37)\n"
              "    main (train.cpp:60)\n"
              "    and 1 more thread: ddp-launch inspect --stacks");
}

TEST(RankStacks, OfAProgramInPythonTellsThat) {
    RankStacks stacks = example();
    stacks.python = {{.tid = 40, .name = "MainThread", .frames = {"load (data.py:3)"}}};
    EXPECT_EQ(text_of_one(stacks, ""),
              "stack of rank 1 (pid 40), in Python:\n    load (data.py:3)");
}

TEST(RankStacks, ALongOneIsCut) {
    RankStacks stacks{.pid = 1, .native = {{.tid = 1, .frames = {}}}};
    for (int i = 0; i < 40; ++i) stacks.native[0].frames.push_back("f (a.c:1)");
    EXPECT_THAT(text_of_one(stacks, ""), HasSubstr("    ... 24 more"));
    EXPECT_THAT(text_of_all(stacks), Not(HasSubstr("more")));
}

TEST(RankStacks, SaysWhatIsMissing) {
    EXPECT_EQ(text_of_one({.rank = 2, .pid = 9, .problem = "the process has ended"}, ""),
              "stack of rank 2 (pid 9): cannot be read: the process has ended");
    RankStacks stacks = example();
    stacks.problem = "names are missing";
    EXPECT_THAT(text_of_one(stacks, ""), HasSubstr("\n    (names are missing)"));
}

TEST(RankStacks, ThreadsAtOnePlaceStandTogether) {
    RankStacks stacks = example();
    stacks.native.push_back({.tid = 43, .name = "io", .frames = stacks.native[0].frames});
    const std::string text = text_of_all(stacks);
    EXPECT_THAT(text, HasSubstr("  thread 41 \"io\" and 1 more:\n    poll (poll.c:29)\n"));
    EXPECT_THAT(text, HasSubstr("ddp::shm::begin"));
    EXPECT_THAT(text, Not(HasSubstr("43")));
}

TEST(RankStacks, ComeBackFromJson) {
    const auto back = stacks_from_json(to_json({example()}));
    ASSERT_THAT(back, SizeIs(1));
    EXPECT_EQ(text_of_all(back[0]), text_of_all(example()));
}

TEST(RankStacks, OfWhatIsNoSuchThingNothingComes) {
    for (const char* text :
         {"null", "7", "{}", "[7]", "\"x\"", R"([[]])", R"([{"native":7}])",
          R"([{"rank":"a","native":[{"frames":[7,{}]}]}])", R"([{"native":[7]}])"}) {
        SCOPED_TRACE(text);
        for (const RankStacks& one : stacks_from_json(json::parse(text))) {
            EXPECT_EQ(one.rank, 0);
            for (const ThreadStack& thread : one.native) EXPECT_THAT(thread.frames, IsEmpty());
        }
    }
}

TEST(PythonStacks, AreReadFromWhatPySpyWrites) {
    const auto threads = python_stacks_in(R"([{"os_thread_id": 7, "thread_name": "MainThread",
        "frames": [{"name": "load", "filename": "/home/a/data.py", "line": 3},
                   {"name": "<module>", "filename": "train.py", "line": 90}]},
        {"os_thread_id": null, "thread_name": null, "frames": []}])");
    ASSERT_THAT(threads, SizeIs(2));
    EXPECT_EQ(threads[0].tid, 7);
    EXPECT_EQ(threads[0].name, "MainThread");
    EXPECT_THAT(threads[0].frames, ElementsAre("load (data.py:3)", "<module> (train.py:90)"));
    EXPECT_EQ(threads[0].own_frame, "load (data.py:3)");
    EXPECT_EQ(threads[1].tid, 0);
    for (const char* text :
         {"", "no", "7", "[7]", "[{}]", R"([{"frames":7}])", R"([{"frames":[{"name":7}]}])"}) {
        EXPECT_THAT(python_stacks_in(text), IsEmpty()) << text;
    }
}

}  // namespace
}  // namespace ddp::launcher
