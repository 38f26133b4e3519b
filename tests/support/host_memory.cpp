#include "support/host_memory.hpp"

#include <ddp/error.hpp>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>

namespace ddp::testing {

namespace {
constexpr std::align_val_t alignment{256};
}

HostMemory::~HostMemory() {
    for (const auto& [memory, block] : blocks_) {
        ::operator delete(const_cast<std::byte*>(memory), alignment);
    }
}

void HostMemory::set_limit(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
}

std::size_t HostMemory::allocated() const {
    const std::lock_guard lock(mutex_);
    std::size_t bytes = 0;
    for (const auto& [memory, block] : blocks_) bytes += block.bytes;
    return bytes;
}

void* HostMemory::allocate(std::size_t bytes, int device) {
    if (bytes == 0) return nullptr;
    const std::lock_guard lock(mutex_);
    std::size_t used = 0;
    for (const auto& [memory, block] : blocks_) {
        if (block.device == device) used += block.bytes;
    }
    const bool fits = bytes <= limit_ && used <= limit_ - bytes;
    void* const memory = fits ? ::operator new(bytes, alignment, std::nothrow) : nullptr;
    if (memory == nullptr) {
        const std::string where = device == pinned ? "pinned" : "cuda:" + std::to_string(device);
        throw SystemError(where + ": allocate " + std::to_string(bytes) + " bytes", ENOMEM);
    }
    std::memset(memory, 0xa5, bytes);  // nobody may rely on zeros
    blocks_.emplace(static_cast<std::byte*>(memory), Block{bytes, device});
    return memory;
}

void HostMemory::free(void* memory) noexcept {
    if (memory == nullptr) return;
    const std::lock_guard lock(mutex_);
    if (blocks_.erase(static_cast<std::byte*>(memory)) == 0) {
        std::fprintf(stderr, "HostDeviceApi: free of memory that is not allocated\n");
        std::abort();
    }
    ::operator delete(memory, alignment);
}

const HostMemory::Block* HostMemory::block_of(const std::byte* place) const {
    const auto after = blocks_.upper_bound(place);
    if (after == blocks_.begin()) return nullptr;
    const auto& [begin, block] = *std::prev(after);
    return static_cast<std::size_t>(place - begin) < block.bytes ? &block : nullptr;
}

std::optional<int> HostMemory::owner(const void* memory, std::size_t bytes) const {
    const std::lock_guard lock(mutex_);
    const auto* const first = static_cast<const std::byte*>(memory);
    const Block* const block = block_of(first);
    if (bytes > 0 && block_of(first + bytes - 1) != block) {
        throw UsageError(std::to_string(bytes) + " bytes reach past the end of an allocation");
    }
    return block == nullptr ? std::nullopt : std::optional(block->device);
}

}  // namespace ddp::testing
