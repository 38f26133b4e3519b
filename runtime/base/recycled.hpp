// Recycled: for classes whose objects come and go one after another on the same thread, at a cost
// that a call of a few hundred nanoseconds would show. Each thread keeps the memory of its last few
// for the next. Derive from it; sizes above `block_bytes` are the heap's.
#pragma once

#include <array>
#include <cstddef>
#include <new>

namespace ddp::base {

// Of one thread. Nothing to construct and nothing to destroy, so that each use needs no look
// whether that has been done; the blocks go with the thread's `keeper_`.
struct SpareBlocks {
    std::array<void*, 4> blocks{};
    std::size_t count = 0;
    std::size_t room = 0;  // for so many: 0 before the keeper has come, and after it has gone
    bool closed = false;   // the thread ends; objects may still do so after this
};

class Recycled {
public:
    static void* operator new(std::size_t bytes) {
        if (bytes > block_bytes) return ::operator new(bytes);
        if (spare_.count > 0) return spare_.blocks[--spare_.count];
        if (!spare_.closed) keeper_.come();
        return ::operator new(block_bytes);
    }
    static void operator delete(void* memory, std::size_t bytes) noexcept {
        if (bytes <= block_bytes && spare_.count < spare_.room) {
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
    struct Keeper {
        ~Keeper() {
            spare_.closed = true;
            spare_.room = 0;
            while (spare_.count > 0) ::operator delete(spare_.blocks[--spare_.count]);
        }
        void come() noexcept { spare_.room = spare_.blocks.size(); }
    };

    static inline constinit thread_local SpareBlocks spare_;
    static inline thread_local Keeper keeper_;
};

}  // namespace ddp::base
