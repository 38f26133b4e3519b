// The control region: an agent and a worker see the same memory; a worker that is handed nonsense
// goes on alone.
#include "contract/control_page.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <string>

namespace {

using namespace ddp::contract;

// What a worker would inherit.
std::string hand_over(const ControlRegion& region) {
    const int fd = ::fcntl(region.fd(), F_DUPFD_CLOEXEC, 10);
    return region.handover(fd);
}

TEST(ControlRegion, IsSharedBetweenAgentAndWorker) {
    const ControlRegion agent = ControlRegion::create(3);
    const ControlRegion worker = ControlRegion::attach(hand_over(agent), 2);
    ASSERT_TRUE(worker.shared());
    worker.own_page().step.store(41);
    EXPECT_EQ(agent.page(2).step.load(), 41);
    EXPECT_EQ(agent.page(1).step.load(), 0);
    agent.header().abort_word.store(1);
    EXPECT_EQ(worker.header().abort_word.load(), 1U);
}

TEST(ControlRegion, ClosesTheDescriptorThatWasHandedOver) {
    const ControlRegion agent = ControlRegion::create(1);
    const int fd = ::fcntl(agent.fd(), F_DUPFD_CLOEXEC, 10);
    const ControlRegion worker = ControlRegion::attach(agent.handover(fd), 0);
    EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
}

TEST(ControlRegion, CannotBeShrunkUnderItsReaders) {
    const ControlRegion agent = ControlRegion::create(1);
    EXPECT_NE(::ftruncate(agent.fd(), 0), 0);
}

TEST(ControlRegion, IsPrivateWhenNothingBelievableWasHandedOver) {
    const ControlRegion agent = ControlRegion::create(1);
    const ControlRegion other = ControlRegion::create(1);
    const int foreign = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int same_fd = ::fcntl(other.fd(), F_DUPFD_CLOEXEC, 10);
    const std::optional<std::string> table[] = {
        std::nullopt,
        "",
        "nonsense",
        "5",
        "999:12ab",
        "-1:12ab",
        "99999999999999999999:1",
        std::to_string(foreign) + ":12ab",
        agent.handover(same_fd),  // the cookie of another region
    };
    for (const auto& value : table) {
        const ControlRegion worker = ControlRegion::attach(value, 0);
        EXPECT_FALSE(worker.shared()) << value.value_or("(unset)");
        worker.own_page().step.store(1);  // usable all the same
    }
    ::close(foreign);
    ::close(same_fd);
}

TEST(ControlRegion, IsPrivateForALocalRankThatItHasNoPageFor) {
    const ControlRegion agent = ControlRegion::create(2);
    const ControlRegion worker = ControlRegion::attach(hand_over(agent), 2);
    EXPECT_FALSE(worker.shared());
}

TEST(ControlRegion, KnowsItsSizeAndNameWhateverIsWrittenIntoIt) {
    const ControlRegion agent = ControlRegion::create(3);
    const std::string before = agent.handover(7);
    std::memset(static_cast<void*>(&agent.header()), 0xff, sizeof(ControlHeader));
    EXPECT_EQ(agent.local_ranks(), 3);
    EXPECT_EQ(agent.handover(7), before);
    agent.page(2).step.store(1);
}

TEST(ControlRegion, IsPrivateWhenTheSizeIsNotThatOfItsHeader) {
    for (const std::uint32_t claimed : {0U, 1U, 3U, 0x7fffffffU, 0xffffffffU}) {
        const ControlRegion agent = ControlRegion::create(2);
        agent.header().local_ranks = claimed;
        const ControlRegion worker = ControlRegion::attach(hand_over(agent), 0);
        EXPECT_FALSE(worker.shared()) << claimed;
        worker.own_page().step.store(1);
    }
}

TEST(ControlRegion, IsPrivateWhenTheMemoryCouldBeCutShort) {
    const ControlRegion agent = ControlRegion::create(1);
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ASSERT_EQ(::ftruncate(fd, 8192), 0);
    ASSERT_EQ(::pwrite(fd, &agent.header(), sizeof(ControlHeader), 0),
              static_cast<ssize_t>(sizeof(ControlHeader)));
    EXPECT_FALSE(ControlRegion::attach(agent.handover(fd), 0).shared());
    ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_TRUE(ControlRegion::attach(agent.handover(fd), 0).shared());
}

TEST(ControlRegion, KeepsItsFixedLayout) {
    EXPECT_EQ(sizeof(ControlPage), 4096U);
    EXPECT_EQ(offsetof(ControlHeader, abort_word), 24U);
    EXPECT_EQ(offsetof(ControlPage, step), 8U);
    EXPECT_EQ(offsetof(ControlPage, current), 32U);
    EXPECT_EQ(offsetof(ControlPage, ring_next), 64U);
    EXPECT_EQ(offsetof(ControlPage, ring), 72U);
}

}  // namespace
