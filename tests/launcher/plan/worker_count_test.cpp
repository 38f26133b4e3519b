// What is counted, and cgroups as files below a folder of the test's own.
#include "launcher/plan/worker_count.hpp"

#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <filesystem>
#include <fstream>

namespace ddp::launcher {
namespace {

using ::testing::HasSubstr;

HostCounts host(int cpus, int gpus) {
    return {.cpus = [cpus] { return cpus; }, .gpus = [gpus] { return gpus; }};
}

TEST(WorkerCount, ANumberIsTakenAndWordsAreCounted) {
    EXPECT_EQ(count_workers({}, host(8, 4)), 1);
    EXPECT_EQ(count_workers({CountOf::number, 3}, host(8, 4)), 3);
    EXPECT_EQ(count_workers({CountOf::cpus}, host(8, 4)), 8);
    EXPECT_EQ(count_workers({CountOf::gpus}, host(8, 4)), 4);
    EXPECT_EQ(count_workers({CountOf::gpus_else_cpus}, host(8, 4)), 4);
    EXPECT_EQ(count_workers({CountOf::gpus_else_cpus}, host(8, 0)), 8);
}

TEST(WorkerCount, NoGpuIsAnErrorWhereGpusAreAskedFor) {
    try {
        count_workers({CountOf::gpus}, host(8, 0));
        ADD_FAILURE() << "no error";
    } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--nproc-per-node: \"gpu\""));
        EXPECT_THAT(error.what(), HasSubstr("CUDA_VISIBLE_DEVICES"));
    }
}

class CpuQuota : public ::testing::Test {
protected:
    void write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = folder_.path() + name;
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    double quota() const { return cpu_quota(folder_.path()); }

    testing::TemporaryFolder folder_;
};

TEST_F(CpuQuota, IsNoneWithoutCgroups) {
    EXPECT_EQ(quota(), 0);
    write("/proc/self/cgroup", "nonsense\n::\n");
    EXPECT_EQ(quota(), 0);
}

TEST_F(CpuQuota, OfVersion2IsTheSmallestOnTheWayUp) {
    write("/proc/self/cgroup", "0::/slice/job\n");
    write("/sys/fs/cgroup/slice/job/cpu.max", "max 100000\n");
    EXPECT_EQ(quota(), 0);
    write("/sys/fs/cgroup/slice/cpu.max", "250000 100000\n");
    EXPECT_EQ(quota(), 2.5);
    write("/sys/fs/cgroup/slice/job/cpu.max", "400000 100000\n");
    EXPECT_EQ(quota(), 2.5);
    write("/sys/fs/cgroup/slice/job/cpu.max", "150000 100000\n");
    EXPECT_EQ(quota(), 1.5);
}

TEST_F(CpuQuota, InAContainerIsThatOfTheMount) {
    write("/proc/self/cgroup", "0::/somewhere/on/the/host\n");
    write("/sys/fs/cgroup/cpu.max", "300000 100000\n");
    EXPECT_EQ(quota(), 3);
}

TEST_F(CpuQuota, OfVersion1HasTwoFiles) {
    write("/proc/self/cgroup", "4:memory:/job\n3:cpu,cpuacct:/job\n2:cpuset:/\n");
    write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(quota(), 0);
    write("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
    write("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
    EXPECT_EQ(quota(), 2);
}

TEST_F(CpuQuota, CutsTheAffinityToWholeCpus) {
    const int all = usable_cpus(folder_.path());
    cpu_set_t set;
    ASSERT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(all, CPU_COUNT(&set));
    write("/proc/self/cgroup", "0::/\n");
    write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
    EXPECT_EQ(usable_cpus(folder_.path()), 1);
    write("/sys/fs/cgroup/cpu.max", "99999900000 100000\n");
    EXPECT_EQ(usable_cpus(folder_.path()), all);
}

}  // namespace
}  // namespace ddp::launcher
