#include "contract/injection.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

namespace ddp::contract {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using ::testing::HasSubstr;

TEST(Injection, IsReadAsItIsWritten) {
    const Injection injection = parse_injection("slow:rank=3@step=12345678901");
    EXPECT_EQ(injection.fault, Injection::Fault::slow);
    EXPECT_EQ(injection.rank, 3);
    EXPECT_EQ(injection.step, 12'345'678'901);
    for (const char* name : {"kill", "stop", "exit", "delay", "slow", "oom", "mismatch"}) {
        EXPECT_EQ(parse_injection(std::string(name) + ":rank=0@step=0").rank, 0) << name;
    }
}

TEST(Injection, IsRefusedWithWhatIsWrong) {
    const auto refusal = [](const char* text) -> std::string {
        try {
            parse_injection(text);
            return "taken";
        } catch (const UsageError& error) {
            return error.what();
        }
    };
    EXPECT_THAT(refusal("freeze:rank=1@step=3"), HasSubstr("no such fault"));
    EXPECT_THAT(refusal(""), HasSubstr("no such fault"));
    EXPECT_THAT(refusal("kill"), HasSubstr("rank= is missing"));
    EXPECT_THAT(refusal("kill:rank=1"), HasSubstr("@step= is missing"));
    EXPECT_THAT(refusal("kill:rank=-1@step=1"), HasSubstr("no number from 0 on behind rank="));
    EXPECT_THAT(refusal("kill:rank=1@step="), HasSubstr("no number from 0 on behind @step="));
    EXPECT_THAT(refusal("kill:rank=1@step=99999999999999999999"), HasSubstr("@step="));
    EXPECT_THAT(refusal("kill:rank=1@step=3,stop"), HasSubstr("\",stop\" is too much"));
}

TEST(Injection, IsDoneAtItsStepOrTheFirstOneAfterIt) {
    Injector none(std::nullopt);
    EXPECT_FALSE(none.come_to(100));
    Injector mismatch(parse_injection("mismatch:rank=0@step=100"));
    EXPECT_FALSE(mismatch.come_to(99));
    EXPECT_TRUE(mismatch.come_to(150));
    EXPECT_FALSE(mismatch.come_to(151)) << "once";
}

TEST(Injection, MakesEachStepTakeTwiceAsLong) {
    Injector slow(parse_injection("slow:rank=0@step=2"));
    slow.come_to(1);
    slow.come_to(2);
    for (int step = 3; step < 6; ++step) {
        std::this_thread::sleep_for(20ms);
        const auto before = Clock::now();
        slow.come_to(step);
        EXPECT_GE(Clock::now() - before, 20ms) << step;
    }
}

TEST(Injection, IsOfOneRankInTheFirstStartOfTheWorkers) {
    ::setenv(injection_variable, "mismatch:rank=2@step=0", 1);
    ::unsetenv("TORCHELASTIC_RESTART_COUNT");
    EXPECT_FALSE(Injector::from_environment(1).come_to(0));
    EXPECT_TRUE(Injector::from_environment(2).come_to(0));
    ::setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    EXPECT_FALSE(Injector::from_environment(2).come_to(0));
    ::setenv("TORCHELASTIC_RESTART_COUNT", "0", 1);
    EXPECT_TRUE(Injector::from_environment(2).come_to(0));
    ::setenv(injection_variable, "nonsense", 1);
    EXPECT_FALSE(Injector::from_environment(2).come_to(0));
    ::unsetenv(injection_variable);
    ::unsetenv("TORCHELASTIC_RESTART_COUNT");
}

TEST(InjectionDeathTest, EndsTheProcess) {
    Injector kill(parse_injection("kill:rank=0@step=0"));
    EXPECT_EXIT(kill.come_to(0), ::testing::KilledBySignal(SIGKILL), "");
    Injector end(parse_injection("exit:rank=0@step=0"));
    EXPECT_EXIT(end.come_to(0), ::testing::ExitedWithCode(1), "");
}

}  // namespace
}  // namespace ddp::contract
