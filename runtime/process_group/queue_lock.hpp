// The lock of a queue: held for some tens of nanoseconds, several times in each blocking call of a
// few hundred, where a mutex's second atomic operation would show. A thread that finds it taken
// yields, as the holder may have lost its core.
#pragma once

#include <atomic>
#include <chrono>
#include <thread>

namespace ddp::process_group {

class QueueLock {
public:
    void lock() noexcept {
        for (int tries = 0; taken_.exchange(true, std::memory_order_acquire); ++tries) {
            back_off(tries);
        }
    }
    // After that many fruitless looks at what another thread is about to store.
    static void back_off(int tries) noexcept {
        if (tries < 100) {
            std::this_thread::yield();
        } else {  // a thread of lower priority gets no core from a yield
            std::this_thread::sleep_for(std::chrono::microseconds{50});
        }
    }
    void unlock() noexcept { taken_.store(false, std::memory_order_release); }

private:
    std::atomic<bool> taken_{false};
};

}  // namespace ddp::process_group
