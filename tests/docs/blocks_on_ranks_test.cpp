// The blocks of docs/from_pytorch.md about DistributedDataParallel at two ranks.
#include <ddp/testing.hpp>

#include <array>
#include <cstddef>

#include "docs/run_block.hpp"

namespace {

// What rank 0 and rank 1 print, in the page's order.
const std::vector<std::array<std::string, 2>> promised{
    {"", ""},  // training
    {"60\n", "60\n"},
    {"rank 0 of 2, here 0 of 2, on cpu", "rank 1 of 2, here 1 of 2, on cpu"},
    {"Let's use 2 devices!\n", ""},
    {"next epoch 1\n", "next epoch 1\n"},
    {"loss 0.5\n", "loss 0.5\n"},
};

void run_blocks_of_rank(const std::string& folder, std::size_t rank) {
    use_four_devices();
    std::filesystem::current_path(folder);
    const auto blocks = blocks_of_section("DistributedDataParallel: a process for each device");
    ASSERT_EQ(blocks.size(), promised.size());
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        expect_block_prints(blocks[i], promised[i][rank]);
    }
}

}  // namespace

TEST(FromPyTorch, BlocksOfDistributedDataParallelRunAtTwoRanks) {
    const std::string folder = ddp::testing::made_once(make_folder);
    const auto body = [&](auto&, const auto&) {  // each block joins by itself
        run_blocks_of_rank(folder, static_cast<std::size_t>(ddp::worker_env().rank));
    };
    for (const auto& failure : ddp::testing::failures_of_ranks(2, body)) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
    std::filesystem::remove_all(folder);
}
