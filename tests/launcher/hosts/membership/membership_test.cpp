// Who is in, which round runs, and what each loss leads to: one case after the other. All of them
// together, in any order: membership_simulation_test.cpp.
#include "launcher/hosts/membership/membership.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A job seen from its coordinator: what was said to whom since the last look.
class Job {
public:
    explicit Job(const MembershipRules& rules) : membership_(rules, Membership::Time{} + 1h) {}

    void pass(std::chrono::milliseconds time) {
        const auto end = now_ + time;
        while (now_ < end) {
            now_ = std::min(end, membership_.next(now_).value_or(end));
            for (const MemberId member : beating_) membership_.heard(member, now_);
            for (const MemberId member : acknowledging_) membership_.acknowledged(member, now_);
            take(membership_.look_at_time(now_));
        }
    }
    void join(MemberId member, const std::string& host, std::optional<int> node_rank = {}) {
        beating_.insert(member);
        take(membership_.join({.member = member,
                               .host = host,
                               .address = "10.77.0." + std::to_string(member),
                               .slots = 2,
                               .node_rank = node_rank},
                              now_));
    }
    void fail(MemberId member, int rank) { take(membership_.failed(member, round(), rank, now_)); }
    void hold_up(int rank) { take(membership_.hung(rank)); }
    void drain(MemberId member, PartEnd end = PartEnd::success) {
        take(membership_.drained(member, round(), end, now_));
    }
    void leave(MemberId member) {
        beating_.erase(member);
        take(membership_.leave(member, now_));
    }
    void close(MemberId member) {
        beating_.erase(member);
        take(membership_.closed(member, now_));
    }
    void cut(MemberId member) { beating_.erase(member); }
    void stall(MemberId member) {
        beating_.erase(member);
        acknowledging_.insert(member);
    }
    void stop(int signal) { take(membership_.stop(signal, now_)); }
    void restart(std::chrono::milliseconds delay = 0ms, bool counts = true) {
        take(membership_.restart(delay, counts, now_));
    }
    void finish(int code) { take(membership_.finish(code)); }

    int round() const { return membership_.round(); }
    const Membership& membership() const { return membership_; }

    // Since the last call, in short: "1: round 2 of 1 3", "say ...", "judge failure".
    std::vector<std::string> news() { return std::exchange(news_, {}); }

private:
    void take(const MembershipActions& actions) {
        for (const MembershipAction& action : actions) {
            if (const auto* given = std::get_if<GiveRound>(&action)) {
                for (const MemberId to : given->to) news_.push_back(text_of(to, given->round));
            } else {
                news_.push_back(text_of(action));
            }
        }
    }
    static std::string text_of(MemberId to, const RoundMessage& round) {
        std::string members;
        for (const auto& host : round.table.hosts) members += " " + std::to_string(host.member);
        return std::to_string(to) + ": round " + std::to_string(round.round) + " of" + members +
               (round.restarts > 0 ? ", restart " + std::to_string(round.restarts) : "");
    }
    static std::string text_of(const MembershipAction& action) {
        if (const auto* said = std::get_if<SayEverywhere>(&action)) return "say " + said->text;
        if (const auto* asks = std::get_if<AskForJudgement>(&action)) {
            return std::string("judge ") + reason_name(asks->reason) +
                   (asks->has_lost_host ? " with a loss" : "");
        }
        const auto& sent = std::get<SendTo>(action);
        const std::string to = std::to_string(sent.to) + ": ";
        if (const auto* wait = std::get_if<WaitMessage>(&sent.message)) {
            return to + (wait->is_spare ? "spare" : "wait");
        }
        if (const auto* stop = std::get_if<StopRoundMessage>(&sent.message)) {
            return to + "stop " + reason_name(stop->reason) +
                   (stop->rank >= 0 ? " of rank " + std::to_string(stop->rank) : "");
        }
        if (const auto* refused = std::get_if<RefusedMessage>(&sent.message)) {
            return to + "refused: " + refused->why;
        }
        return to + "finish " + std::to_string(std::get<FinishMessage>(sent.message).exit_code);
    }
    static const char* reason_name(StopReason reason) {
        switch (reason) {
            case StopReason::failure:
                return "failure";
            case StopReason::loss:
                return "loss";
            case StopReason::growth:
                return "growth";
            case StopReason::user:
                return "user";
            case StopReason::hang:
                return "hang";
            case StopReason::success:
                return "success";
        }
        return "?";
    }

