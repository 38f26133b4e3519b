// The digest of what a rank has launched: of all of it, and of its beginning.
#include "backends/device_backend.hpp"

#include <gtest/gtest.h>

namespace {

using ddp::backends::Call;
using ddp::backends::Collective;
using ddp::backends::LaunchOrder;

Call all_reduce(std::size_t elements) {
    return {.kind = Collective::all_reduce, .elements = elements};
}

TEST(LaunchOrder, IsOfTheCallsInTheirOrder) {
    LaunchOrder one, other;
    for (const std::size_t elements : {3U, 5U}) one.add(all_reduce(elements));
    for (const std::size_t elements : {5U, 3U}) other.add(all_reduce(elements));
    EXPECT_EQ(one.calls(), other.calls());
    EXPECT_NE(one.digest(), other.digest());
}

TEST(LaunchOrder, RemembersItsBeginning) {
    LaunchOrder shorter, longer;
    EXPECT_EQ(longer.digest_after(0), shorter.digest());
    for (std::size_t i = 0; i < 1'000; ++i) {
        shorter.add(all_reduce(i));
        longer.add(all_reduce(i));
    }
    for (std::size_t i = 0; i < 1'000; ++i) longer.add(all_reduce(7));
    EXPECT_EQ(longer.digest_after(1'000), shorter.digest());
    EXPECT_EQ(longer.digest_after(longer.calls()), longer.digest());
    EXPECT_EQ(longer.digest_after(longer.calls() + 1), std::nullopt) << "not launched";
    EXPECT_EQ(longer.digest_after(0), std::nullopt) << "too long ago";
}

}  // namespace
