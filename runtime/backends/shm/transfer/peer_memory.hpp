// Peers' memory by its address: process_vm_readv and process_vm_writev, one copy through the kernel
// where slots need two, which giver and taker can share. Not every pair of processes may (other pid
// namespaces, seccomp, Yama), so each rank tries before its first call and tells the others.
// Which process a peer is, the Waiter has found out and keeps: the region cannot lead elsewhere. It
// says only where in that process; a wrong place there can harm no other process.
// Nothing is written into memory that its owner has given up: see close().
#pragma once

#include "backends/shm/region/shared_region.hpp"
#include "backends/shm/wait/waiter.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ddp::shm {

class PeerMemory {
public:
    // Reads every peer's token and publishes whether all were right. All ranks have introduced
    // themselves in the region. Where the tuning never goes this way, nothing is tried.
    PeerMemory(SharedRegion& region, int rank, Waiter& waiter);

    // Whether that rank reaches its peers; false while it has not said so.
    bool reaches(int rank) const {
        return region_.block(rank).reaches_peers.load(std::memory_order_acquire) != 0;
    }
    // Whether this one does: it has found all tokens.
    bool reaches_peers() const { return reaches_; }
    // Whether all ranks do. After a phase, so that all have said so; they all find the same.
    bool all_reach();

    // Copies bytes from a peer's memory. Throws PeerError when it has ended, SystemError when its
    // memory cannot be read; then every other rank throws too. `what()` describes the operation.
    template <class What>
    void read(int peer, std::uint64_t address, void* to, std::size_t bytes, const What& what) {
        const int error = try_read(peer, address, to, bytes);
        if (error != 0) throw_unreached({"read", peer, bytes, error}, what());
    }
    // Copies bytes into a peer's memory, which it has offered in a phase that all have met, and
    // keeps until this rank has arrived at a later one, or until close(). One thread at a time.
    // Throws as read, and what the group was aborted for.
    template <class What>
    void write(int peer, std::uint64_t address, const void* from, std::size_t bytes,
               const What& what) {
        const int error = try_write(peer, address, from, bytes);
        if (error != 0) throw_unreached({"write", peer, bytes, error}, what());
    }
    // Before this rank gives up memory that it has offered: aborts, and returns when no peer writes
    // there any more.
    void close() noexcept;

    // Whether peers would get to both ends of memory of this process: not where it is a device's.
    // Not empty.
    static bool can_be_reached(std::span<const std::byte> memory);

private:
    struct Failure {
        const char* verb;
        int peer;
        std::size_t bytes;
        int error;
    };
    // 0 or an errno.
    int try_read(int peer, std::uint64_t address, void* to, std::size_t bytes) const;
    int copy_from(int peer, std::uint64_t address, void* to, std::size_t bytes) const;
    int try_write(int peer, std::uint64_t address, const void* from, std::size_t bytes);
    bool reaches_all() const;
    void log_refusal(int peer) const;
    int refusal(int peer) const;
    [[noreturn]] void throw_unreached(const Failure& failure, const std::string& what);

    SharedRegion& region_;
    int rank_;
    Waiter& waiter_;
    bool reaches_ = false;
    enum class Known : std::uint8_t { not_yet, yes, no };
    Known all_reach_ = Known::not_yet;
};

inline std::uint64_t address_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace ddp::shm
