// Owned bytes and shared values leave in the order in which they were added, however little the
// socket takes, and nothing is kept of what has left.
#include "store/server/outbox.hpp"

#include <gtest/gtest.h>

#include <sys/socket.h>

#include <random>

#include "base/unique_fd.hpp"
#include "support/seed.hpp"

namespace ddp::store {
namespace {

class OutboxTest : public testing::Test {
protected:
    OutboxTest() {
        int fds[2];
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        here = base::UniqueFd{fds[0]};
        there = base::UniqueFd{fds[1]};
    }
    std::string read_some(std::size_t at_most) const {
        std::string bytes(at_most, '\0');
        const auto count = ::recv(there.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        return bytes;
    }

    base::UniqueFd here;
    base::UniqueFd there;
    Outbox outbox;
};

TEST_F(OutboxTest, SendsOwnAndSharedBytesInOrder) {
    Reply reply{1, "ab"};
    reply.share(std::make_shared<Value>("CD"));
    reply.share(std::make_shared<Value>(""));
    reply.bytes += "ef";
    reply.share(std::make_shared<Value>("GH"));
    outbox.add({1, "12"});
    outbox.add(reply);
    outbox.add({1, "34"});
    EXPECT_EQ(outbox.bytes(), 12U);
    EXPECT_EQ(outbox.send(here.get()), Outbox::Sent::all);
    EXPECT_EQ(read_some(100), "12abCDefGH34");
    EXPECT_EQ(outbox.bytes(), 0U);
    EXPECT_EQ(outbox.owned_bytes(), 0U);
}

TEST_F(OutboxTest, LosesNothingWhateverTheSocketTakes) {
    std::mt19937 random{store_test::random_seed()};
    const auto text = [&](std::size_t most) {
        std::string bytes(random() % most, '\0');
        for (auto& byte : bytes) byte = static_cast<char>(random());
        return bytes;
    };
    std::string expected;
    std::string got;
    for (int i = 0; i < 2000; ++i) {
        Reply reply{1, {}};
        for (auto pieces = random() % 4; pieces > 0; --pieces) {
            const auto own = text(30);
            const auto shared = std::make_shared<Value>(text(random() % 10 == 0 ? 100'000 : 300));
            expected += own + shared->bytes;
            reply.bytes += own;
            reply.share(shared);
        }
        const auto end = text(1000);
        expected += end;
        reply.bytes += end;
        outbox.add(std::move(reply));
        if (random() % 3 == 0) outbox.send(here.get());
        if (random() % 3 == 0) got += read_some(random() % 200'000 + 1);
    }
    for (int i = 0; i < 100'000 && got.size() < expected.size(); ++i) {
        outbox.send(here.get());
        got += read_some(1 << 20);
    }
    EXPECT_TRUE(got == expected) << got.size() << " of " << expected.size();
    EXPECT_EQ(outbox.send(here.get()), Outbox::Sent::all);
    EXPECT_EQ(outbox.owned_bytes(), 0U);
}

TEST_F(OutboxTest, HoldsAValueOnlyUntilItHasLeft) {
    const auto value = std::make_shared<Value>(std::string(1000, 'v'));
    Reply reply{1, {}};
    reply.share(value);
    outbox.add(std::move(reply));
    value->is_detached = true;
    EXPECT_EQ(value.use_count(), 2);
    EXPECT_EQ(outbox.detached_bytes(), 1000U);
    outbox.send(here.get());
    EXPECT_EQ(value.use_count(), 1);
    EXPECT_EQ(outbox.detached_bytes(), 0U);
}

TEST_F(OutboxTest, AQueueThatNeverRunsEmptyDoesNotGrow) {
    outbox.add({1, std::string(1 << 20, 'x')});
    for (int i = 0; i < 200; ++i) {  // 20 MiB pass through
        outbox.add({1, std::string(100'000, 'y')});
        outbox.send(here.get());
        for (std::size_t taken = 0; taken < 100'000;) {
            taken += read_some(100'000 - taken).size();
            outbox.send(here.get());
        }
    }
    EXPECT_GT(outbox.bytes(), 0U);
    EXPECT_LT(outbox.owned_bytes(), std::size_t{8} << 20);
}

TEST_F(OutboxTest, TellsThatTheConnectionIsLost) {
    there.reset();
    outbox.add({1, "x"});
    EXPECT_EQ(outbox.send(here.get()), Outbox::Sent::lost);
}

}  // namespace
}  // namespace ddp::store
