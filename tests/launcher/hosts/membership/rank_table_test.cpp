// Ranks over hosts of unequal sizes: the first order, what later rounds keep of it, and whom no
// table can hold.
#include "launcher/hosts/membership/rank_table.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "support/seed.hpp"

namespace ddp::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<MemberId> order_of(const RankTable& table) {
    std::vector<MemberId> members;
    for (const HostRanks& host : table.hosts) members.push_back(host.member);
    return members;
}

std::vector<int> first_ranks_of(const RankTable& table) {
    std::vector<int> ranks;
    for (const HostRanks& host : table.hosts) ranks.push_back(host.first_rank);
    return ranks;
}

std::string refusal_of(const std::vector<HostSize>& hosts) {
    try {
        make_rank_table(hosts);
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none";
}

TEST(RankTable, IsContiguousByHostOfUnequalSizes) {
    const std::vector<HostSize> hosts{{.member = 1, .host = "h1", .slots = 2},
                                      {.member = 2, .host = "h2", .slots = 4},
                                      {.member = 3, .host = "h3", .slots = 1}};
    const RankTable table = make_rank_table(hosts);
    EXPECT_THAT(order_of(table), ElementsAre(1, 2, 3));
    EXPECT_THAT(first_ranks_of(table), ElementsAre(0, 2, 6));
    EXPECT_EQ(table.world_size, 7);
    EXPECT_EQ(table.find(2)->group_rank, 1);
    EXPECT_EQ(table.find(4), nullptr);
}

TEST(RankTable, OfTheFirstRoundGoesByEndpointNameAndStart) {
    EXPECT_THAT(order_of(make_rank_table(std::vector<HostSize>{{.member = 1, .host = "h10"},
                                                               {.member = 2, .host = "h2"},
                                                               {.member = 3, .host = "node66"},
                                                               {.member = 4, .host = "node7"}})),
                ElementsAre(2, 1, 4, 3));
    const HostSize head{.member = 5, .host = "z", .is_endpoint = true};
    EXPECT_THAT(order_of(make_rank_table(std::vector<HostSize>{{.member = 1, .host = "a"}, head})),
                ElementsAre(5, 1));
    const HostSize later{.member = 1, .host = "h", .started_ns = 8};
    const HostSize earlier{.member = 2, .host = "h", .started_ns = 7};
    EXPECT_THAT(order_of(make_rank_table(std::vector{later, earlier})), ElementsAre(2, 1));
}

TEST(RankTable, GivesANodeRankThatIsAskedForToWhoAsks) {
    const HostSize third{.member = 1, .host = "a", .node_rank = 2};
    const HostSize first{.member = 2, .host = "b", .node_rank = 0};
    const HostSize head{.member = 3, .host = "c", .is_endpoint = true};
    EXPECT_THAT(order_of(make_rank_table(std::vector{third, first, head})), ElementsAre(2, 3, 1));
}

TEST(RankTable, NamesBothHostsThatAskForOnePlace) {
    const HostSize a{.member = 1, .host = "a", .node_rank = 1};
    const HostSize b{.member = 2, .host = "b", .node_rank = 1};
    EXPECT_THAT(refusal_of({a, b}),
                HasSubstr("node rank 1 is asked for by a and by b; give each host its own"));
}

TEST(RankTable, RefusesANodeRankBelow0) {
    EXPECT_THAT(refusal_of({{.member = 1, .host = "a", .node_rank = -1}}),
                HasSubstr("node rank -1 of a: it is at least 0"));
}

// An elastic job that begins without host 2 of 4, and one that has hosts without a node rank, too.
TEST(RankTable, PutsNodeRanksBeyondTheHostsThatAreThereLastInTheirOrder) {
    const HostSize first{.member = 1, .host = "a", .node_rank = 0};
    const HostSize second{.member = 2, .host = "b", .node_rank = 1};
    const HostSize fourth{.member = 4, .host = "d", .node_rank = 3};
    const HostSize sixth{.member = 6, .host = "0", .node_rank = 5};
    const HostSize any{.member = 9, .host = "z"};
    EXPECT_THAT(order_of(make_rank_table(std::vector{fourth, second, first})),
                ElementsAre(1, 2, 4));
    EXPECT_THAT(order_of(make_rank_table(std::vector{sixth, fourth, any})), ElementsAre(9, 4, 6));
}

TEST(RankTable, CountsRanksOfEachRole) {
    const HostSize trainer{.member = 1, .host = "a", .slots = 2, .role = "trainer"};
    const HostSize reader{.member = 2, .host = "b", .slots = 3, .role = "reader"};
    const HostSize another{.member = 3, .host = "c", .slots = 4, .role = "trainer"};
    const RankTable table = make_rank_table(std::vector{trainer, reader, another});
    EXPECT_EQ(table.find(1)->first_role_rank, 0);
    EXPECT_EQ(table.find(2)->first_role_rank, 0);
    EXPECT_EQ(table.find(3)->first_role_rank, 2);
    EXPECT_EQ(table.find(1)->role_world_size, 6);
    EXPECT_EQ(table.find(2)->role_world_size, 3);
    EXPECT_EQ(table.find(3)->role_world_size, 6);
}

TEST(RankTable, OfALaterRoundKeepsPlacesAndFillsGapsFirst) {
    const HostSize a{.member = 1, .host = "a"}, b{.member = 2, .host = "b"},
        c{.member = 3, .host = "c"}, d{.member = 4, .host = "d"}, e{.member = 5, .host = "e"};
    const RankTable first = make_rank_table(std::vector{a, b, c});
    EXPECT_THAT(order_of(make_rank_table(std::vector{c, a}, first)), ElementsAre(1, 3));
    EXPECT_THAT(order_of(make_rank_table(std::vector{e, d, c, a}, first)), ElementsAre(1, 4, 3, 5));
    EXPECT_THAT(order_of(make_rank_table(std::vector{d, c}, first)), ElementsAre(4, 3));
}

TEST(RankTable, OfALaterRoundGivesAHostThatCameBackTheNodeRankThatItAsksFor) {
    const HostSize a{.member = 1, .host = "a", .node_rank = 0};
    const HostSize b{.member = 2, .host = "b", .node_rank = 1};
    const HostSize c{.member = 3, .host = "c", .node_rank = 2};
    const RankTable first = make_rank_table(std::vector{a, b, c});
    HostSize a_again = a;
    a_again.member = 4;
    HostSize b_again = b;
    b_again.member = 5;
    b_again.host = "Z";  // before a
    EXPECT_THAT(order_of(make_rank_table(std::vector{a_again, b_again, c}, first)),
                ElementsAre(4, 5, 3));
}

TEST(RankTable, HasEachRankOnceWhoeverComesAndGoes) {
    std::mt19937_64 random(store_test::random_seed());
    RankTable last;
    std::vector<HostSize> hosts;
    for (int round = 0; round < 500; ++round) {
        std::erase_if(hosts, [&](const auto&) { return random() % 4 == 0; });
        for (auto count = random() % 3 + (hosts.empty() ? 1 : 0); count > 0; --count) {
            hosts.push_back({.member = random(),
                             .host = "h" + std::to_string(random() % 20),
                             .slots = static_cast<int>(random() % 5 + 1)});
        }
        std::ranges::shuffle(hosts, random);
        const RankTable table = make_rank_table(hosts, last);
        int next = 0;
        std::set<MemberId> members;
        for (const HostRanks& host : table.hosts) {
            EXPECT_EQ(host.group_rank, static_cast<int>(members.size()));
            EXPECT_EQ(host.first_rank, next);
            EXPECT_EQ(host.first_role_rank, next);
            next += host.slots;
            members.insert(host.member);
        }
        EXPECT_EQ(table.world_size, next);
        EXPECT_EQ(members.size(), hosts.size());
        last = table;
    }
}

TEST(NaturalOrder, ComparesDigitsAsNumbers) {
    const std::vector<std::string> sorted{"",     "a",    "a1", "a1b", "a2", "a10",
                                          "a10a", "a10b", "b",  "b-2", "b3"};
    for (std::size_t i = 0; i < sorted.size(); ++i) {
        for (std::size_t j = 0; j < sorted.size(); ++j) {
            EXPECT_EQ(is_before_in_natural_order(sorted[i], sorted[j]), i < j)
                << sorted[i] << " and " << sorted[j];
        }
    }
    EXPECT_TRUE(is_before_in_natural_order("h01", "h1")) << "the same number: as bytes say";
    EXPECT_FALSE(is_before_in_natural_order("h1", "h01"));
    EXPECT_TRUE(is_before_in_natural_order("n99999999999999999999998", "n99999999999999999999999"));
}

}  // namespace
}  // namespace ddp::launcher
