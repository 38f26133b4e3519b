// The map underneath all stores: what it counts, and that a refused operation changes nothing.
#include "store/server/store_map.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include "store/limits.hpp"

namespace ddp::store {
namespace {

TEST(StoreMap, CountsTheBytesItHoldsAndNoOthers) {
    StoreMap map;
    map.set("key", "four");
    const auto one = map.bytes();
    EXPECT_GE(one, 7U);
    map.set("key", "eighteen");
    EXPECT_EQ(map.bytes(), one + 4);
    map.append("key", "ab");
    EXPECT_EQ(map.bytes(), one + 6);
    map.set("key", "");
    EXPECT_EQ(map.bytes(), one - 4);
    map.add("number", 10);
    map.add("number", -5);
    EXPECT_TRUE(map.erase("number"));
    EXPECT_TRUE(map.erase("key"));
    EXPECT_FALSE(map.erase("key"));
    EXPECT_EQ(map.bytes(), 0U);
    map.append("new", "x");
    map.clear();
    EXPECT_EQ(map.bytes(), 0U);
    EXPECT_EQ(map.size(), 0U);
}

TEST(StoreMap, ARefusedOperationChangesNothing) {
    StoreMap map;
    map.set("k", std::string(max_value_bytes, 'v'));
    const auto bytes = map.bytes();
    EXPECT_THROW(map.append("k", "v"), UsageError);
    EXPECT_THROW(map.add("k", 1), UsageError);
    EXPECT_EQ(map.bytes(), bytes);
    EXPECT_EQ(map.find("k")->size(), max_value_bytes);
}

TEST(StoreMap, NamesWhatIsMissingInTheOrderAsked) {
    StoreMap map;
    map.set("b", "");
    EXPECT_EQ(map.missing({"c", "b", "a"}), (StoreKeys{"c", "a"}));
    EXPECT_EQ(map.keys(), StoreKeys{"b"});
}

}  // namespace
}  // namespace ddp::store
