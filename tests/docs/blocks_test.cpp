// The C++ blocks of docs/from_pytorch.md do what they say they do, as far as they can without GPUs:
// each runs to its end, as a world of one on four virtual devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "docs/blocks.hpp"

namespace {

// What a block must print, by a line of it; the rest need only end well.
const std::vector<std::string> promised{
    "[15, 5]\n",
    "dtype=float64)\n",
    "4 devices, 0 GPUs\ncpu:3\n",
    "Outside: input size [30, 5] output_size [30, 2]\n",
    "Outside: input size [10, 5] output_size [10, 2]\n",
    "DataParallel((module): Model((fc): Linear(in_features=5, out_features=2, bias=True)))\n"
    "Linear(in_features=5, out_features=2, bias=True)\n",
    "60\n",
    "rank 0 of 1, here 0 of 1, on cpu\n",
    "next epoch 1\n",
    "loss 0.5\n",
    "46 samples, the first is ",
    "3 and 2 batches\n",
    "[30, 5] from row 0\n[30, 5] from row 30\n[30, 5] from row 60\n",
    "one two \nthree \n",
};

}  // namespace

TEST(FromPyTorch, BlocksRunAndPrintWhatTheyPromise) {
    ::setenv("DDP_CPU_DEVICES", "4", 1);
    ::setenv("CUDA_VISIBLE_DEVICES", "", 1);
    namespace fs = std::filesystem;
    std::string folder = fs::temp_directory_path() / "ddp_docs_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    fs::current_path(folder);
    std::string printed;
    for (const DocumentedBlock& block : documented_blocks()) {
        SCOPED_TRACE("docs/from_pytorch.md, line " + std::to_string(block.line));
        testing::internal::CaptureStdout();
        EXPECT_NO_THROW(EXPECT_EQ(block.run(), 0));
        printed += testing::internal::GetCapturedStdout();
    }
    fs::current_path("/");
    fs::remove_all(folder);
    for (const std::string& text : promised) EXPECT_THAT(printed, testing::HasSubstr(text));
}
