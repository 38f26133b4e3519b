// The C++ blocks of docs/from_pytorch.md do what they say they do, as far as they can without GPUs:
// each runs to its end, as a world of one on four virtual devices.
#include <cstddef>

#include "docs/run_block.hpp"

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
    "Let's use 1 devices!\n",
    "next epoch 1\n",
    "loss 0.5\n",
    "46 samples, the first is ",
    "3 and 2 batches\n",
    "[30, 5] from row 0\n[30, 5] from row 30\n[30, 5] from row 60\n",
    "one two \nthree \n",
    "the same weights\n",
    "missing fc.weight, unexpected module.fc.weight\n",
    "from cpu:3 to cpu\n",
};

}  // namespace

TEST(FromPyTorch, BlocksRunAndPrintWhatTheyPromise) {
    use_four_devices();
    const auto& blocks = documented_blocks();
    ASSERT_EQ(blocks.size(), promised.size());
    const std::string folder = make_folder();
    std::filesystem::current_path(folder);
    for (std::size_t i = 0; i < blocks.size(); ++i) expect_block_prints(blocks[i], promised[i]);
    std::filesystem::current_path("/");
    std::filesystem::remove_all(folder);
}
