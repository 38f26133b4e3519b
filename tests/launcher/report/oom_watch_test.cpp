// The kernel's counts, read from a made-up /proc and /sys, and what they prove.
#include "launcher/report/oom_watch.hpp"

#include "launcher/launch_fixture.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace ddp::launcher {
namespace {

class OomWatch : public ::testing::Test {
protected:
    void write(const std::string& path, const std::string& text) const {
        const std::filesystem::path full = folder_.path() + path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }
    OomCounts read() const { return read_oom_counts(folder_.path()); }

    const testing::TemporaryFolder folder_;
};

TEST_F(OomWatch, ReadsTheHostsCount) {
    write("/proc/vmstat", "nr_free_pages 5\noom_kill 7\noom_kill_other 9\n");
    EXPECT_EQ(read().host, 7);
    EXPECT_FALSE(read().cgroup);
}

TEST_F(OomWatch, ReadsTheCountOfACgroupOfTheSecondVersion) {
    write("/proc/self/cgroup", "0::/user/job\n");
    write("/sys/fs/cgroup/user/job/memory.events", "low 0\nhigh 1\noom 4\noom_kill 3\n");
    EXPECT_EQ(read().cgroup, 3);
}

TEST_F(OomWatch, ReadsTheCountOfACgroupOfTheFirstVersion) {
    for (const char* list : {"9:memory:/job\n0::/\n", "3:cpu,memory:/job\n"}) {
        write("/proc/self/cgroup", list);
        write("/sys/fs/cgroup/memory/job/memory.oom_control",
              "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n");
        EXPECT_EQ(read().cgroup, 2) << list;
    }
}

TEST_F(OomWatch, FindsTheCgroupAtTheMountInAContainer) {
    write("/proc/self/cgroup", "0::/docker/0123\n");
    write("/sys/fs/cgroup/memory.events", "oom_kill 1\n");
    EXPECT_EQ(read().cgroup, 1);
}

TEST_F(OomWatch, KnowsNothingWhereNothingCanBeRead) {
    EXPECT_FALSE(read().host);
    EXPECT_FALSE(read().cgroup);
    write("/proc/vmstat", "oom_kill many\n");
    write("/proc/self/cgroup", "0::/a\n");
    EXPECT_FALSE(read().host);
    EXPECT_FALSE(read().cgroup);
}

TEST(OomEvidence, IsACountThatRose) {
    EXPECT_EQ(compare({1, 5}, {2, 6}), OomEvidence::cgroup);
    EXPECT_EQ(compare({1, 5}, {1, 6}), OomEvidence::host);
    EXPECT_EQ(compare({{}, 5}, {{}, 6}), OomEvidence::host);
    EXPECT_EQ(compare({1, 5}, {1, 5}), OomEvidence::none);
    EXPECT_EQ(compare({1, {}}, {1, {}}), OomEvidence::unknown);
    EXPECT_EQ(compare({}, {3, 6}), OomEvidence::unknown) << "not known when the job began";
    EXPECT_EQ(compare({}, {}), OomEvidence::unknown);
}

}  // namespace
}  // namespace ddp::launcher
