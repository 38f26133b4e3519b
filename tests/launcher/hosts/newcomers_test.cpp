#include "launcher/hosts/newcomers.hpp"

#include <gtest/gtest.h>

namespace ddp::launcher {
namespace {

TEST(Newcomers, TheOldestOfTheAddressWithMostGoesFirst) {
    Newcomers all;
    EXPECT_EQ(all.first_to_go(), std::nullopt);
    all.add(1, "10.0.0.1");
    all.add(2, "10.0.0.2");
    EXPECT_EQ(all.first_to_go(), 1U) << "as many from both";
    all.add(3, "10.0.0.2");
    all.add(4, "10.0.0.3");
    EXPECT_EQ(all.size(), 4U);
    EXPECT_EQ(all.first_to_go(), 2U);
    all.remove(2);
    EXPECT_EQ(all.first_to_go(), 1U);
    all.remove(1);
    EXPECT_EQ(all.first_to_go(), 3U);
}

TEST(Newcomers, OneThatHasJoinedIsNone) {
    Newcomers all;
    all.add(1, "10.0.0.1");
    all.remove(1);
    all.remove(1);
    all.remove(7);
    EXPECT_EQ(all.size(), 0U);
    EXPECT_EQ(all.first_to_go(), std::nullopt);
}

}  // namespace
}  // namespace ddp::launcher
