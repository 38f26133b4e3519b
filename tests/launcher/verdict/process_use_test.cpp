#include "launcher/verdict/process_use.hpp"

#include "launcher/verdict/child_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <thread>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::Child;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::Le;

TEST(ProcessUse, OfTwoThatShareAProcessorEachWaitsForIt) {
    const int processor = ::sched_getcpu();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    const Child first(Child::Does::computes);
    const Child second(Child::Does::computes);
    for (const pid_t pid : {first.pid(), second.pid()}) {
        ASSERT_EQ(::sched_setaffinity(pid, sizeof one, &one), 0);
    }
    const auto before = look_at_use(first.pid());
    ASSERT_TRUE(before);
    if (!before->waited_for_processor) GTEST_SKIP() << "this kernel has no /proc/PID/schedstat";
    UseRate rate;
    for (int i = 0; i < 30 && rate.waited_for_processor < 0.2; ++i) {
        std::this_thread::sleep_for(1s);
        rate = rate_of(*before, *look_at_use(first.pid()));
    }
    EXPECT_THAT(rate.waited_for_processor, AllOf(Ge(0.2), Le(1.0)));
    EXPECT_EQ(rate.processors, std::to_string(processor));
}

TEST(ProcessUse, NothingIsKnownOfWhoIsNotThere) { EXPECT_FALSE(look_at_use(0)); }

TEST(ProcessUse, TellsOfTheQuotaThatWasUsedUpMostOften) {
    const ProcessUse::Time start{};
    const ProcessUse before{.at = start, .cpu = 5s, .quotas = {{"/a", 900, 900}, {"/a/b", 10, 0}}};
    const ProcessUse after{
        .at = start + 10s, .cpu = 4s, .quotas = {{"/a", 1000, 910}, {"/a/b", 110, 62}}};
    const UseRate rate = rate_of(before, after);
    EXPECT_DOUBLE_EQ(rate.throttled, 0.62);
    EXPECT_EQ(rate.cpu, 0) << "another process since";
}

TEST(ProcessUse, TellsWhatASlowOneLacks) {
    const UseRate others{.cpu = 0.5, .processors = "0-7"};
    const auto words = [&](UseRate slow) {
        if (slow.processors.empty()) slow.processors = others.processors;
        return what_differs(slow, others);
    };
    EXPECT_EQ(words({.cpu = 0.3, .throttled = 0.62}),
              " was stopped by its cgroup's CPU quota in 62 % of its periods (the others in 0 %)");
    EXPECT_EQ(
        words({.cpu = 0.3, .major_faults = 210.4, .swapped_bytes = 300 << 20}),
        " waited for memory from the disk: 210 page faults a second (the others 0), 300 MiB of "
        "it swapped out");
    EXPECT_EQ(words({.cpu = 0.5, .waited_for_processor = 0.41}),
              " waited for a processor for 41 % of the time (the others 0 %): others run on its "
              "processors (0-7)");
    EXPECT_EQ(words({.cpu = 1, .processors = "3"}),
              " may run on other processors than the others do: 3, they on 0-7");
    EXPECT_THAT(words({.cpu = 0.03, .processors = "3"}), HasSubstr(" slept: it used 3 % of a"));
    EXPECT_THAT(words({.cpu = 1}), HasSubstr("it has more to do than the others"));
    const UseRate throttled{.cpu = 0.4, .throttled = 0.4, .processors = "0"};
    EXPECT_THAT(what_differs(throttled, throttled), HasSubstr("stopped them all in 40 %"));
    EXPECT_THAT(what_differs({.cpu = 1, .processors = "3"}, {.cpu = 0.5}),
                HasSubstr(" computed all the time"))
        << "each of the others has its own";
}

}  // namespace
}  // namespace ddp::launcher
