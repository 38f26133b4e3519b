// CUDA_VISIBLE_DEVICES as a table, device files in a folder, and the text for reports.
#include "launcher/plan/visible_gpus.hpp"

#include "launcher/launch_fixture.hpp"
#include "launcher/parse_words.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

namespace ddp::launcher {
namespace {

using Entries = std::vector<std::string>;

struct Row {
    const char* text;
    std::optional<std::size_t> devices;
    Entries expected;
};

TEST(VisibleGpus, TheVariableIsReadAsCudaReadsIt) {
    const std::vector<Row> rows{
        {"0,1", 4, {"0", "1"}},
        {"1, 3", 4, {"1", "3"}},
        {"3,0", 4, {"3", "0"}},
        {"0,9,1", 4, {"0"}},
        {"0,9,1", std::nullopt, {"0", "9", "1"}},
        {"9", 4, {}},
        {"", 4, {}},
        {" ", 4, {}},
        {"-1", 4, {}},
        {"0,-1,1", 4, {"0"}},
        {"0,,1", 4, {"0"}},
        {"NoDevFiles", 4, {}},
        {"none", 4, {}},
        {"1gpu2,2amps", 4, {"1", "2"}},
        {"0,1,0", 4, {}},
        {"00,0", 4, {}},
        {"99999999999999999999999", std::nullopt, {}},
        {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
         4,
         {"GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"}},
        {"GPU-89,GPU-ab", 4, {"GPU-89", "GPU-ab"}},
        {"GPU-89,GPU-89", 4, {}},
        {"GPU-89,0", 4, {"GPU-89"}},
        {"0,GPU-89", 4, {"0"}},
        {"GPU-", 4, {}},
        {"MIG-41b36325-2b3c-5f2c-9c3a-1d5f0a7e2a10",
         1,
         {"MIG-41b36325-2b3c-5f2c-9c3a-1d5f0a7e2a10"}},
        {"MIG-a,MIG-b", 1, {"MIG-a", "MIG-b"}},
        {"MIG-GPU-89/1/0,MIG-GPU-89/2/0", 1, {"MIG-GPU-89/1/0", "MIG-GPU-89/2/0"}},
    };
    for (const Row& row : rows) {
        EXPECT_EQ(parse_visible_devices(row.text, row.devices), row.expected) << row.text;
    }
}

TEST(VisibleGpus, DeviceFilesHaveNumbers) {
    const testing::TemporaryFolder folder;
    const auto make = [&](const std::string& name) { std::ofstream(folder.path() + "/" + name); };
    for (const char* name : {"nvidia0", "nvidia3", "nvidia12", "nvidia", "nvidia-uvm", "nvme0"}) {
        make(name);
    }
    EXPECT_EQ(count_device_files(folder.path()), 0U) << "a driver has its control file";
    make("nvidiactl");
    EXPECT_EQ(count_device_files(folder.path()), 3U);
    EXPECT_EQ(count_device_files(folder.path() + "/nowhere"), 0U);
}

TEST(VisibleGpus, TheVariableShowsNoneWhenItIsEmpty) {
    const testing::Environment none{{"CUDA_VISIBLE_DEVICES", ""}};
    EXPECT_EQ(visible_gpus(testing::lookup_in(none)), Entries{});
}

// A folder of device files, and WSL's of libraries, with a stand-in for nvidia-smi.
class GpusOfAHost : public ::testing::Test {
protected:
    void make_device(const std::string& name) const { std::ofstream(devices_.path() + "/" + name); }
    void make_wsl(const std::string& nvidia_smi) const {
        make_device("dxg");
        std::ofstream(library_.path() + "/libcuda.so.1");
        const std::string path = library_.path() + "/nvidia-smi";
        std::ofstream(path) << "#!/bin/sh\n" << nvidia_smi;
        EXPECT_EQ(::chmod(path.c_str(), 0755), 0);
    }
    Entries visible(const testing::Environment& environment) const {
        return visible_gpus(testing::lookup_in(environment), paths());
    }
    Entries listed(const testing::Environment& environment) const {
        return listed_gpus(testing::lookup_in(environment), paths());
    }
    GpuPaths paths() const { return {devices_.path(), library_.path()}; }

