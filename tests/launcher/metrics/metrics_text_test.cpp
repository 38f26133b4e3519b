#include "launcher/metrics/metrics_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

RunView view_of_two() {
    RunView view{.attempt = 3, .attempts = 5, .world_size = 4};
    view.ranks = {RankRow{.rank = 2,
                          .progress = {.step = 7,
                                       .steps_per_second = 12.5,
                                       .bytes = 1'234'567'890'123,
                                       .exposed = 1500ms},
                          .since_call = 250ms,
                          .share_in_calls = 0.25,
                          .use = {.cpu_time = 2s, .resident_bytes = 4096}},
                  RankRow{.rank = 3, .ended = ExitStatus{.code = 1}}};
    view.hang = HangFacts{.kind = "missing", .ranks = {3}, .text = ""};
    return view;
}

TEST(MetricsText, HasWhatIsKnownOfEachRank) {
    const std::string text = metrics_text({}, view_of_two(), MetricsFormat::text);
    for (const char* const line :
         {"ddp_job_world_size 4\n", "ddp_job_restarts_total 2\n", "ddp_job_hang 1\n",
          "ddp_rank_up{rank=\"2\"} 1\n", "ddp_rank_up{rank=\"3\"} 0\n",
          "ddp_rank_step{rank=\"2\"} 7\n", "ddp_rank_steps_per_second{rank=\"2\"} 12.5\n",
          "ddp_rank_heartbeat_age_seconds{rank=\"2\"} 0.25\n",
          "ddp_rank_in_calls_ratio{rank=\"2\"} 0.25\n",
          "ddp_rank_collective_bytes_total{rank=\"2\"} 1234567890123\n",
          "ddp_rank_exposed_communication_seconds_total{rank=\"2\"} 1.5\n",
          "ddp_rank_cpu_seconds_total{rank=\"2\"} 2\n",
          "ddp_rank_resident_memory_bytes{rank=\"2\"} 4096\n",
          "ddp_rank_holds_up_job{rank=\"2\"} 0\n", "ddp_rank_holds_up_job{rank=\"3\"} 1\n",
          "ddp_rank_slows_down_job{rank=\"3\"} 0\n"}) {
        EXPECT_THAT(text, HasSubstr(line));
    }
    EXPECT_THAT(text, Not(HasSubstr("ddp_rank_cpu_seconds_total{rank=\"3\"}"))) << "not known";
}

TEST(MetricsText, NamesCountersAsEachFormatDoes) {
    const std::string text = metrics_text({}, view_of_two(), MetricsFormat::text);
    const std::string open = metrics_text({}, view_of_two(), MetricsFormat::openmetrics);
    EXPECT_THAT(text, AllOf(HasSubstr("# TYPE ddp_job_restarts_total counter\n"),
                            HasSubstr("# TYPE ddp_job_info gauge\n"), Not(HasSubstr("# EOF"))));
    EXPECT_THAT(open, AllOf(HasSubstr("# TYPE ddp_job_restarts counter\n"),
                            HasSubstr("\nddp_job_restarts_total 2\n"),
                            HasSubstr("# TYPE ddp_job info\n"), EndsWith("\n# EOF\n")));
}

TEST(MetricsText, SaysNothingOfWhatNobodyKnows) {
    const std::string text = metrics_text({.is_judged = false}, view_of_two(), MetricsFormat::text);
    EXPECT_THAT(text, AllOf(Not(HasSubstr("ddp_job_hang")), Not(HasSubstr("holds_up_job"))));
    RunView elsewhere = view_of_two();
    elsewhere.is_judged = false;
    EXPECT_EQ(metrics_text({}, elsewhere, MetricsFormat::text).find("ddp_job_hang"),
              std::string::npos);
    EXPECT_THAT(metrics_text({}, {}, MetricsFormat::text), Not(HasSubstr("world_size")));
}

}  // namespace
}  // namespace ddp::launcher
