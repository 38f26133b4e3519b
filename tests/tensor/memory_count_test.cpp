// Bytes of tensors on each device: now, at most, and from many threads.
#include <gtest/gtest.h>

#include <ddp/memory.hpp>
#include <ddp/tensor_functions.hpp>

#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using namespace ddp;

class MemoryCount : public ::testing::Test {
protected:
    MemoryCount() {
        ::setenv("DDP_CPU_DEVICES", "3", 1);
        reset_peak_memory_stats(device_);
    }
    ~MemoryCount() override { ::unsetenv("DDP_CPU_DEVICES"); }
    static Tensor bytes(std::int64_t count) {
        return empty({count}, {.device = device_, .dtype = DType::uint8});
    }
    static constexpr Device device_{DeviceType::cpu, 2};
};

}  // namespace

TEST_F(MemoryCount, FollowsTheLastOwner) {
    const std::size_t others = memory_allocated(Device{});
    EXPECT_EQ(memory_allocated(device_), 0U);
    {
        const Tensor part = bytes(1000).narrow(0, {10, 1});
        EXPECT_EQ(memory_allocated(device_), 1000U);
        const Tensor copy = part.clone();
        EXPECT_EQ(memory_allocated(device_), 1001U);
    }
    EXPECT_EQ(memory_allocated(device_), 0U);
    EXPECT_EQ(memory_allocated(Device{}), others);
}

TEST_F(MemoryCount, KeepsThePeakUntilItIsReset) {
    { const std::vector<Tensor> two{bytes(300), bytes(400)}; }
    EXPECT_EQ(max_memory_allocated(device_), 700U);
    const Tensor one = bytes(100);
    EXPECT_EQ(max_memory_allocated(device_), 700U);
    reset_peak_memory_stats(device_);
    EXPECT_EQ(max_memory_allocated(device_), 100U);
    const Tensor moved = bytes(50).to(Device{});
    EXPECT_EQ(max_memory_allocated(device_), 150U);
}

TEST_F(MemoryCount, CountsManyThreads) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
        threads.emplace_back([] {
            for (int round = 0; round < 1000; ++round) bytes(10);
        });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(memory_allocated(device_), 0U);
    EXPECT_GE(max_memory_allocated(device_), 10U);
    EXPECT_LE(max_memory_allocated(device_), 40U);
}
