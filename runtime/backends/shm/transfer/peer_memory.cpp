// How a rank writes into a peer's memory although the peer may give that memory up at any time.
//
// The writer publishes the write in its RankBlock, then looks whether the group is aborted, then
// calls the kernel, then withdraws the write. The owner of the memory aborts the group, then looks
// at the published writes. All of this is sequentially consistent, so one of the two sees the
// other: no write begins after the abort that the owner does not know of.
//
// The owner then makes the write empty: what the writer has published is the very iovec from which
// the kernel takes address and size. So a writer that is stopped before its call writes nothing
// when it goes on. Past that point the writer is in the kernel, where no signal delays it and
// neither user code nor a debugger runs; the owner waits until the write is withdrawn or the writer
// has ended: its pidfd tells that only after its last thread has left the kernel. SIGKILL at any
// instant therefore leaves either no write, or one that has ended. The wait ends after
// `max_write_time` in any case: by then the writer is stopped before a call that is empty by now,
// or after one that has ended.
//
// A pid may be used again by a process that is no rank, so the writer looks at the peer's pidfd
// after it has published the write: what remains is that the peer ends, is waited for, and all
// other pids are used up, between that look and the call.
//
// Peers can change the iovec between the writer's store and the kernel's load. They are processes
// of this user that hold the region: no stranger gets it (shared_memory.cpp). And they could change
// only the address in the one process that the Waiter has checked, of at most as many bytes as
// `local` has.
#include "backends/shm/transfer/peer_memory.hpp"

#include "base/log.hpp"

#include <ddp/error.hpp>

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;

// One call writes no more, so that an owner in revoke_access() waits shortly.
constexpr std::size_t max_write_bytes = std::size_t{1} << 20;
// Ten thousand times what that takes.
constexpr auto max_write_time = 2s;

static_assert(sizeof(std::atomic<std::uintptr_t>) == sizeof(void*) &&
              offsetof(RemoteWrite, address) == offsetof(iovec, iov_base) &&
              offsetof(RemoteWrite, bytes) == offsetof(iovec, iov_len));

void* pointer_to(std::uint64_t address) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

}  // namespace

PeerMemory::PeerMemory(SharedRegion& region, int rank, Waiter& waiter)
    : region_(region), rank_(rank), waiter_(waiter) {
    can_access_ = region.tuning().direct.max_bytes > 0 && finds_all_tokens();
    region.block(rank).can_access_peers.store(can_access_ ? 1 : 0, std::memory_order_release);
}

bool PeerMemory::finds_all_tokens() const {
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        if (peer == rank_) continue;
        const RankBlock& block = region_.block(peer);
        const std::uint64_t address = block.token_address;
        std::uint64_t token = 0;
        const int error = copy_from(peer, address, &token, sizeof token);
        if (error == EPERM || error == ENOSYS) log_refusal(peer);
        // A pid that means another process in this namespace has another number there, if any.
        if (error != 0 || token != block.token) return false;
    }
    // A process that may read may write, unless a seccomp filter forbids that call.
    const iovec nothing{nullptr, 0};
    return waiter_.kernel().write_memory(::getpid(), nothing, &nothing) == 0;
}

void PeerMemory::log_refusal(int peer) const {
    base::log_debug("backends", "shm: " + waiter_.name(rank_) +
                                    " goes through slots, as it may not read memory of " +
                                    waiter_.name(peer) +
                                    " (kernel.yama.ptrace_scope, a container or a seccomp "
                                    "profile?)");
}

bool PeerMemory::all_can_access_peers() {
    if (all_can_access_ == Known::not_yet) {
        bool all = can_access_;
        for (int peer = 0; peer < region_.ranks(); ++peer) all = all && can_access_peers(peer);
        all_can_access_ = all ? Known::yes : Known::no;
    }
    return all_can_access_ == Known::yes;
}

// A rank that has not found a peer's token does not access that process, whatever the region says.
int PeerMemory::refusal(int peer) const {
    if (can_access_) return 0;
    return waiter_.is_dead(peer) ? ESRCH : EPERM;
}

int PeerMemory::try_read(int peer, std::uint64_t address, void* to, std::size_t bytes) const {
    const int error = refusal(peer);
    return error != 0 ? error : copy_from(peer, address, to, bytes);
}

