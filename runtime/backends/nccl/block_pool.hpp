// BlockPool: memory for what one thread makes and another lets go, again and again
// (base/recycled.hpp is for what stays on its thread). Blocks that have been given back are kept
// until the pool goes, as many as were ever in use at once, so that a steady state asks the heap
// for nothing. Any thread.
#pragma once

#include "base/sanitizers.hpp"

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

namespace ddp::nccl {

class BlockPool {
public:
    // Not where AddressSanitizer looks for a use after the end: on the heap, not in kept blocks.
#ifdef DDP_SANITIZES_ADDRESSES
    static constexpr bool keeps_blocks = false;
#else
    static constexpr bool keeps_blocks = true;
#endif

    BlockPool() = default;
    ~BlockPool() {
        for (Free* first : free_) {
            while (first != nullptr) ::operator delete(std::exchange(first, first->next));
        }
    }
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // Aligned as operator new does. More than `largest` bytes are the heap's business.
    void* take(std::size_t bytes) {
        if (bytes > largest || !keeps_blocks) return ::operator new(bytes);
        {
            const std::lock_guard lock(mutex_);
            Free*& first = free_[size_class(bytes)];
            if (first != nullptr) return std::exchange(first, first->next);
        }
        return ::operator new((size_class(bytes) + 1) * step);
    }
    void give_back(void* memory, std::size_t bytes) noexcept {
        if (bytes > largest || !keeps_blocks) return ::operator delete(memory);
        const std::lock_guard lock(mutex_);
        Free*& first = free_[size_class(bytes)];
        first = new (memory) Free{first};
    }

private:
    struct Free {
        Free* next;
    };
    static constexpr std::size_t step = 64;
    static constexpr std::size_t largest = 1024;
    static std::size_t size_class(std::size_t bytes) { return bytes == 0 ? 0 : (bytes - 1) / step; }

    std::mutex mutex_;
    std::array<Free*, largest / step> free_{};
};

// For std::allocate_shared and containers. The pool lives as long as anything allocated from it.
template <class T>
class PoolAllocator {
public:
    using value_type = T;

    explicit PoolAllocator(std::shared_ptr<BlockPool> pool) noexcept : pool_(std::move(pool)) {}
    template <class U>
    PoolAllocator(const PoolAllocator<U>& other) noexcept : pool_(other.pool()) {}

    T* allocate(std::size_t count) { return static_cast<T*>(pool_->take(count * sizeof(T))); }
    void deallocate(T* memory, std::size_t count) noexcept {
        pool_->give_back(memory, count * sizeof(T));
    }
    const std::shared_ptr<BlockPool>& pool() const noexcept { return pool_; }
    template <class U>
    bool operator==(const PoolAllocator<U>& other) const noexcept {
        return pool_ == other.pool();
    }

private:
    std::shared_ptr<BlockPool> pool_;
};

}  // namespace ddp::nccl
