// Peers' memory by address (cross-memory attach): process_vm_readv and process_vm_writev, one copy
// through the kernel where slots need two; sender and receiver can share it. Not every pair of
// processes may (other pid namespaces, seccomp, Yama), so each rank tries before its first call and
// publishes the result. The peers' processes are those that the Waiter has checked: the region only
// says where in such a process, so a wrong address can harm no other one.
// Invariant: nothing is written into memory whose rank has returned from revoke_access().
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
    // themselves in the region. Tries nothing where the tuning never copies by address.
    PeerMemory(SharedRegion& region, int rank, Waiter& waiter);

    // Whether that rank can access its peers; false until it has published that.
    bool can_access_peers(int rank) const {
        return region_.block(rank).can_access_peers.load(std::memory_order_acquire) != 0;
    }
    // Whether this rank can: it has found all tokens.
    bool can_access_peers() const { return can_access_; }
    // Whether all ranks can. After a phase, when all have published it, so all find the same.
    bool all_can_access_peers();

    // Copies bytes from a peer's memory. Throws PeerError when it has ended, SystemError when its
    // memory cannot be read; then every other rank throws too. `what()` describes the operation.
    template <class What>
    void read(int peer, std::uint64_t address, void* to, std::size_t bytes, const What& what) {
        const int error = try_read(peer, address, to, bytes);
        if (error != 0) throw_access_error({"read", peer, bytes, error}, what());
    }
    // Copies bytes into a peer's memory. The peer has registered it in a phase that all have
    // passed, and keeps it until this rank has arrived at a later one, or until its
    // revoke_access(). One thread at a time. Throws as read, and what the group was aborted for.
    template <class What>
    void write(int peer, std::uint64_t address, const void* from, std::size_t bytes,
               const What& what) {
        const int error = try_write(peer, address, from, bytes);
        if (error != 0) throw_access_error({"write", peer, bytes, error}, what());
    }
    // Before this rank gives registered memory back to its caller by an error: aborts the group,
    // and returns when no peer writes there any more.
    void revoke_access() noexcept;

    // Whether the kernel can copy the first and the last byte of memory of this process (it cannot
    // where the memory is a device's). Not empty.
    static bool is_accessible(std::span<const std::byte> memory);

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
    bool finds_all_tokens() const;
    void log_refusal(int peer) const;
    int refusal(int peer) const;
    [[noreturn]] void throw_access_error(const Failure& failure, const std::string& what);

    SharedRegion& region_;
    int rank_;
    Waiter& waiter_;
    bool can_access_ = false;
    enum class Known : std::uint8_t { not_yet, yes, no };
    Known all_can_access_ = Known::not_yet;
};

inline std::uint64_t address_of(const void* memory) {
    return reinterpret_cast<std::uintptr_t>(memory);
}

}  // namespace ddp::shm
