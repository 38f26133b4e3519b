// The C++ blocks of docs/from_pytorch.md do what they say they do, as far as they can without GPUs:
// each runs to its end, as a world of one on four virtual devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "docs/blocks.hpp"

namespace {

// What each block must print, in the page's order; of an empty one it is enough that it ends well.
const std::vector<std::string> promised{
    "[15, 5]\n",
    "dtype=float64)\n",
    "4 devices, 0 GPUs\ncpu:3\n",
    "\tIn Model: input size [6, 5] output size [6, 2]\n",
    "Outside: input size [30, 5] output_size [30, 2]\n"
    "Outside: input size [30, 5] output_size [30, 2]\n"
    "Outside: input size [30, 5] output_size [30, 2]\n"
    "Outside: input size [10, 5] output_size [10, 2]\n",
    "output on cpu:1\n",
    "4 outputs, together [10, 2]\n",
    "DataParallel((module): Model((fc): Linear(in_features=5, out_features=2, bias=True)))\n"
    "Linear(in_features=5, out_features=2, bias=True)\n",
    "loss ",
    "output on cpu:3\n",
    "",  // training
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
    const auto& blocks = documented_blocks();
    ASSERT_EQ(blocks.size(), promised.size());
    namespace fs = std::filesystem;
    std::string folder = fs::temp_directory_path() / "ddp_docs_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    fs::current_path(folder);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        SCOPED_TRACE("docs/from_pytorch.md, line " + std::to_string(blocks[i].line));
        testing::internal::CaptureStdout();
        EXPECT_NO_THROW(EXPECT_EQ(blocks[i].run(), 0));
        EXPECT_THAT(testing::internal::GetCapturedStdout(), testing::HasSubstr(promised[i]));
    }
    fs::current_path("/");
    fs::remove_all(folder);
}
