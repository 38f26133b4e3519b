// Log lines: their form, and that spdlog stays inside.
#include "base/log.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace {

TEST(Log, WritesOneLineWithLevelTimeRankAndRoom) {
    ::testing::internal::CaptureStderr();
    ddp::base::set_log_name("r3");
    ddp::base::log_info("store", "connected {} %s");
    const std::string text = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(text,
                ::testing::MatchesRegex("I [0-9:]+[.][0-9]+ r3 store[]] connected [{][}] %s\n"));
}

TEST(Log, IsSilentBelowItsLevel) {
    ::testing::internal::CaptureStderr();
    ddp::base::log_debug("store", "not by default");
    EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
    EXPECT_FALSE(ddp::base::log_enabled(ddp::base::LogLevel::debug));
    EXPECT_TRUE(ddp::base::log_enabled(ddp::base::LogLevel::info));
}

}  // namespace
