// Memory that goes from thread to thread and comes back.
#include "backends/nccl/block_pool.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <thread>
#include <vector>

namespace {

using ddp::nccl::BlockPool;
using ddp::nccl::PoolAllocator;

TEST(BlockPool, GivesAgainWhatCameBack) {
    if (!BlockPool::keeps_blocks) GTEST_SKIP() << "all is the heap's under AddressSanitizer";
    BlockPool pool;
    void* const small = pool.take(100);
    void* const large = pool.take(1000);
    pool.give_back(small, 100);
    pool.give_back(large, 1000);
    EXPECT_EQ(pool.take(128), small);  // of the same 64 bytes' class
    EXPECT_EQ(pool.take(1000), large);
    pool.give_back(small, 128);
    pool.give_back(large, 1000);
}

TEST(BlockPool, GivesEachItsOwnBytes) {
    BlockPool pool;
    for (int round = 0; round < 2; ++round) {
        std::vector<std::pair<unsigned char*, std::size_t>> all;
        for (std::size_t bytes = 0; bytes < 2048; bytes += 13) {
            auto* const block = static_cast<unsigned char*>(pool.take(bytes));
            std::memset(block, static_cast<int>(bytes % 251), bytes);
            all.emplace_back(block, bytes);
        }
        for (const auto& [block, bytes] : all) {
            for (std::size_t i = 0; i < bytes; ++i) ASSERT_EQ(block[i], bytes % 251);
            pool.give_back(block, bytes);
        }
    }
}

TEST(BlockPool, LivesAsLongAsWhatIsOfIt) {
    std::shared_ptr<int> last;
    {
        const PoolAllocator<int> allocator(std::make_shared<BlockPool>());
        last = std::allocate_shared<int>(allocator, 7);
    }
    EXPECT_EQ(*last, 7);
}

TEST(BlockPool, TakesFromOneThreadWhatItGaveAnother) {
    const PoolAllocator<int> allocator(std::make_shared<BlockPool>());
    std::deque<std::shared_ptr<int>, PoolAllocator<std::shared_ptr<int>>> queue(allocator);
    for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 100; ++i) queue.push_back(std::allocate_shared<int>(allocator, i));
        std::thread([&] {
            for (int i = 0; i < 100; ++i) {
                EXPECT_EQ(*queue.front(), i);
                queue.pop_front();
            }
        }).join();
    }
}

}  // namespace
