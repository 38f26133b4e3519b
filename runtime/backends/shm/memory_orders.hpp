// The memory orders by which ranks publish in the region, and the eventcount at which they sleep.
// They are in one place so that the model checker's models of the barrier and of a channel
// (tests/explorer/shm_model_test.cpp) use the same. Invariant: weakening any of them makes a model
// fail.
#pragma once

#include "base/eventcount.hpp"

#include <atomic>
#include <cstdint>

namespace ddp::shm {

struct PhaseOrders {
    // A peer that has seen a rank arrive reads what that rank wrote before.
    std::memory_order arrive = std::memory_order_release;
    std::memory_order see_arrival = std::memory_order_acquire;
};

struct ChannelOrders {
    // The receiver reads the sender's chunk after it has seen the counter.
    std::memory_order write = std::memory_order_release;
    std::memory_order see_written = std::memory_order_acquire;
    // The sender overwrites a chunk after it has seen that the receiver has read it.
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
