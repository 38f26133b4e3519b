// What hosts tell of their workers, as one line of the whole job.
#include "launcher/hosts/job_progress.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace ddp::launcher {
namespace {

RoundMessage a_round(int number) {
    const std::vector<HostSize> hosts{{.member = 4, .host = "h1", .slots = 2},
                                      {.member = 9, .host = "h2", .slots = 3}};
    return {.round = number, .restarts = 1, .table = make_rank_table(hosts)};
}

TEST(JobProgress, AddsUpWorkersAndNamesTheSlowest) {
    JobProgress progress;
    EXPECT_EQ(progress.total(), StatusMessage{});
    progress.begin_round(a_round(2));
    EXPECT_EQ(progress.total(), (StatusMessage{.restarts = 1, .hosts = 2, .workers = 5}));
    progress.note(4, {.round = 2, .running = 2, .step = 12, .steps_in_1000_s = 2500});
    progress.note(9, {.round = 2, .running = 3});
    StatusMessage wanted{
        .restarts = 1, .step = 12, .steps_per_second = 2.5, .hosts = 2, .workers = 5, .running = 5};
    EXPECT_EQ(progress.total(), wanted) << "h2 publishes nothing";
    progress.note(9, {.round = 2, .running = 1, .step = 10, .steps_in_1000_s = 3000});
    wanted.step = 10;
    wanted.running = 3;
    EXPECT_EQ(progress.total(), wanted);
}

TEST(JobProgress, HearsNobodyOfAnotherRoundNorMoreThanAHostHas) {
    JobProgress progress;
    progress.begin_round(a_round(2));
    progress.note(4, {.round = 1, .running = 2});
    progress.note(5, {.round = 2, .running = 2});
    EXPECT_EQ(progress.total().running, 0);
    progress.note(4, {.round = 2, .running = 1'000'000});
    EXPECT_EQ(progress.total().running, 2);
    progress.begin_round(a_round(3));
    EXPECT_EQ(progress.total().running, 0);
}

}  // namespace
}  // namespace ddp::launcher
