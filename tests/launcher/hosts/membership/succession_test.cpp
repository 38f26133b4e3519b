// Who may succeed a lost coordinator, and who follows whom.
#include "launcher/hosts/membership/succession.hpp"
#include "launcher/hosts/membership/quorum.hpp"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using Time = Succession::Time;
using Share = Quorum::Share;

RoundMessage round_of(const std::vector<MemberId>& members, MemberId coordinator) {
    RoundMessage round;
    round.round = 1;
    round.coordinator = coordinator;
    for (const MemberId member : members) {
        HostRanks& host = round.table.hosts.emplace_back();
        host.member = member;
        host.host = "h" + std::to_string(member);
        host.port = 29400;
    }
    return round;
}

bool is_met(const Quorum& quorum, Share share, const std::set<MemberId>& here) {
    return quorum.is_met(share, [&](MemberId member) { return here.contains(member); });
}

TEST(Quorum, IsHalfForTheCoordinatorAndMoreForASuccessor) {
    Quorum quorum;
    EXPECT_TRUE(is_met(quorum, Share::half, {})) << "before the first round";
    quorum.begin(round_of({1, 2, 3, 4}, 1).table);
    EXPECT_TRUE(is_met(quorum, Share::half, {1, 2}));
    EXPECT_FALSE(is_met(quorum, Share::half, {1, 7, 8}));
    EXPECT_FALSE(is_met(quorum, Share::most, {3, 4}));
    EXPECT_TRUE(is_met(quorum, Share::most, {2, 3, 4}));
}

TEST(Quorum, IsOfTheRoundBeforeTooUntilHalfOfThatHaveBegunTheNext) {
    Quorum quorum;
    quorum.begin(round_of({1, 2, 3}, 1).table);
    quorum.begin(round_of({1, 4, 5}, 1).table);
    EXPECT_FALSE(is_met(quorum, Share::half, {1, 4, 5}));
    EXPECT_TRUE(is_met(quorum, Share::half, {1, 2, 4}));
    quorum.started(4);
    quorum.started(1);
    EXPECT_FALSE(is_met(quorum, Share::half, {1, 4, 5})) << "one of three follows";
    quorum.begin(round_of({1, 2, 4}, 1).table);
    quorum.started(1);
    quorum.started(2);
    EXPECT_TRUE(is_met(quorum, Share::half, {1, 4}));
}

TEST(Quorum, WhoLeavesOfItsOwnAccordDecidesNothing) {
    Quorum quorum;
    quorum.begin(round_of({1, 2, 3}, 1).table);
    EXPECT_FALSE(is_met(quorum, Share::half, {1}));
    quorum.left(2);
    EXPECT_TRUE(is_met(quorum, Share::half, {1}));
    quorum.renamed(3, 9);
    EXPECT_TRUE(is_met(quorum, Share::most, {1, 9}));
}

TEST(Succession, NeedsMostOfTheHostsAndOneThatServes) {
    EXPECT_TRUE(Succession::is_possible(round_of({1, 2, 3}, 1)));
    EXPECT_FALSE(Succession::is_possible(round_of({1, 2}, 1)));
    EXPECT_TRUE(Succession::is_possible(round_of({1, 2}, 7))) << "a host that serves only is lost";
    RoundMessage nobody_serves = round_of({1, 2, 3}, 1);
    for (HostRanks& host : nobody_serves.table.hosts) host.port = host.member == 1 ? 29400 : 0;
    EXPECT_FALSE(Succession::is_possible(nobody_serves));
}

TEST(Succession, TheFirstServesAtOnceAndTheOthersTryThoseBeforeThem) {
    const Time now = Time{} + 1h;
    const RoundMessage last = round_of({1, 2, 3, 4}, 1);
    Succession first(last, 2, {}, now);
    EXPECT_TRUE(first.serves(now));
    EXPECT_EQ(first.next(), nullptr);

    Succession third(last, 4, {}, now);
    EXPECT_FALSE(third.serves(now + 3'999ms));
    EXPECT_TRUE(third.serves(now + 4s));
    for (const char* host : {"h2", "h3", "h2"}) {
        ASSERT_NE(third.next(), nullptr);
        EXPECT_EQ(third.next()->host, host);
        third.pass();
    }
    third.defer(now + 5s);
    EXPECT_FALSE(third.serves(now + 8s));
    EXPECT_TRUE(third.serves(now + 9s));
    EXPECT_EQ(third.ends(), now + MembershipRules{}.time_to_succeed());
}

TEST(Succession, WhatIsNoCoordinatorIsNotTriedAgain) {
    const Time now = Time{} + 1h;
    Succession third(round_of({1, 2, 3, 4}, 1), 4, {}, now);
    third.pass();
    EXPECT_EQ(third.next()->host, "h3");
    third.exclude();
    EXPECT_EQ(third.next()->host, "h2");
    third.doubt();
    EXPECT_EQ(third.next()->host, "h2");
    third.doubt();
    EXPECT_EQ(third.next(), nullptr);
    third.exclude();
    EXPECT_TRUE(third.serves(now + 4s));
}

TEST(Succession, WhoCannotServeTriesAllOthers) {
    const Time now = Time{} + 1h;
    Succession second(round_of({1, 2, 3, 4}, 1), 3, {}, now);
    second.renounce();
    EXPECT_FALSE(second.serves(now + 1h));
    for (const char* host : {"h2", "h4", "h2"}) {
        ASSERT_NE(second.next(), nullptr);
        EXPECT_EQ(second.next()->host, host);
        second.pass();
    }
}

}  // namespace
}  // namespace ddp::launcher
