// Sleeping and waking at words of both signs, in both scopes.
#include "base/futex.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

namespace ddp::base {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// A lost wake-up hangs, until ctest's time limit.
template <class Word>
void expect_wakes(FutexScope scope) {
    std::atomic<Word> word{0};
    std::thread sleeper([&] {
        while (word.load() == 0) futex_wait(word, 0, scope);
    });
    word.store(static_cast<Word>(-1));
    futex_wake_all(word, scope);
    sleeper.join();
}

TEST(Futex, WakesWhoSleepsAtAWordOfEitherSign) {
    for (const FutexScope scope : {FutexScope::process, FutexScope::shared}) {
        expect_wakes<std::uint32_t>(scope);
        expect_wakes<std::int32_t>(scope);
    }
}

TEST(Futex, DoesNotSleepAtAnotherValue) {
    std::atomic<std::int32_t> word{-7};
    futex_wait(word, 0, FutexScope::process);
    futex_wait(word, -8, FutexScope::shared, 1h);
}

TEST(Futex, SleepsForASecondAndMore) {
    const std::atomic<std::int32_t> word{-7};
    const auto end = Clock::now() + 1'010ms;
    while (Clock::now() < end) {  // a signal may end a sleep
        const auto begin = Clock::now();
        futex_wait(word, -7, FutexScope::shared, 1'010ms);
        if (Clock::now() - begin >= 1s) return;
    }
    FAIL() << "no sleep lasted";
}

}  // namespace
}  // namespace ddp::base
