// The memory of the host's device API: which bytes belong to which device.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

namespace ddp::testing {

class HostMemory {
public:
    static constexpr int pinned = -1;  // as a device

    HostMemory() = default;
    ~HostMemory();
    HostMemory(const HostMemory&) = delete;
    HostMemory& operator=(const HostMemory&) = delete;

    static constexpr std::size_t usual_limit = std::size_t{1} << 30U;
    void set_limit(std::size_t bytes);              // of each device
    void* allocate(std::size_t bytes, int device);  // null for 0; throws SystemError(ENOMEM)
    void free(void* memory) noexcept;               // aborts the process for what is none
    std::size_t allocated() const;

    // Whose the bytes are, all of them; nothing for ordinary memory. Throws UsageError for bytes
    // that begin in an allocation and end outside of it.
    std::optional<int> owner(const void* memory, std::size_t bytes) const;

private:
    struct Block {
        std::size_t bytes;
        int device;
    };
    const Block* block_of(const std::byte* place) const;

    mutable std::mutex mutex_;
    std::size_t limit_ = usual_limit;
    std::map<const std::byte*, Block> blocks_;
};

}  // namespace ddp::testing
