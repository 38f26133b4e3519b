// The bytes that draw the lines at the bottom of a terminal, and the words of the status line.
#include "launcher/console/live_lines.hpp"

#include "launcher/agent/attempt/progress_watch.hpp"
#include "launcher/console/status_line.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <random>

namespace ddp::launcher {
namespace {

using std::chrono::seconds;

TEST(LiveLines, ErasingGoesBackToWhereDrawingBegan) {
    LiveLines lines;
    EXPECT_EQ(lines.erase(), "");
    EXPECT_EQ(lines.draw({"one", "two", "three"}, 80), "one\r\ntwo\r\nthree");
    EXPECT_TRUE(lines.drawn());
    EXPECT_EQ(lines.erase(), "\r\x1b[2A\x1b[J");
    EXPECT_FALSE(lines.drawn());
    EXPECT_EQ(lines.erase(), "");
    EXPECT_EQ(lines.draw({"one"}, 80), "one");
    EXPECT_EQ(lines.erase(), "\r\x1b[J");
}

TEST(LiveLines, ALineIsCutWhereItWouldWrap) {
    EXPECT_EQ(cut_to_columns("abcdef", 3), "abc");
    EXPECT_EQ(cut_to_columns("äöü", 2), "äö");
    EXPECT_EQ(cut_to_columns("\x1b[36m[0]\x1b[0m abc", 5), "\x1b[36m[0]\x1b[0m a");
    EXPECT_EQ(cut_to_columns("\x1b[36mabc", 2), "\x1b[36mab\x1b[0m");
}

TEST(LiveLines, WhatWouldMoveTheCursorDoesNot) {
    EXPECT_EQ(cut_to_columns("a\tb\bc", 80), "a b c");
    EXPECT_EQ(cut_to_columns("\x1b[2Kab\x1b[A", 80), "ab");
    EXPECT_EQ(cut_to_columns("ab\x1b[3", 80), "ab");
}

TEST(StatusLine, SaysWhatThereIs) {
    JobStatus status{.workers = 8, .running = 7, .elapsed = seconds{7}};
    EXPECT_EQ(status_text(status), "7/8 ranks up, 0:07");
    status.restarts = 1;
    status.elapsed = seconds{3599};
    EXPECT_EQ(status_text(status), "7/8 ranks up, 1 restart, 59:59");
    status.restarts = 2;
    status.elapsed = seconds{3723};
    status.progress = {1200, 34.56};
    EXPECT_EQ(status_text(status), "7/8 ranks up, 2 restarts, 1:02:03, step 1200, 34.6 steps/s");
    status.progress = {5, 0};
    EXPECT_EQ(status_text(status), "7/8 ranks up, 2 restarts, 1:02:03, step 5");
    status.hosts = 3;
    EXPECT_EQ(status_text(status), "3 hosts, 7/8 ranks up, 2 restarts, 1:02:03, step 5");
}

TEST(ProgressWatch, TheSlowestRankCounts) {
    const auto pages = contract::ControlRegion::create(3);
    EXPECT_EQ(slowest(pages, 1), (StatusMessage{1, 0, 0}));
    pages.page(1).step = 20;
    pages.page(1).steps_per_second = 2.5;
    EXPECT_EQ(slowest(pages, 0), (StatusMessage{0, 20, 2.5})) << "the others publish nothing";
    pages.page(2).step = 10;
    pages.page(2).steps_per_second = 3.5;
    EXPECT_EQ(slowest(pages, 0), (StatusMessage{0, 10, 2.5}));
}

TEST(ProgressWatch, NoWriteOfAWorkerLeadsItAstray) {
    const auto pages = contract::ControlRegion::create(2);
    std::mt19937_64 random(21);
    auto* const memory = reinterpret_cast<std::byte*>(&pages.header());
    const std::size_t end = contract::control_header_bytes + 2 * contract::control_page_bytes;
    for (std::size_t offset = 0; offset + sizeof(std::uint64_t) <= end; ++offset) {
        const std::uint64_t bits = random();
        std::memcpy(memory + offset, &bits, sizeof bits);
        const StatusMessage status = slowest(pages, 0);
        EXPECT_GE(status.step, 0);
        EXPECT_TRUE(status.steps_per_second >= 0 && status.steps_per_second <= 1e9);
        EXPECT_EQ(decode(encode(status)).index(), Message(status).index());
    }
    constexpr auto nan = std::numeric_limits<double>::quiet_NaN();
    for (const double odd : {nan, std::numeric_limits<double>::infinity(), -1.0, 1e300}) {
        pages.page(0).step = 7;
        pages.page(0).steps_per_second = odd;
        pages.page(1).step = 8;
        pages.page(1).steps_per_second = 2;
        EXPECT_EQ(slowest(pages, 0), (StatusMessage{0, 8, 2})) << odd;
    }
}

TEST(ProgressWatch, ItSpeaksWhenSomethingIsNewAndNotTooOften) {
    const auto pages = contract::ControlRegion::create(1);
    const ProgressWatch::Clock::time_point start{seconds{1000}};
    ProgressWatch watch(Watching::on);
    EXPECT_TRUE(watch.look(start, pages, 1)) << "there are workers";
    pages.page(0).step = 1;
    EXPECT_FALSE(watch.look(start + ProgressWatch::interval / 2, pages, 1)) << "too early";
    EXPECT_EQ(watch.next(), start + ProgressWatch::interval);
    EXPECT_TRUE(watch.look(start + ProgressWatch::interval, pages, 1));
    EXPECT_FALSE(watch.look(start + 2 * ProgressWatch::interval, pages, 1)) << "nothing is new";
    watch.set_restarts(1);
    const auto news = watch.look(start + 3 * ProgressWatch::interval, pages, 0);
    ASSERT_TRUE(news);
    EXPECT_EQ(*news, (StatusMessage{.restarts = 1, .step = 1, .workers = 1, .running = 0}));
}

TEST(ProgressWatch, SwitchedOffItNeverWakesAnybody) {
    const auto pages = contract::ControlRegion::create(1);
    pages.page(0).step = 1;
    ProgressWatch watch(Watching::off);
    EXPECT_FALSE(watch.next());
    EXPECT_FALSE(watch.look(ProgressWatch::Clock::now(), pages, 1));
}

}  // namespace
}  // namespace ddp::launcher
