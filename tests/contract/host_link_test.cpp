// What ddp-launch tells the program that launched it.
#include "contract/host_link.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <csignal>

namespace ddp::contract {
namespace {

const LaunchEnd an_end{.exit_code = 137,
                       .report = "rank 1 was killed",
                       .ends = {{.rank = 1, .status = {.signal = SIGSEGV, .core_dumped = true}},
                                {.rank = 0, .status = {.code = 3}, .stopped_with = SIGTERM}}};

TEST(HostLink, AnEndSurvivesTheTrip) {
    const LaunchEnd copy = parse_launch_end(to_payload(an_end));
    EXPECT_EQ(copy.kind, LaunchEnd::Kind::ended);
    EXPECT_EQ(copy.exit_code, 137);
    EXPECT_EQ(copy.report, an_end.report);
    ASSERT_EQ(copy.ends.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(copy.ends[i].rank, an_end.ends[i].rank);
        EXPECT_EQ(copy.ends[i].status, an_end.ends[i].status);
        EXPECT_EQ(copy.ends[i].stopped_with, an_end.ends[i].stopped_with);
    }
}

TEST(HostLink, ADamagedEndIsRefused) {
    const std::string payload = to_payload(an_end);
    for (std::size_t size = 0; size < payload.size(); ++size) {
        EXPECT_THROW(parse_launch_end(payload.substr(0, size)), UsageError) << size;
    }
}

}  // namespace
}  // namespace ddp::contract
