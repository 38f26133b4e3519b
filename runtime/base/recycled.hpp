// Recycled: for classes whose objects come and go one after another on the same thread, at a cost
// that a call of a few hundred nanoseconds would show. Each thread keeps the memory of its last few
// for the next. Derive from it; sizes above `block_bytes` are the heap's.
#pragma once

#include <array>
#include <cstddef>
#include <new>

namespace ddp::base {

// Of one thread.
struct SpareBlocks {
    std::array<void*, 4> blocks{};
    std::size_t count = 0;
    bool closed = false;  // the thread ends; objects may still do so after this one
    ~SpareBlocks() {
        closed = true;
        while (count > 0) ::operator delete(blocks[--count]);
    }
};

class Recycled {
public:
    static void* operator new(std::size_t bytes) {
        if (bytes > block_bytes) return ::operator new(bytes);
        if (spare_.count > 0) return spare_.blocks[--spare_.count];
        return ::operator new(block_bytes);
    }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        if (bytes <= block_bytes && !spare_.closed && spare_.count < spare_.blocks.size()) {
            spare_.blocks[spare_.count++] = memory;
        } else {
            ::operator delete(memory);
        }
    }

protected:
    Recycled() = default;
    ~Recycled() = default;

private:
    static constexpr std::size_t block_bytes = 256;
    static inline thread_local SpareBlocks spare_;
};

}  // namespace ddp::base
