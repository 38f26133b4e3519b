// The blocks of docs/from_pytorch.md with LibTorch, alone and at two ranks.
#include <ddp/testing.hpp>

#include "docs/run_block.hpp"

namespace {

std::string outside(const std::string& rows) {
    return "Outside: input size [" + rows + ", 5] output_size [" + rows + ", 2]\n";
}

}  // namespace

TEST(FromPyTorch, LibTorchBlockRunsAlone) {
    ASSERT_EQ(documented_blocks().size(), 1U);
    expect_block_prints(documented_blocks()[0], outside("30") + outside("30") + outside("30"));
}

TEST(FromPyTorch, LibTorchBlockRunsAtTwoRanks) {
    ASSERT_EQ(documented_blocks().size(), 1U);
    const auto body = [](auto&, const auto&) {  // the block joins by itself
        expect_block_prints(documented_blocks()[0], outside("30") + outside("15"));
    };
    for (const auto& failure : ddp::testing::failures_of_ranks(2, body)) {
        ADD_FAILURE() << "rank " << failure.rank << ": " << failure.message;
    }
}