    Membership membership_;
    Membership::Time now_ = Membership::Time{} + 1h;
    std::set<MemberId> beating_, acknowledging_;
    std::vector<std::string> news_;
};

constexpr MembershipRules two{.min_hosts = 2, .max_hosts = 2};
constexpr MembershipRules one_to_three{.min_hosts = 1, .max_hosts = 3};
constexpr MembershipRules two_to_three{.min_hosts = 2, .max_hosts = 3};

// Of a job that already runs.
Job running(const MembershipRules& rules, int hosts) {
    Job job(rules);
    for (int i = 1; i <= hosts; ++i) {
        job.join(static_cast<MemberId>(i), "h" + std::to_string(i));
    }
    if (hosts < rules.max_hosts) job.pass(rules.last_call);
    EXPECT_EQ(job.round(), 1);
    job.news();
    return job;
}

TEST(Membership, BeginsAtOnceWithTheMostHosts) {
    Job job(two);
    job.join(7, "h2");
    EXPECT_THAT(job.news(), ElementsAre("7: wait"));
    job.join(8, "h1");
    EXPECT_THAT(job.news(), ElementsAre("8: wait", "8: round 1 of 8 7", "7: round 1 of 8 7"));
}

TEST(Membership, BeginsWithTheLeastAfterTheLastCall) {
    Job job(two_to_three);
    job.join(1, "h1");
    job.pass(60s);
    job.join(2, "h2");
    job.pass(29'999ms);
    EXPECT_EQ(job.round(), 0);
    job.pass(1ms);
    EXPECT_EQ(job.round(), 1);
}

TEST(Membership, EndsWhereTooFewComeInTimeAndSaysWhoDid) {
    Job job(two);
    job.join(1, "h1");
    job.pass(600s);
    EXPECT_THAT(
        job.news(),
        ElementsAre("1: wait", "say only 1 of at least 2 hosts came within 600 s: h1 (10.77.0.1)",
                    "1: finish 1"));
    EXPECT_TRUE(job.membership().is_over());
}

TEST(Membership, RefusesANodeRankThatIsTakenOrNotThere) {
    Job job(two);
    job.join(1, "h1", 1);
    job.join(2, "h2", 1);
    job.join(3, "h3", 2);
    EXPECT_THAT(job.news(),
                ElementsAre("1: wait",
                            "2: refused: node rank 1 of h2 is h1 (10.77.0.1)'s already; give each "
                            "host its own --node-rank",
                            "3: refused: node rank 2 of h3: the job has 2 hosts, so it is at least "
                            "0 and less than that"));
    job.join(4, "h4", 0);
    EXPECT_EQ(job.round(), 1) << "who was refused is not waited for, nor counted";
}

TEST(Membership, LetsAHostThatStartsAgainWaitUntilItsAgentOfBeforeIsLost) {
    Job job(two);
    job.join(1, "h1", 0);
    job.join(2, "h2", 1);
    job.cut(2);
    job.pass(100ms);
    job.news();
    job.join(3, "h2", 1);
    EXPECT_THAT(job.news(), ElementsAre("3: wait"));
    job.join(4, "h2", 1);
    EXPECT_THAT(job.news(), ElementsAre(::testing::StartsWith("4: refused: node rank 1 of h2")))
        << "one at a time";
    job.pass(6s);
    EXPECT_THAT(job.news(),
                ::testing::IsSupersetOf({"say h2 (10.77.0.3) has come again, and waits until h2 "
                                         "(10.77.0.2), which has its node rank, is lost",
                                         "1: stop loss of rank 2"}));
    job.drain(1, PartEnd::failure);
    EXPECT_THAT(job.news(), ::testing::Contains("judge loss with a loss"));
    job.restart();
    EXPECT_THAT(job.news(),
                ElementsAre("1: round 2 of 1 3, restart 1", "3: round 2 of 1 3, restart 1"));
}

TEST(Membership, RefusesASecondAgentOfAHostWithTheSameNodeRankOnceItHearsBoth) {
    Job job(two);
    job.join(1, "h1", 1);
    job.join(2, "h1", 1);
    job.pass(1s);
    EXPECT_THAT(job.news(), ::testing::Contains("2: refused: node rank 1 of h1 is h1 (10.77.0.1)'s "
                                                "already; give each host its own --node-rank"));
    job.join(3, "h2", 0);
    EXPECT_THAT(job.news(), ElementsAre("3: wait", "3: round 1 of 3 1", "1: round 1 of 3 1"));
}

TEST(Membership, BeginsAnElasticJobWithoutAHostWhoseNodeRankIsInTheMiddle) {
    Job job(two_to_three);
    job.join(1, "h1", 2);
    job.join(2, "h2", 0);
    job.pass(30s);
    EXPECT_THAT(job.news(),
                ElementsAre("1: wait", "2: wait", "2: round 1 of 2 1", "1: round 1 of 2 1"));
}

TEST(Membership, EndsWithSuccessWhenAllPartsHave) {
    Job job = running(two, 2);
    job.drain(1);
    EXPECT_THAT(job.news(), IsEmpty());
    job.drain(2);
    EXPECT_THAT(job.news(), ElementsAre("judge success"));
    job.finish(0);
    EXPECT_THAT(job.news(), ElementsAre("1: finish 0", "2: finish 0"));
    job.join(3, "h3");
    EXPECT_THAT(job.news(), ElementsAre("3: refused: the job has ended"));
}

TEST(Membership, StopsAllAtAFailureAndJudgesItWhenNothingLives) {
    Job job = running(two, 2);
    job.fail(2, 3);
    EXPECT_THAT(job.news(), ElementsAre("1: stop failure of rank 3", "2: stop failure of rank 3"));
    job.fail(1, 0);
    job.drain(2, PartEnd::failure);
    EXPECT_THAT(job.news(), IsEmpty());
    job.drain(1, PartEnd::failure);
    EXPECT_THAT(job.news(), ElementsAre("judge failure"));
    job.restart(2s);
    job.pass(1'999ms);
    EXPECT_THAT(job.news(), IsEmpty());
    job.pass(1ms);
    EXPECT_THAT(job.news(),
                ElementsAre("1: round 2 of 1 2, restart 1", "2: round 2 of 1 2, restart 1"));
    job.fail(1, 0);
    job.drain(1, PartEnd::failure);
    job.drain(2, PartEnd::failure);
    job.news();
    job.finish(7);
    EXPECT_THAT(job.news(), ElementsAre("1: finish 7", "2: finish 7"));
}

TEST(Membership, StopsAllOfAJobThatIsHeldUpAndMayRestartIt) {
    Job job = running(two, 2);
    job.hold_up(-1);
    EXPECT_THAT(job.news(), ElementsAre("1: stop hang", "2: stop hang"));
    job.hold_up(1);
    EXPECT_THAT(job.news(), IsEmpty()) << "it is being stopped";
    job.drain(1, PartEnd::failure);
    job.drain(2, PartEnd::failure);
    EXPECT_THAT(job.news(), ElementsAre("judge hang"));
    job.restart();
    EXPECT_THAT(job.news(),
                ElementsAre("1: round 2 of 1 2, restart 1", "2: round 2 of 1 2, restart 1"));
}

TEST(Membership, HearsOfAFailureThatOnlyThePartsEndTells) {
    Job job = running(two, 2);
    job.drain(2, PartEnd::failure);
    EXPECT_THAT(job.news(), ElementsAre("1: stop failure of rank 2"));
}

TEST(Membership, IgnoresWhatIsSaidOfAnEarlierRound) {
    Job job = running(two, 2);
    job.fail(1, 0);
    job.drain(1, PartEnd::failure);
    job.drain(2, PartEnd::failure);
    job.restart();
    job.news();
    Membership membership = job.membership();
    const auto now = Membership::Time{} + 2h;
    EXPECT_THAT(membership.failed(1, 1, 0, now), IsEmpty());
    EXPECT_THAT(membership.drained(1, 1, PartEnd::failure, now), IsEmpty());
    EXPECT_THAT(membership.drained(9, 2, PartEnd::failure, now), IsEmpty()) << "a stranger";
}

TEST(Membership, SaysThatAHostIsSilentAndLosesItLater) {
    Job job = running(two_to_three, 3);
    job.cut(3);
    job.pass(699ms);
    EXPECT_THAT(job.news(), IsEmpty());
    job.pass(1ms);
    EXPECT_THAT(job.news(), ElementsAre("say no answer from h3 (10.77.0.3), ranks 4-5"));
    job.pass(4'300ms);
    EXPECT_THAT(job.news(), ElementsAre("say lost h3 (10.77.0.3), ranks 4-5: no answer for 5 s",
                                        "3: refused: this host counts as lost: no answer for 5 s",
                                        "1: stop loss of rank 4", "2: stop loss of rank 4"));
    job.drain(1, PartEnd::failure);
    job.drain(2, PartEnd::failure);
    EXPECT_EQ(job.round(), 1) << "its lease may last a moment longer by its own clock";
    job.pass(600ms);
    EXPECT_THAT(job.news(), ElementsAre("1: round 2 of 1 2", "2: round 2 of 1 2"))
        << "without using a restart";
}

TEST(Membership, SaysThatASilentHostAnswersAgain) {
    Job job = running(two_to_three, 3);
    job.cut(3);
    job.pass(2s);
    job.news();
    job.stall(3);
    job.pass(600ms);
    EXPECT_THAT(job.news(), ElementsAre("say h3 (10.77.0.3), ranks 4-5 answers again"));
}

TEST(Membership, IsPatientWithAnAgentWhoseKernelAnswers) {
    Job job = running(two_to_three, 3);
    job.stall(3);
    job.pass(4'999ms);
    EXPECT_THAT(job.news(), IsEmpty());
    job.pass(1ms);
    EXPECT_THAT(job.news(), ElementsAre("say the agent of h3 (10.77.0.3), ranks 4-5 has not run "
                                        "for 5 s; its kernel answers"));
    job.pass(24'999ms);
    EXPECT_THAT(job.news(), IsEmpty());
    job.pass(1ms);
    EXPECT_THAT(job.news(), ::testing::Contains("1: stop loss of rank 4"));
}

TEST(Membership, WaitsForTheLeaseOfAHostWhoseAgentHasGone) {
    Job job = running(one_to_three, 2);
    job.close(2);
    EXPECT_THAT(job.news(), ElementsAre("say lost h2 (10.77.0.2), ranks 2-3: its agent has gone",
                                        ::testing::_, "1: stop loss of rank 2"));
    job.drain(1);
    job.pass(5s);
    EXPECT_EQ(job.round(), 1);
    job.pass(600ms);
    EXPECT_THAT(job.news(), ElementsAre("1: round 2 of 1"));
}

TEST(Membership, GoesOnAtOnceWithoutAHostThatLeft) {
    Job job = running(one_to_three, 2);
    job.leave(1);
    EXPECT_THAT(job.news(), ElementsAre("say h1 (10.77.0.1), ranks 0-1 leaves the job",
                                        "2: stop loss of rank 0"));
    job.drain(2);
    EXPECT_THAT(job.news(), ElementsAre("2: round 2 of 2"));
}

TEST(Membership, JudgesALossOfAStaticJobAndWaitsForTheHost) {
    Job job = running(two, 2);
    job.close(2);
    job.drain(1);
    job.pass(6s);
    EXPECT_THAT(job.news(), ::testing::Contains("judge loss with a loss"));
    job.restart();
    job.pass(60s);
    EXPECT_EQ(job.round(), 1);
    job.join(3, "h2");
    EXPECT_THAT(job.news(), ElementsAre("3: wait", "1: round 2 of 1 3, restart 1",
                                        "3: round 2 of 1 3, restart 1"));
}

TEST(Membership, TellsTheJudgeOfALossDuringTheStop) {
    Job job = running(two, 2);
    job.fail(1, 0);
    job.close(2);
    job.drain(1, PartEnd::failure);
    job.pass(6s);
    EXPECT_THAT(job.news(), ::testing::Contains("judge failure with a loss"));
}

TEST(Membership, TakesNewcomersAfterTheirLastCall) {
    Job job = running(one_to_three, 1);
    job.join(2, "h2");
    job.pass(29'999ms);
    EXPECT_THAT(job.news(), ElementsAre("2: wait"));
    job.pass(1ms);
    EXPECT_THAT(job.news(), ElementsAre("1: stop growth"));
    job.drain(1, PartEnd::failure);
    EXPECT_THAT(job.news(), ElementsAre("1: round 2 of 1 2", "2: round 2 of 1 2"));
}

TEST(Membership, TakesNewcomersAtOnceWhereNoMoreCanCome) {
    Job job = running(two_to_three, 2);
    job.join(3, "h3");
    EXPECT_THAT(job.news(), ElementsAre("3: wait", "1: stop growth", "2: stop growth"));
}

TEST(Membership, EndsTheLastCallOfANewcomerThatGoes) {
    Job job = running(one_to_three, 1);
    job.join(2, "h2");
    job.pass(10s);
    job.leave(2);
    job.pass(60s);
    EXPECT_EQ(job.round(), 1);
    EXPECT_THAT(job.news(), ElementsAre("2: wait", "say h2 (10.77.0.2) leaves the job"));
}

TEST(Membership, StopsNoRoundThatEndsAlready) {
    Job job = running(one_to_three, 2);
    job.drain(1);
    job.join(3, "h3");
    job.pass(60s);
    EXPECT_THAT(job.news(), ElementsAre("3: wait"));
    job.drain(2);
    EXPECT_THAT(job.news(), ElementsAre("judge success"));
}

TEST(Membership, PromotesASpareWhenSomebodyGoes) {
    Job job = running(two, 2);
    job.join(3, "h3");
    EXPECT_THAT(job.news(), ElementsAre("3: spare"));
    Job elastic = running(two_to_three, 3);
    elastic.join(4, "h4");
    EXPECT_THAT(elastic.news(), ElementsAre("4: spare"));
    elastic.leave(2);
    elastic.drain(1);
    elastic.drain(3);
    EXPECT_THAT(elastic.news(), ::testing::Contains("4: round 2 of 1 4 3")) << "in the gap";
}

TEST(Membership, LetsAHostThatIsLostAgainAndAgainWaitLongerEachTime) {
    Job job = running(one_to_three, 1);
    const auto lose_again = [&](MemberId member) {
        job.join(member, "flaky");
        job.pass(1s);
        job.news();
        job.close(member);
    };
    lose_again(10);
    lose_again(11);
    job.news();
    job.join(12, "flaky");
    EXPECT_THAT(
        job.news(),
        ElementsAre("12: wait", "say flaky was lost 2 times in a row; it may join again in 60 s"));
    job.pass(60s);
    EXPECT_EQ(job.round(), 1) << "then comes its last call";
    job.pass(31s);
    EXPECT_THAT(job.news(), ::testing::Contains("1: stop growth"));
    job.drain(1);
    job.close(12);
    job.drain(1);
    job.pass(6s);
    job.news();
    job.join(13, "flaky");
    EXPECT_THAT(job.news(), ::testing::Contains(HasSubstr("may join again in 114 s")))
        << "2 minutes after the loss";
    job.join(14, "steady");
    EXPECT_THAT(job.news(), ElementsAre("14: wait")) << "another host waits for nothing";
}

TEST(Membership, ForgetsLossesThatAreLongAgo) {
    Job job = running(one_to_three, 1);
    for (const MemberId member : {10, 11, 12}) {
        job.join(member, "flaky");
        EXPECT_THAT(job.news(), ::testing::Not(::testing::Contains(HasSubstr("may join again"))));
        job.close(member);
        job.pass(10min);
    }
}

TEST(Membership, StopsARoundForTheUser) {
    Job job = running(two, 2);
    job.stop(15);
    EXPECT_THAT(job.news(), ElementsAre("1: stop user", "2: stop user"));
    job.drain(1, PartEnd::failure);
    job.drain(2, PartEnd::failure);
    EXPECT_THAT(job.news(), ElementsAre("judge user"));
    job.finish(143);
    EXPECT_TRUE(job.membership().is_over());
}

TEST(Membership, StopsForTheUserWhileHostsGatherAndWhileARoundStops) {
    Job gathering(two);
    gathering.join(1, "h1");
    gathering.stop(2);
    EXPECT_THAT(gathering.news(), ElementsAre("1: wait", "judge user"));
    Job stopping = running(one_to_three, 2);
    stopping.leave(2);
    stopping.stop(2);
    stopping.drain(1);
    EXPECT_THAT(stopping.news(), ::testing::Contains("judge user with a loss"))
        << "no further round";
}

}  // namespace
}  // namespace ddp::launcher