    const testing::Environment three_{{"CUDA_VISIBLE_DEVICES", "0,1,2"}};
    testing::TemporaryFolder devices_;
    testing::TemporaryFolder library_;
};

const std::string lists_two_gpus = "echo 'GPU 0: A (UUID: GPU-a)'; echo 'GPU 1: B (UUID: GPU-b)'\n";

TEST_F(GpusOfAHost, AreNoneWithoutDevicesWhateverTheVariableSays) {
    EXPECT_EQ(visible(three_), Entries{});
    EXPECT_EQ(visible({{"CUDA_VISIBLE_DEVICES", "GPU-89"}}), Entries{});
    EXPECT_EQ(visible({}), Entries{});
    EXPECT_EQ(listed(three_), (Entries{"0", "1", "2"}));
}

TEST_F(GpusOfAHost, AreItsDeviceFilesAndTheVariableChoosesAmongThem) {
    for (const char* name : {"nvidiactl", "nvidia0", "nvidia1"}) make_device(name);
    EXPECT_EQ(visible({}), (Entries{"0", "1"}));
    EXPECT_EQ(visible(three_), (Entries{"0", "1"}));
    EXPECT_EQ(visible({{"CUDA_VISIBLE_DEVICES", "1"}}), Entries{"1"});
    EXPECT_EQ(listed(three_), visible(three_));
}

TEST_F(GpusOfAHost, UnderWslAreThoseThatNvidiaSmiLists) {
    make_wsl(lists_two_gpus);
    EXPECT_EQ(visible({}), (Entries{"0", "1"}));
    EXPECT_EQ(visible(three_), (Entries{"0", "1"}));
    EXPECT_EQ(visible({{"CUDA_VISIBLE_DEVICES", ""}}), Entries{});
}

TEST_F(GpusOfAHost, UnderWslAreBelievedWhenNvidiaSmiFails) {
    make_wsl("exit 9\n");
    EXPECT_EQ(count_gpus(paths()), std::nullopt);
    EXPECT_EQ(visible(three_), (Entries{"0", "1", "2"}));
    EXPECT_EQ(visible({}), Entries{});
}

TEST_F(GpusOfAHost, AreNotAskedForWhereTheDriverIsNoWslOne) {
    make_wsl(lists_two_gpus);
    ASSERT_EQ(::unlink((library_.path() + "/libcuda.so.1").c_str()), 0);
    EXPECT_EQ(count_gpus(paths()), 0U);
    EXPECT_EQ(visible(three_), Entries{});
}

// The report of a failure waits for no child.
TEST_F(GpusOfAHost, AreListedWithoutNvidiaSmi) {
    make_wsl("touch " + devices_.path() + "/asked\n");
    EXPECT_EQ(listed(three_), (Entries{"0", "1", "2"}));
    EXPECT_NE(::access((devices_.path() + "/asked").c_str(), F_OK), 0);
}

TEST(VisibleGpus, ReportsNameTheGpuOfALocalRank) {
    const Entries gpus{"1", "GPU-89", "MIG-a"};
    Options options;
    EXPECT_EQ(gpu_of(options, gpus, 0), "cuda:0 = GPU 1");
    EXPECT_EQ(gpu_of(options, gpus, 1), "cuda:1 = GPU-89");
    EXPECT_EQ(gpu_of(options, gpus, 2), "cuda:2 = MIG-a");
    EXPECT_EQ(gpu_of(options, gpus, 3), "");
    options.program.virtual_local_rank = true;
    EXPECT_EQ(gpu_of(options, gpus, 1), "cuda:0 = GPU-89");
}

}  // namespace
}  // namespace ddp::launcher
