// The control region: an agent and a worker see the same memory; a worker that is handed nonsense
// goes on alone.
#include "contract/control_page.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <limits>
#include <string>

namespace {

using namespace std::chrono_literals;
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

TEST(ControlRegion, HasARingForEachRankWhereItIsMadeSo) {
    const ControlRegion agent = ControlRegion::create(3, 16);
    const ControlRegion worker = ControlRegion::attach(hand_over(agent), 2);
    ASSERT_TRUE(worker.shared());
    ASSERT_TRUE(worker.own_timeline().is_on());
    worker.own_timeline().add({.number = 5});
    EXPECT_EQ(agent.timeline(2).read().kept.size(), 1U);
    EXPECT_EQ(agent.timeline(1).read().kept.size(), 0U);
    agent.page(2).step.store(4);
    EXPECT_EQ(worker.own_page().step.load(), 4);
}

TEST(ControlRegion, IsPrivateWhereTheRingsAreNotThoseOfItsSize) {
    const ControlRegion agent = ControlRegion::create(3, 16);
    for (const char* const entries :
         {"", ":", ":0", ":15", ":17", ":x", ":16x", ":-1", ":2000000", ":99999999999999999999"}) {
        std::string value = hand_over(agent);
        value = value.substr(0, value.rfind(':')) + entries;
        EXPECT_FALSE(ControlRegion::attach(value, 0).shared()) << value;
    }
    EXPECT_FALSE(ControlRegion::attach("", 0).own_timeline().is_on());
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
    ASSERT_EQ(::ftruncate(fd, control_header_bytes + control_page_bytes), 0);
    ASSERT_EQ(::pwrite(fd, &agent.header(), sizeof(ControlHeader), 0),
              static_cast<ssize_t>(sizeof(ControlHeader)));
    EXPECT_FALSE(ControlRegion::attach(agent.handover(fd), 0).shared());
    ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    EXPECT_TRUE(ControlRegion::attach(agent.handover(fd), 0).shared());
}

TEST(ControlRegion, IsPrivateWhenItIsOfAnotherVersion) {
    const ControlRegion agent = ControlRegion::create(1);
    agent.header().version = control_version - 1;
    EXPECT_FALSE(ControlRegion::attach(hand_over(agent), 0).shared());
}

std::int64_t in_nanoseconds(std::chrono::steady_clock::time_point time) {
    return std::chrono::nanoseconds(time.time_since_epoch()).count();
}

TEST(ControlRegion, ItsLeaseHoldsWhileItLastsForLongerThanTheMargin) {
    const std::chrono::steady_clock::time_point now{100s};
    const ControlRegion region = ControlRegion::create(1);
    struct {
        std::int64_t end;
        bool holds;
        const char* why;
    } const table[] = {
        {0, true, "a job of one host"},
        {in_nanoseconds(now + 5s), true, "in the future"},
        {in_nanoseconds(now + lease_margin + 1ns), true, "just long enough"},
        {in_nanoseconds(now + lease_margin), false, "too short for a system call"},
        {in_nanoseconds(now), false, "ends now"},
        {in_nanoseconds(now - 5s), false, "has ended"},
        {1, false, "ended when the clock began"},
        {-1, false, "written over"},
        {std::numeric_limits<std::int64_t>::min(), false, "written over"},
        {std::numeric_limits<std::int64_t>::max(), true, "written over"},
    };
    for (const auto& row : table) {
        region.header().lease_end_ns.store(row.end);
        EXPECT_EQ(region.lease_holds(now), row.holds) << row.why;
    }
}

TEST(ControlRegion, ALeaseIsReadFromTheClockThatTheAgentUses) {
    timespec now{};
    ASSERT_EQ(::clock_gettime(CLOCK_MONOTONIC, &now), 0);
    const std::int64_t ns = now.tv_sec * 1'000'000'000LL + now.tv_nsec;
    EXPECT_NEAR(static_cast<double>(in_nanoseconds(std::chrono::steady_clock::now()) - ns), 0, 5e9);
}

TEST(ControlRegion, OfNoAgentAlwaysHoldsItsLease) {
    const ControlRegion alone = ControlRegion::attach(std::nullopt, 0);
    EXPECT_TRUE(alone.lease_holds(std::chrono::steady_clock::time_point::max() - 1h));
}

TEST(RegionOfProcess, IsAttachedOnceAndTellsWhetherTheLeaseHolds) {
    EXPECT_TRUE(lease_holds());
    EXPECT_FALSE(region_of_process(std::nullopt, 0)->shared());
    const ControlRegion agent = ControlRegion::create(1);
    const std::string handed_over = hand_over(agent);
    const auto worker = region_of_process(handed_over, 0);
    ASSERT_TRUE(worker->shared());
    EXPECT_EQ(region_of_process(handed_over, 0), worker);
    EXPECT_TRUE(lease_holds());
    const auto now = std::chrono::steady_clock::now();
    agent.header().lease_end_ns.store(in_nanoseconds(now + 1h));
    EXPECT_TRUE(lease_holds());
    agent.header().lease_end_ns.store(in_nanoseconds(now));
    EXPECT_FALSE(lease_holds());
    agent.header().lease_end_ns.store(0);
    EXPECT_TRUE(lease_holds());
}

TEST(ControlRegion, IsPrivateWhenItsPagesAreOfAnotherSize) {
    const ControlRegion agent = ControlRegion::create(1);
    agent.header().page_bytes = control_page_bytes / 2;
    EXPECT_FALSE(ControlRegion::attach(hand_over(agent), 0).shared());
}

TEST(ControlRegion, KeepsItsFixedLayout) {
    EXPECT_EQ(sizeof(ControlPage), 8192U);
    EXPECT_EQ(offsetof(ControlHeader, version), 8U);
    EXPECT_EQ(offsetof(ControlHeader, abort_word), 24U);
    EXPECT_EQ(offsetof(ControlHeader, page_bytes), 28U);
    EXPECT_EQ(offsetof(ControlHeader, lease_end_ns), 32U);
    EXPECT_EQ(offsetof(ControlPage, step), 8U);
    EXPECT_EQ(offsetof(ControlPage, recorded), 32U);
    EXPECT_EQ(offsetof(ControlPage, groups), 64U);
    EXPECT_EQ(offsetof(ControlPage, operations), 1216U);
    EXPECT_EQ(offsetof(ControlPage, files_used), 5312U);
}

}  // namespace
