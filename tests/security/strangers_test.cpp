// Whom the store serves: requests of another user of this host are not executed, whoever serves the
// store; root's are, and those of workers that have become another user.
#include "base/net/socket.hpp"
#include "security/job.hpp"
#include "security/requests.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace ddp::security_test {
namespace {

using std::chrono::seconds;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::size_t requests = 500;
constexpr std::size_t soak_requests = 10'000;
// All of it, however slow the machine.
constexpr seconds time_to_ask{100};

const Launch::Words as_nobody{"/usr/bin/setpriv", "--reuid=65534", "--regid=65534",
                              "--clear-groups"};

class Strangers : public ::testing::Test {
protected:
    void SetUp() override { DDP_NEEDS_ROOT(); }

    static void ask(uid_t user, const StorePlace& place, std::size_t count, Tally& tally) {
        Stranger asker(
            user, [&] { send_requests(place, count, base::Deadline::after(time_to_ask), tally); });
        EXPECT_TRUE(asker.wait(time_to_ask + seconds{10}));
    }

    static void expect_nothing_executed(std::uint16_t port, std::size_t count, const Tally& tally) {
        EXPECT_EQ(tally.answered, 0U);
        EXPECT_EQ(tally.closed, count) << tally.failed << " found nobody there";
        Friend witness(port);
        EXPECT_EQ(witness.get(known_key), known_value);
        EXPECT_THAT(witness.keys(), Each(Not(StartsWith(stranger_key))));
    }

    // Before the ranks join, at the port and at the local socket.
    static void refuse(std::size_t count, const JobSettings& settings) {
        Job job(settings);
        const auto port = job.wait_until_ready();
        ASSERT_TRUE(port) << job.wait().err;
        Friend(*port).set(known_key, known_value);
        for (const std::string& name : {std::string(), job.store_socket()}) {
            SCOPED_TRACE(name);
            const Shared<Tally> tally;
            ask(nobody, {*port, name}, count, *tally);
            expect_nothing_executed(*port, count, *tally);
        }
        job.let_join();
        job.let_end();
        const LaunchResult result = job.wait();
        expect_right(result, settings.ranks);
        EXPECT_THAT(result.err, HasSubstr("refused"));
        EXPECT_THAT(result.err, HasSubstr(std::to_string(nobody)));
    }

    // Rank 0 serves from when it has joined.
    static void rank_0_refuses(std::size_t count) {
        Job job({.options = {"--agent-store=off"}});
        const auto port = job.wait_until_ready();
        ASSERT_TRUE(port) << job.wait().err;
        job.let_join();
        ASSERT_TRUE(job.wait_until_joined()) << job.wait().err;
        Friend(*port).set(known_key, known_value);
        const Shared<Tally> tally;
        ask(nobody, {*port}, count, *tally);
        expect_nothing_executed(*port, count, *tally);
        job.let_end();
        expect_right(job.wait(), 2);
    }
};

TEST_F(Strangers, TheAgentExecutesNothing) { refuse(requests, {}); }

TEST_F(Strangers, SoakTheAgentExecutesNothing) { refuse(soak_requests, {}); }

TEST_F(Strangers, RankZerosServerExecutesNothing) { rank_0_refuses(requests); }

TEST_F(Strangers, SoakRankZerosServerExecutesNothing) { rank_0_refuses(soak_requests); }

TEST_F(Strangers, WorkersThatBecameAnotherUserAreServedAndOthersOfThatUserAreNot) {
    refuse(requests, {.before_program = as_nobody});
}

TEST_F(Strangers, AnotherUsersJobRefusesThemToo) {
    if (!can_run_programs(another_user)) GTEST_SKIP() << "the build is closed to other users";
    refuse(requests, {.user = another_user});
}

// Before rank 0 listens, which the launcher's holding of the port does not do for it.
TEST_F(Strangers, WhoTakesRankZerosPortEndsTheJob) {
    Job job({.options = {"--agent-store=off"}});
    const auto port = job.wait_until_ready();
    ASSERT_TRUE(port) << job.wait().err;
    const Stranger thief(nobody, [&] {
        const base::UniqueFd listener = base::listen_tcp("127.0.0.1", *port);
        ::pause();
    });
    const LaunchResult result = job.wait();
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_THAT(result.err, HasSubstr("port " + std::to_string(*port) +
                                      ", which rank 0 is to serve, was taken by uid 65534"));
}

// The same requests: what is counted is there to be counted.
class Served : public Strangers {
protected:
    static void expect_served(uid_t user, const JobSettings& settings) {
        Job job(settings);
        const auto port = job.wait_until_ready();
        ASSERT_TRUE(port) << job.wait().err;
        for (const std::string& name : {std::string(), job.store_socket()}) {
            SCOPED_TRACE(name);
            Friend(*port).set(known_key, known_value);
            const Shared<Tally> tally;
            ask(user, {*port, name}, requests, *tally);
            EXPECT_GT(tally->answered, requests * 3 / 4);
            EXPECT_NE(Friend(*port).get(known_key), known_value);
        }
        job.let_join();
        job.let_end();
        expect_right(job.wait(), settings.ranks);
    }
};

TEST_F(Served, RootIsServed) { expect_served(0, {}); }

TEST_F(Served, RootIsServedByAnotherUsersJob) {
    if (!can_run_programs(another_user)) GTEST_SKIP() << "the build is closed to other users";
    expect_served(0, {.user = another_user});
}

TEST_F(Served, EverybodyIsWhenTheLauncherIsToldSo) {
    expect_served(nobody, {.options = {"--store-peers=any"}});
}

}  // namespace
}  // namespace ddp::security_test
