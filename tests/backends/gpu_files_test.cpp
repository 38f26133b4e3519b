// What a host's files and environment say of GPUs, in made-up folders.
#include "backends/selection/gpu_files.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace {

using namespace ddp::backends;
using ::testing::HasSubstr;

namespace fs = std::filesystem;

class GpuFiles : public ::testing::Test {
protected:
    GpuFiles() {
        std::string name = ::testing::TempDir() + "ddp-gpu-files-XXXXXX";
        root_ = ::mkdtemp(name.data());
        fs::create_directory(root_ / "dev");
        fs::create_directory(root_ / "lib");
    }
    ~GpuFiles() override { fs::remove_all(root_); }

    void make(const std::string& name) { std::ofstream(root_ / name) << ""; }
    GpuSearchPaths paths() const {
        return {.devices = (root_ / "dev").string(),
                .libraries = {(root_ / "nowhere").string(), (root_ / "lib").string()}};
    }
    std::string in_dev(const std::string& words) const { return paths().devices + "/" + words; }

private:
    fs::path root_;
};

TEST_F(GpuFiles, OfLinuxDriverAreItsControlFile) {
    make("dev/nvidia0");
    EXPECT_NE(describe_missing_driver(paths()), "");
    make("dev/nvidiactl");
    EXPECT_EQ(describe_missing_driver(paths()), "");
}

TEST_F(GpuFiles, OfWslAreItsDeviceAndTheDriversLibrary) {
    EXPECT_EQ(describe_missing_driver(paths()), "no driver: there is no " + in_dev("nvidiactl"));
    make("dev/dxg");
    EXPECT_NE(describe_missing_driver(paths()), "") << "another vendor's GPU";
    EXPECT_THAT(describe_missing_driver(paths()), HasSubstr("dxg without NVIDIA's libcuda.so.1"));
    EXPECT_EQ(find_request_for_gpus(nullptr, paths()), "");
    make("lib/libcuda.so.1");
    EXPECT_EQ(describe_missing_driver(paths()), "");
    EXPECT_EQ(find_request_for_gpus(nullptr, paths()),
              in_dev("dxg") + " and libcuda.so.1 are there");
}

TEST_F(GpuFiles, WithoutADeviceTheLibraryIsNoDriver) {
    make("lib/libcuda.so.1");
    EXPECT_NE(describe_missing_driver(paths()), "");
    EXPECT_EQ(find_request_for_gpus(nullptr, paths()), "");
}

TEST_F(GpuFiles, AskForGpusByTheirNumbers) {
    for (const char* name : {"nvidia-uvm", "nvidia", "nvidiactl", "nvme0"}) {
        make(std::string("dev/") + name);
    }
    EXPECT_EQ(find_request_for_gpus(nullptr, paths()), "");
    for (const char* name : {"nvidia12", "nvidia3"}) make(std::string("dev/") + name);
    EXPECT_EQ(find_request_for_gpus(nullptr, paths()), in_dev("nvidia3 is there"));
    EXPECT_EQ(find_request_for_gpus(nullptr, {.devices = in_dev("nowhere"), .libraries = {}}), "");
}

TEST_F(GpuFiles, AreAskedForByTheVariableOrHiddenByIt) {
    EXPECT_EQ(find_request_for_gpus("0,1", paths()), "CUDA_VISIBLE_DEVICES is 0,1");
    make("dev/nvidia0");
    EXPECT_EQ(find_request_for_gpus("", paths()), "");
    EXPECT_EQ(find_request_for_gpus("-1", paths()), "");
    EXPECT_EQ(find_request_for_gpus("NoDevFiles", paths()), "");
    EXPECT_EQ(find_request_for_gpus("GPU-1b2c", paths()), "CUDA_VISIBLE_DEVICES is GPU-1b2c");
}

}  // namespace
