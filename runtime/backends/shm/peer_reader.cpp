#include "backends/shm/peer_reader.hpp"

#include <ddp/error.hpp>

#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace ddp::shm {
namespace {

void* pointer_to(std::uint64_t address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

PeerReader::PeerReader(SharedRegion& region, int rank, Waiter& waiter)
    : region_(region), rank_(rank), waiter_(waiter) {
    const bool reads = region.header().tuning.direct_read_bytes_max > 0 && reads_all_tokens();
    region.block(rank).reads_peers.store(reads ? 1 : 0, std::memory_order_release);
}

bool PeerReader::reads_all_tokens() const {
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        if (peer == rank_) continue;
        const RankBlock& block = region_.block(peer);
        std::uint64_t token = 0;
        // A pid that means another process here has another number there, if anything.
        if (try_read(peer, block.token_address, &token, sizeof token) != 0) return false;
        if (token != block.token) return false;
    }
    return true;
}

bool PeerReader::all_read() {
    if (all_read_ == Known::not_yet) {
        bool all = true;
        for (int peer = 0; peer < region_.ranks(); ++peer) all = all && reads(peer);
        all_read_ = all ? Known::yes : Known::no;
    }
    return all_read_ == Known::yes;
}

int PeerReader::try_read(int peer, std::uint64_t address, void* to, std::size_t bytes) const {
    const pid_t pid = region_.block(peer).pid.load(std::memory_order_relaxed);
    while (bytes > 0) {  // one call ends early at 2 GiB, and before a page it cannot read
        const iovec local{to, bytes};
        const iovec remote{pointer_to(address), bytes};
        const ssize_t count = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (count < 0 && errno != EINTR) return errno;
        if (count == 0) return EFAULT;
        const std::size_t done = count < 0 ? 0 : static_cast<std::size_t>(count);
        to = static_cast<std::byte*>(to) + done;
        address += done;
        bytes -= done;
    }
    // Else it may have been another process, with the pid of one that has ended.
    return waiter_.is_dead(peer) ? ESRCH : 0;
}

bool PeerReader::can_be_read(std::span<const std::byte> memory) {
    std::array<std::byte, 2> bytes{};
    const iovec local{bytes.data(), bytes.size()};
    const std::array ends{iovec{pointer_to(address_of(&memory.front())), 1},
                          iovec{pointer_to(address_of(&memory.back())), 1}};
    return ::process_vm_readv(::getpid(), &local, 1, ends.data(), ends.size(), 0) ==
           static_cast<ssize_t>(bytes.size());
}

void PeerReader::throw_unread(int peer, std::size_t bytes, int error, const std::string& what) {
    // A rank that has failed may have taken its memory back; one that ends loses it first.
    if (waiter_.is_aborted()) waiter_.throw_abort(what);
    if (error == ESRCH || waiter_.is_dead(peer)) {
        waiter_.abort(AbortReason::peer_died, peer);
        waiter_.throw_abort(what);
    }
    waiter_.abort(AbortReason::peer_failed, rank_);
    throw SystemError("shm: " + what + ": " + waiter_.name(rank_) + " cannot read " +
                          std::to_string(bytes) + " bytes in the memory of " + waiter_.name(peer) +
                          " (is all of it mapped? DDP_SHM_TUNING=direct_read_bytes_max=0 goes "
                          "without)",
                      error);
}

}  // namespace ddp::shm
