// Recycled: for classes whose objects come and go one after another on the same thread, at a cost
// that a call of a few hundred nanoseconds would show. Each thread keeps the memory of its last few
// for the next. Derive from it, or give RecyclingAllocator to what allocates; sizes above
// `block_bytes` are the heap's. AddressSanitizer finds what uses a block that is kept.
#pragma once

#include "base/sanitizers.hpp"

#include <array>
#include <cstddef>
#include <new>

#ifdef DDP_SANITIZES_ADDRESSES
#include <sanitizer/asan_interface.h>
#endif

namespace ddp::base {

// Of one thread. Nothing to construct and nothing to destroy, so that no use has to check whether
// that has been done; the thread's `keeper_` frees the blocks.
struct FreeBlocks {
    std::array<void*, 8> blocks{};
    std::size_t count = 0;
    std::size_t capacity = 0;  // 0 before the thread's keeper is registered, and after its end
    bool closed = false;       // the thread ends; objects may still be deleted after this
};

class Recycled {
public:
    static void* operator new(std::size_t bytes) {
        if (bytes > block_bytes) return ::operator new(bytes);
        if (free_blocks_.count > 0) return take_block();
        if (!free_blocks_.closed) keeper_.register_thread();
        return ::operator new(block_bytes);
    }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        if (bytes <= block_bytes && free_blocks_.count < free_blocks_.capacity) {
            free_blocks_.blocks[free_blocks_.count++] = memory;
            poison(memory);
        } else {
            ::operator delete(memory);
        }
    }

protected:
    Recycled() = default;
    ~Recycled() = default;

private:
    static constexpr std::size_t block_bytes = 256;
    static void* take_block() noexcept {
        void* const block = free_blocks_.blocks[--free_blocks_.count];
        unpoison(block);
        return block;
    }
#ifdef DDP_SANITIZES_ADDRESSES
    static void poison(void* block) noexcept { __asan_poison_memory_region(block, block_bytes); }
    static void unpoison(void* block) noexcept {
        __asan_unpoison_memory_region(block, block_bytes);
    }
#else
    static void poison(void*) noexcept {}
    static void unpoison(void*) noexcept {}
#endif
    struct Keeper {
        ~Keeper() {
            free_blocks_.closed = true;
            free_blocks_.capacity = 0;
            while (free_blocks_.count > 0) ::operator delete(take_block());
        }
        void register_thread() noexcept { free_blocks_.capacity = free_blocks_.blocks.size(); }
    };

    static inline constinit thread_local FreeBlocks free_blocks_;
    static inline thread_local Keeper keeper_;
};

// For std::allocate_shared and small vectors.
template <class T>
class RecyclingAllocator {
public:
    using value_type = T;
    static_assert(alignof(T) <= __STDCPP_DEFAULT_NEW_ALIGNMENT__);

    RecyclingAllocator() = default;
    template <class U>
    explicit(false) RecyclingAllocator(const RecyclingAllocator<U>&) noexcept {}

    T* allocate(std::size_t count) {
        if (count > std::size_t(-1) / sizeof(T)) throw std::bad_array_new_length();
        return static_cast<T*>(Recycled::operator new(count * sizeof(T)));
    }
    void deallocate(T* memory, std::size_t count) noexcept {
        Recycled::operator delete(memory, count * sizeof(T));
    }
    friend bool operator==(const RecyclingAllocator&, const RecyclingAllocator&) = default;
};

}  // namespace ddp::base
