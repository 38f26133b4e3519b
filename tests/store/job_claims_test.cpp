// Which claims of ranks are refused, and that whatever text comes as one does no harm.
#include "store/admission/job_claims.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

namespace ddp::store {
namespace {

using testing::AllOf;
using testing::HasSubstr;

RankClaim claim(int rank, std::uint64_t process, std::string job = "j") {
    return {.job = std::move(job),
            .world_size = 4,
            .rank = rank,
            .host = "n1",
            .machine = "m1",
            .process = process,
            .pid = static_cast<std::int64_t>(100 + process),
            .parent = "50@1",
            .grandparent = "40@1",
            .session = 40,
            .program = "./train"};
}

std::string refusal(JobClaims& claims, JobClaims::ClientId client, const RankClaim& claimant) {
    return claims.join(client, claimant).value_or("");
}

TEST(JobClaims, EachRankMayJoinOnceAProcess) {
    JobClaims claims(claim(0, 1));
    EXPECT_EQ(refusal(claims, 1, claim(0, 1)), "");
    EXPECT_EQ(refusal(claims, 2, claim(1, 2)), "");
    EXPECT_EQ(refusal(claims, 3, claim(1, 2)), "");
    EXPECT_EQ(claims.describe(4), "");
    EXPECT_EQ(claims.describe(3), "rank 1 (pid 102 on n1, ./train)");
}

TEST(JobClaims, ASecondProcessForARankIsRefusedUntilTheFirstHasLeft) {
    JobClaims claims(claim(0, 1));
    EXPECT_EQ(refusal(claims, 1, claim(1, 2)), "");
    EXPECT_EQ(refusal(claims, 2, claim(1, 2)), "");
    EXPECT_THAT(refusal(claims, 3, claim(1, 3)),
                AllOf(HasSubstr("rank 1 of 4 of job j (pid 103 on n1, ./train)"),
                      HasSubstr("where rank 1 is pid 102 on n1"), HasSubstr("MASTER_PORT")));
    claims.leave(1);
    EXPECT_NE(refusal(claims, 3, claim(1, 3)), "");
    claims.leave(2);
    EXPECT_EQ(refusal(claims, 3, claim(1, 3)), "");
}

TEST(JobClaims, ProcessesThatAreARankOneAfterTheOtherAreCountedInAnAttempt) {
    JobClaims claims(RankClaim{.job = "j", .world_size = 4});
    for (const int program : {0, 1, 2}) {
        const auto process = static_cast<std::uint64_t>(10 + program);
        EXPECT_EQ(refusal(claims, 1, claim(1, process)), "");
        EXPECT_EQ(refusal(claims, 2, claim(1, process)), "");
        EXPECT_EQ(claims.program_of(1), program);
        claims.leave(1);
        claims.leave(2);
        EXPECT_EQ(refusal(claims, 3, claim(1, process)), "") << "the same process, once more";
        EXPECT_EQ(claims.program_of(1), program);
        claims.leave(3);
    }
    EXPECT_EQ(claims.program_of(2), 0) << "another rank";
    claims.start_attempt(0);
    EXPECT_EQ(refusal(claims, 4, claim(1, 20)), "");
    EXPECT_EQ(claims.program_of(1), 0);
}

TEST(JobClaims, RankZeroHoldsItsRankForAsLongAsItServes) {
    JobClaims claims(claim(0, 1));
    EXPECT_EQ(refusal(claims, 1, claim(0, 1)), "");
    claims.leave(1);
    EXPECT_THAT(refusal(claims, 2, claim(0, 9)), HasSubstr("rank 0 is pid 101 on n1"));
    claims.start_attempt(0);
    EXPECT_NE(refusal(claims, 2, claim(0, 9)), "");
}

TEST(JobClaims, AnotherJobIsRefusedByName) {
    JobClaims claims(claim(0, 1, "a"));
    EXPECT_THAT(refusal(claims, 1, claim(1, 2, "b")),
                AllOf(HasSubstr("of job b"), HasSubstr("of job a"), HasSubstr("another job")));
    EXPECT_THAT(refusal(claims, 1, claim(1, 2, "")), HasSubstr("of a job without a name"));
}

TEST(JobClaims, AnotherWorldSizeIsRefused) {
    JobClaims claims(claim(0, 1));
    auto smaller = claim(1, 2);
    smaller.world_size = 2;
    EXPECT_THAT(refusal(claims, 1, smaller),
                AllOf(HasSubstr("rank 1 of 2"), HasSubstr("a world of 4")));
}

TEST(JobClaims, ALeftoverOfAnEarlierAttemptIsRefused) {
    JobClaims claims(RankClaim{.job = "j", .world_size = 4});
    EXPECT_EQ(refusal(claims, 1, claim(1, 2)), "");
    claims.start_attempt(1);
    EXPECT_EQ(refusal(claims, 2, claim(1, 2)),
              "this process belongs to attempt 0 of the job, but attempt 1 is served; it was left "
              "behind by a restart");
    auto fresh = claim(1, 3);
    fresh.attempt = 1;
    EXPECT_EQ(refusal(claims, 3, fresh), "");
}

TEST(JobClaims, WithoutAnOwnerTheFirstDecides) {
    JobClaims claims;
    EXPECT_EQ(refusal(claims, 1, claim(2, 2, "a")), "");
    EXPECT_NE(refusal(claims, 2, claim(1, 3, "b")), "");
    EXPECT_EQ(refusal(claims, 2, claim(1, 3, "a")), "");
}

struct Kin {
    const char* name;
    std::string parent, grandparent, machine;
    std::int64_t session;
    bool by_mpi;
    bool joins;
};
void PrintTo(const Kin& kin, std::ostream* out) { *out << kin.name; }

class JobClaimsWithoutAName : public testing::TestWithParam<Kin> {};

TEST_P(JobClaimsWithoutAName, AreToldApartByWhoStartedThem) {
    auto owner = claim(0, 1, "");
    owner.by_mpi = GetParam().by_mpi;
    JobClaims claims(owner);
    auto claimant = claim(1, 2, "");
    claimant.parent = GetParam().parent;
    claimant.grandparent = GetParam().grandparent;
    claimant.machine = GetParam().machine;
    claimant.session = GetParam().session;
    claimant.by_mpi = GetParam().by_mpi;
    const std::string why = refusal(claims, 1, claimant);
    if (GetParam().joins) {
        EXPECT_EQ(why, "");
    } else {
        EXPECT_THAT(why, AllOf(HasSubstr("TORCHELASTIC_RUN_ID"), HasSubstr("MASTER_PORT")));
    }
}

INSTANTIATE_TEST_SUITE_P(
    Table, JobClaimsWithoutAName,
    testing::Values(Kin{"siblings", "50@1", "40@1", "m1", 40, false, true},
                    Kin{"below_a_debugger", "60@2", "50@1", "m1", 40, false, true},
                    Kin{"beside_a_debugger", "40@1", "30@1", "m1", 40, false, true},
                    Kin{"another_shell", "60@2", "40@1", "m1", 40, false, false},
                    Kin{"another_terminal", "60@2", "61@2", "m1", 61, false, false},
                    Kin{"the_pid_of_another_time", "50@7", "", "m1", 40, false, false},
                    Kin{"wrappers_below_one_mpirun", "60@2", "40@1", "m1", 40, true, true},
                    Kin{"below_another_mpirun", "60@2", "41@2", "m1", 40, true, false},
                    Kin{"orphan_of_the_session", "", "", "m1", 40, false, true},
                    Kin{"orphan_of_another_session", "", "", "m1", 61, false, false},
                    Kin{"another_host", "60@2", "61@2", "m2", 61, false, true},
                    Kin{"a_host_that_does_not_tell", "60@2", "61@2", "", 61, false, true}),
    [](const auto& param_info) { return param_info.param.name; });

TEST(RankClaim, ComesBackFromItsText) {
    const auto mine = claim_of_this_process({.job = "", .attempt = 3, .world_size = 8, .rank = 7});
    EXPECT_EQ(mine.pid, ::getpid());
    EXPECT_NE(mine.process, 0U);
    EXPECT_NE(mine.parent, "");
    EXPECT_EQ(decode_claim(encode_claim(mine)), mine);
    EXPECT_EQ(claim_of_this_process({}).process, mine.process);
}

TEST(RankClaim, IsRefusedWhenItIsNone) {
    const std::string good = "world_size 2\nrank 1\nprocess 7\npid 5\n";
    ASSERT_TRUE(decode_claim(good));
    for (const std::string& bad : {
             std::string(),
             std::string("\n"),
             std::string("rank"),
             good + "rank 2\n",
             good + "rank -1\n",
             good + "rank 1",
             good + "rank 99999999999\n",
             good + "world_size 0\n",
             good + "colour red\n",
             good + "process 0\n",
             std::string("world_size 2\nrank 1\nprocess 7\n"),
             good + good + good + good + good,
         }) {
        EXPECT_FALSE(decode_claim(bad)) << bad;
    }
}

TEST(RankClaim, TextsAreCutAndMadePrintable) {
    const auto read = decode_claim("world_size 2\nrank 1\nprocess 7\npid 5\njob \x1b[31m" +
                                   std::string(1000, 'x') + "\n");
    ASSERT_TRUE(read);
    EXPECT_EQ(read->job.substr(0, 6), "?[31mx");
    EXPECT_EQ(read->job.size(), 256U);
}

}  // namespace
}  // namespace ddp::store