int PeerMemory::copy_from(int peer, std::uint64_t address, void* to, std::size_t bytes) const {
    const pid_t pid = waiter_.pid(peer);
    while (bytes > 0) {  // one call ends early at 2 GiB, and before a page it cannot read
        const iovec local{to, bytes};
        const iovec remote{pointer_to(address), bytes};
        const ssize_t count = waiter_.kernel().read_memory(pid, local, remote);
        if (count < 0 && errno != EINTR) return errno;
        if (count == 0) return EFAULT;
        const std::size_t done = count < 0 ? 0 : static_cast<std::size_t>(count);
        to = static_cast<std::byte*>(to) + done;
        address += done;
        bytes -= done;
    }
    // Else it may have been another process with the pid of a peer that has ended, or memory that
    // its owner has given back: a rank that does that early has aborted first.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (waiter_.is_dead(peer)) return ESRCH;
    return waiter_.is_aborted() ? ECANCELED : 0;
}

int PeerMemory::try_write(int peer, std::uint64_t address, const void* from, std::size_t bytes) {
    const pid_t pid = waiter_.pid(peer);
    RemoteWrite& mine = region_.block(rank_).write;
    const auto* source = static_cast<const std::byte*>(from);
    int error = refusal(peer);
    while (bytes > 0 && error == 0) {
        const std::size_t most = std::min(bytes, max_write_bytes);
        mine.address.store(static_cast<std::uintptr_t>(address), std::memory_order_seq_cst);
        mine.bytes.store(most, std::memory_order_seq_cst);
        mine.target.store(peer + 1, std::memory_order_seq_cst);
        if (waiter_.is_aborted()) {
            error = ECANCELED;
        } else if (waiter_.is_dead(peer)) {
            error = ESRCH;
        } else {
            const iovec local{const_cast<std::byte*>(source), most};
            const auto* const remote = reinterpret_cast<const iovec*>(&mine.address);
            const ssize_t count = waiter_.kernel().write_memory(pid, local, remote);
            if (count < 0 && errno != EINTR) error = errno;
            if (count == 0) error = waiter_.is_aborted() ? ECANCELED : EFAULT;
            const std::size_t done = count < 0 ? 0 : static_cast<std::size_t>(count);
            source += done;
            address += done;
            bytes -= done;
        }
    }
    mine.target.store(0, std::memory_order_release);
    return error;
}

void PeerMemory::revoke_access() noexcept {
    waiter_.abort(AbortReason::peer_failed, rank_);
    const auto end = std::chrono::steady_clock::now() + max_write_time;
    for (int peer = 0; peer < region_.ranks(); ++peer) {
        if (peer == rank_) continue;
        RemoteWrite& write = region_.block(peer).write;
        while (write.target.load(std::memory_order_seq_cst) == rank_ + 1) {
            write.bytes.store(0, std::memory_order_seq_cst);
            if (waiter_.is_dead(peer) || std::chrono::steady_clock::now() > end) break;
            std::this_thread::sleep_for(50us);
        }
    }
}

bool PeerMemory::is_accessible(std::span<const std::byte> memory) {
    std::array<std::byte, 2> bytes{};
    const iovec local{bytes.data(), bytes.size()};
    const std::array ends{iovec{pointer_to(address_of(&memory.front())), 1},
                          iovec{pointer_to(address_of(&memory.back())), 1}};
    return ::process_vm_readv(::getpid(), &local, 1, ends.data(), ends.size(), 0) ==
           static_cast<ssize_t>(bytes.size());
}

void PeerMemory::throw_access_error(const Failure& failure, const std::string& what) {
    // A rank that has failed may have given its memory back; one that ends loses it first.
    if (waiter_.is_aborted()) waiter_.throw_abort(what);
    if (failure.error == ESRCH || waiter_.is_dead(failure.peer)) {
        waiter_.abort(AbortReason::peer_died, failure.peer);
        waiter_.throw_abort(what);
    }
    waiter_.abort(AbortReason::peer_failed, rank_);
    // All ranks could when the group began.
    const bool is_forbidden = failure.error == EPERM || failure.error == ENOSYS;
    const char* const advice =
        is_forbidden ? " (it could before: change users, capabilities and seccomp filters before "
                       "init_process_group, or set DDP_SHM_TUNING=direct_bytes_max=0)"
                     : " (is all of it mapped? DDP_SHM_TUNING=direct_bytes_max=0 goes without)";
    throw SystemError("shm: " + what + ": " + waiter_.name(rank_) + " cannot " + failure.verb +
                          " " + std::to_string(failure.bytes) + " bytes in the memory of " +
                          waiter_.name(failure.peer) + advice,
                      failure.error);
}

}  // namespace ddp::shm
