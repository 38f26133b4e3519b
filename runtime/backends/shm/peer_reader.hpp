// Reading peers' memory by its address: process_vm_readv, one copy through the kernel where slots
// need two. Not every pair of processes may (other pid namespaces, seccomp, Yama), so each rank
// tries before its first call and tells the others (protocol.md).
#pragma once

#include "backends/shm/shared_region.hpp"
#include "backends/shm/waiter.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ddp::shm {

class PeerReader {
public:
    // Reads every peer's token and publishes whether all were right. All ranks have introduced
    // themselves in the region. Where the tuning never reads, nothing is tried.
    PeerReader(SharedRegion& region, int rank, Waiter& waiter);

    // Whether that rank reads its peers; false while it has not said so.
    bool reads(int rank) const {
        return region_.block(rank).reads_peers.load(std::memory_order_acquire) != 0;
    }
    // Whether all ranks do. After a phase, so that all have said so; they all find the same.
    bool all_read();

    // Copies bytes from a peer's memory. Throws PeerError when it has ended, SystemError when its
    // memory cannot be read; then every other rank throws too. `what()` describes the operation.
    template <class What>
    void read(int peer, std::uint64_t address, void* to, std::size_t bytes, const What& what) {
        const int error = try_read(peer, address, to, bytes);
        if (error != 0) throw_unread(peer, bytes, error, what());
    }

    // Whether peers would get to both ends of memory of this process: not where it is a device's.
    // Not empty.
    static bool can_be_read(std::span<const std::byte> memory);

private:
    // 0 or an errno.
    int try_read(int peer, std::uint64_t address, void* to, std::size_t bytes) const;
    bool reads_all_tokens() const;
    [[noreturn]] void throw_unread(int peer, std::size_t bytes, int error, const std::string& what);

    SharedRegion& region_;
    int rank_;
    Waiter& waiter_;
    enum class Known : std::uint8_t { not_yet, yes, no };
    Known all_read_ = Known::not_yet;
};

inline std::uint64_t address_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace ddp::shm
