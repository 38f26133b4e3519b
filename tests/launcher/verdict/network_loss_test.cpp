#include "launcher/verdict/network_loss.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <optional>
#include <string>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

TEST(LookAtTcp, ReadsWhatTheKernelCounts) {
    const auto here = look_at_tcp(::getpid());
    ASSERT_TRUE(here);
    EXPECT_GE(here->sent, here->sent_again);
    EXPECT_FALSE(look_at_tcp(-1));
}

class Loss : public ::testing::Test {
protected:
    // A stretch of two seconds.
    std::optional<std::string> after(std::uint64_t sent, std::uint64_t again) {
        counts_.sent += sent;
        counts_.sent_again += again;
        counts_.read += 2s;
        return news_.consider(7, "h2", 2s, counts_);
    }
    std::optional<std::string> after_many(int stretches, std::uint64_t sent, std::uint64_t again) {
        std::optional<std::string> said;
        for (int i = 0; i < stretches; ++i) {
            const auto text = after(sent, again);
            EXPECT_FALSE(said && text) << "it is said once";
            if (text) said = text;
        }
        return said;
    }

    TcpCounts counts_{1'000'000, 50'000, 1h};  // of long ago
    LossNews news_;
};

TEST_F(Loss, IsSaidOnceWhereItLasts) {
    EXPECT_FALSE(after(0, 0));
    EXPECT_FALSE(after_many(4, 970, 30));
    EXPECT_EQ(after(970, 30),
              "host h2 sends 3.0 % of its TCP segments again (150 in the last 10 s): packets get "
              "lost on its network or on that of those they go to, and ranks may wait for them");
    EXPECT_FALSE(after_many(10, 970, 30));
}

TEST_F(Loss, IsNotSaidOfAWhileOrOfAFew) {
    after(0, 0);
    for (int i = 0; i < 5; ++i) {
        EXPECT_FALSE(after_many(4, 970, 30));
        EXPECT_FALSE(after(970, 0));
    }
    EXPECT_FALSE(after_many(50, 997, 3)) << "0.3 %";
    EXPECT_FALSE(after_many(50, 10, 1)) << "a program that tries to connect";
}

TEST_F(Loss, IsSaidToBeOverAndAnew) {
    after(0, 0);
    EXPECT_TRUE(after_many(5, 970, 30));
    EXPECT_FALSE(after_many(20, 995, 5)) << "neither much nor little";
    EXPECT_EQ(after_many(5, 10'000, 1), "host h2 sends hardly any TCP segments again any more");
    EXPECT_TRUE(after_many(5, 970, 30));
}

// What was sent meanwhile, as into a file, is no collective's.
TEST_F(Loss, IsNotSaidOfTimeBetweenStretches) {
    after(0, 0);
    for (int i = 0; i < 20; ++i) {
        counts_.read += 3s;
        EXPECT_FALSE(after(970, 30));
    }
}

TEST_F(Loss, IsOfEachHostWhateverItsNameAndItsCounts) {
    constexpr std::uint64_t much = UINT64_MAX / 4;
    TcpCounts others{0, 0, 1h};
    after(0, 0);
    for (std::uint64_t i = 0; i < 9; ++i) {
        EXPECT_FALSE(after(1000, 0));
        others = {i % 2 * much, i % 2 * much, others.read + 2s};
        EXPECT_FALSE(news_.consider(8, "h2", std::chrono::nanoseconds::max(), others))
            << "it counts from 0 again and again";
    }
}

}  // namespace
}  // namespace ddp::launcher
