// The memory orders by which ranks publish in the region, and how they sleep there. Here, and not
// where they are used, so that the model checker's models of the barrier and of a channel
// (tests/explorer/shm_model_test.cpp) have the very same.
#pragma once

#include "base/eventcount.hpp"

#include <atomic>
#include <cstdint>

namespace ddp::shm {

struct PhaseOrders {
    // What a rank wrote before it arrives, others read after they have seen that.
    std::memory_order arrive = std::memory_order_release;
    std::memory_order see_arrival = std::memory_order_acquire;
};

struct ChannelOrders {
    // The sender's chunk, for the receiver.
    std::memory_order write = std::memory_order_release;
    std::memory_order see_written = std::memory_order_acquire;
    // The receiver has read it: the sender may write there again.
    std::memory_order read = std::memory_order_release;
    std::memory_order see_read = std::memory_order_acquire;
};

inline constexpr PhaseOrders phase_orders;
inline constexpr ChannelOrders channel_orders;

// An eventcount in memory of several processes.
struct SharedEventcountPolicy : base::EventcountPolicy {
    static void heavy_fence() noexcept;  // waiter.cpp
    static void sleep(std::atomic<std::uint32_t>& word, std::uint32_t expected, Timeout timeout) {
        base::futex_wait(word, expected, base::FutexScope::shared, timeout);
    }
    static void wake_all(std::atomic<std::uint32_t>& word) {
        base::futex_wake_all(word, base::FutexScope::shared);
    }
};

}  // namespace ddp::shm
