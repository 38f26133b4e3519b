// Who may have how much of a server's working memory. Numbers are parts of 48 MiB: 8 are kept for
// detached values and 17 for ranks, and of the 23 that anybody may have 5 are for small things.
#include "store/server/memory_budget.hpp"

#include <gtest/gtest.h>

#include "store/server/client_memory.hpp"

namespace ddp::store {
namespace {

using Use = MemoryBudget::Use;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t bytes = 48 * mib;

TEST(MemoryBudget, ChargesAConnectionAndWhatItUses) {
    MemoryBudget budget{bytes, {}};
    EXPECT_TRUE(budget.charge(1, Use::request, 100));
    EXPECT_TRUE(budget.charge(1, Use::reply, 10));
    EXPECT_EQ(budget.used(), MemoryBudget::connection_bytes + 110);
    EXPECT_EQ(budget.used_by(1), budget.used());
    EXPECT_TRUE(budget.charge(1, Use::request, 20));
    EXPECT_EQ(budget.used(), MemoryBudget::connection_bytes + 30);
    budget.forget(1);
    budget.forget(1);
    EXPECT_EQ(budget.used(), 0U);
}

TEST(MemoryBudget, TellsOnceThatSomethingWasReleased) {
    MemoryBudget budget{bytes, {}};
    budget.charge(1, Use::request, 100);
    EXPECT_FALSE(budget.take_released());
    budget.charge(1, Use::request, 100);
    EXPECT_FALSE(budget.take_released());
    budget.charge(1, Use::request, 50);
    EXPECT_TRUE(budget.take_released());
    EXPECT_FALSE(budget.take_released());
    budget.forget(1);
    EXPECT_TRUE(budget.take_released());
}

TEST(MemoryBudget, OthersNeverReachIntoWhatIsKeptForRanks) {
    MemoryBudget budget{bytes, {}};
    EXPECT_TRUE(budget.charge(1, Use::subscription, 22 * mib));
    const auto before = budget.used();
    EXPECT_FALSE(budget.charge(2, Use::subscription, mib));
    EXPECT_EQ(budget.used(), before + MemoryBudget::connection_bytes);  // nothing has changed
    budget.mark_rank(3);
    EXPECT_TRUE(budget.charge(3, Use::request, 16 * mib));
    EXPECT_FALSE(budget.charge(3, Use::request, 18 * mib));
}

TEST(MemoryBudget, LargeThingsLeaveRoomForSmallOnes) {
    MemoryBudget budget{bytes, {}};
    EXPECT_TRUE(budget.charge_large(1, Use::request, 17 * mib));
    EXPECT_FALSE(budget.charge_large(2, Use::request, mib));
    EXPECT_TRUE(budget.charge(2, Use::request, 4 * mib));
    EXPECT_LT(budget.most_for(1), 18 * mib);
    EXPECT_GT(budget.most_for(1), 17 * mib);
}

TEST(MemoryBudget, AMarkedRankTakesItsChargesAlong) {
    MemoryBudget budget{bytes, {}};
    EXPECT_TRUE(budget.charge(1, Use::subscription, 22 * mib));
    budget.mark_rank(1);
    EXPECT_TRUE(budget.is_rank(1));
    EXPECT_TRUE(budget.charge(2, Use::subscription, 17 * mib));
    EXPECT_FALSE(budget.charge(2, Use::subscription, 23 * mib));  // 40 in all
}

TEST(MemoryBudget, AsksOnceAndOnlyWhenMemoryIsShort) {
    int asked = 0;
    MemoryBudget budget{bytes, [&](ClientId client) {
                            ++asked;
                            return client == 2;
                        }};
    EXPECT_TRUE(budget.charge(1, Use::subscription, 20 * mib));
    EXPECT_TRUE(budget.charge(2, Use::request, mib));
    EXPECT_EQ(asked, 0);
    EXPECT_TRUE(budget.charge(2, Use::request, 16 * mib));  // it is of the job
    EXPECT_EQ(asked, 1);
    for (int i = 0; i < 3; ++i)
        EXPECT_FALSE(budget.charge(1, Use::subscription, 23 * mib + mib / 2));
    EXPECT_EQ(asked, 2);
    EXPECT_TRUE(budget.is_rank(2));
    EXPECT_FALSE(budget.is_rank(1));
    EXPECT_EQ(asked, 2);
}

TEST(MemoryBudget, AsksNobodyAboutWhatAnybodyMayHave) {
    int asked = 0;
    MemoryBudget budget{bytes, [&](ClientId client) {
                            ++asked;
                            return client == 2;
                        }};
    EXPECT_TRUE(budget.may_ever_have(2, 16 * mib));
    EXPECT_EQ(asked, 0);
    EXPECT_TRUE(budget.may_ever_have(2, 39 * mib));
    EXPECT_FALSE(budget.may_ever_have(3, 39 * mib));
    EXPECT_EQ(asked, 2);
}

TEST(MemoryBudget, DetachedValuesMayHaveWhatClientsLeaveAndNeverLessThanTheirPart) {
    MemoryBudget budget{bytes, {}};
    EXPECT_EQ(budget.left_for_detached(), 32 * mib);
    budget.mark_rank(1);
    EXPECT_TRUE(budget.charge(1, Use::request, 39 * mib));
    EXPECT_GE(budget.left_for_detached(), 8 * mib);
    EXPECT_LT(budget.left_for_detached(), 10 * mib);
}

TEST(MemoryBudget, ManyIdleConnectionsAreNotMoreThanTheirPart) {
    MemoryBudget budget{bytes, {}};
    ClientId client = 1;
    while (client < 100'000 && budget.charge(client, Use::request, 0)) ++client;
    EXPECT_LE(budget.used(), 23 * mib);
    EXPECT_GT(client, 20'000U);
    budget.forget(1);
    EXPECT_TRUE(budget.charge(client, Use::request, 0));
}

TEST(ClientMemory, AConnectionIsChargedFromItsFirstWholeRequestOn) {
    StoreData data;
    ClientMemory::Clients clients;
    ClientMemory memory{data, clients};
    ServerClient client{1, {}};
    client.parser.feed("half a request");
    EXPECT_EQ(memory.charge(client), "");
    EXPECT_EQ(data.budget().used(), 0U);
    client.identified = true;
    EXPECT_EQ(memory.charge(client), "");
    EXPECT_GT(data.budget().used(), MemoryBudget::connection_bytes);
}

}  // namespace
}  // namespace ddp::store
