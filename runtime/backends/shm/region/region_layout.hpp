// The layout of the memory that the ranks of one group share, as protocol.md gives it. Invariant:
// every process maps the same bytes, so each type is plain or lock-free, and its layout changes
// only together with the version in shared_memory.cpp.
#pragma once

#include "backends/shm/memory_orders.hpp"
#include "backends/shm/tuning.hpp"
#include "base/eventcount.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::shm {

inline constexpr std::size_t cache_line = 64;
inline constexpr std::size_t slots_per_rank = 4;
// Data of an all_reduce up to this size travel in the descriptor: in the rest of the line that
// peers poll and in the lines after it, which the reader's core prefetches. They arrive sooner than
// from a slot.
inline constexpr std::size_t inline_bytes = 1120;
inline constexpr std::size_t channel_slots = 4;
// Up to this size the lines of a slot are prefetched before they are read or written.
inline constexpr std::size_t max_prefetch_bytes = 2048;

// Slot colouring: where in a slot with so much room `bytes` begin that are the slot's turn-th. In
// another part each time, in pairs of lines, since a core prefetches the other one.
inline std::size_t color_of(std::uint64_t turn, std::size_t bytes, std::size_t room) {
    constexpr std::size_t pair = 2 * cache_line;
    const std::size_t part = (bytes + pair - 1) / pair * pair;
    return turn % std::max<std::size_t>(room / part, 1) * part;
}

// In which of the ranks' slots a rank stages a chunk of that number.
struct SlotPosition {
    std::size_t owner, slot;
};
constexpr SlotPosition position_of_slot(std::size_t rank, std::uint64_t chunk, bool swaps_slots) {
    if (!swaps_slots) return {rank, chunk % slots_per_rank};
    return {(rank + chunk / 2) % 2, chunk % 2};
}
// With swapped slots: whether the two ranks' shares of that chunk change places in the result slot.
constexpr bool are_results_swapped(std::uint64_t chunk) { return chunk / 2 % 2 == 1; }

struct RegionHeader {
    std::uint64_t ranks;
    Tuning tuning;
    alignas(cache_line) std::atomic<std::uint32_t> abort_word;  // 0, or AbortReason and rank
};

// How peers may access one buffer of a rank in a call.
enum class BufferAccess : std::uint8_t {
    none,        // they do not need it, or may not write to it
    mapped,      // memory of `allocate`, which all ranks have mapped
    by_address,  // through the kernel, by its address in the rank's process
    staged       // not at all: the rank copies it into its slots
};

// A rank's input, for peers to read, and its output, for peers to write. Where they may not write
// to the output, the rank that owns it copies everything.
struct BufferRegistration {
    BufferAccess input = BufferAccess::none;
    BufferAccess output = BufferAccess::none;
};

// What one rank calls, compared with the other ranks' signatures.
struct Signature {
    std::uint64_t elements;
    std::uint32_t sequence;
    std::uint32_t parts;  // 0: even; else a digest of the counts that all must agree on
    std::uint16_t root;
    std::uint8_t kind;
    std::uint8_t dtype;
    std::uint8_t op;
    BufferRegistration buffers;  // not compared
    std::uint8_t reserved;
};

// Where a buffer lies: in which of the group's allocations and where in the rank's piece of it.
// Allocation 0: in none; then `offset` is its address in the rank's process.
struct BufferLocation {
    std::uint32_t allocation;
    std::uint64_t offset;
};

// Pairs of cache lines, as processors prefetch them; the first bytes of small data are in the line
// that peers poll.
struct alignas(2 * cache_line) DescriptorLine {
    std::atomic<std::uint32_t> arrived;  // the last phase of this parity
    std::uint32_t source;                // the caller (call_header.hpp), compared as the signature
    Signature signature;
    std::byte data[inline_bytes];
};
static_assert(sizeof(DescriptorLine) == 18 * cache_line);

// Read by peers only where the signature says that they need it.
struct alignas(cache_line) OpDetails {
    BufferLocation input;
    BufferLocation output;
    double factor;  // of premul_sum
};

// What one rank publishes of a call with its first phase.
struct alignas(2 * cache_line) OpDescriptor {
    DescriptorLine line;
    OpDetails details;
};

// Where ranks sleep until another rank has published something.
struct alignas(cache_line) Doorbell : base::BasicEventcount<SharedEventcountPolicy> {};

// The write by address that a rank is making into a peer's memory (peer_memory.cpp). Begins as an
// iovec does, since the kernel reads it as one.
struct alignas(cache_line) RemoteWrite {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> bytes;
    std::atomic<std::int32_t> target;  // 1 + the rank written to; 0: no write is under way
};

struct alignas(2 * cache_line) RankBlock {
    OpDescriptor descriptors[2];  // by the parity of the phase
    Doorbell arrivals;            // this rank notifies the peers that wait for it at a phase
    Doorbell inbox;               // peers notify this rank of its point-to-point transfers
    RemoteWrite write;
    // A peer that can read this process by address finds this number there.
    std::uint64_t token_address;
    std::uint64_t token;
    std::atomic<std::uint32_t> can_access_peers;  // 1: this rank has found the tokens of all peers
    std::uint32_t requested_backend;              // RequestedBackend (make_backend.cpp)
    std::atomic<std::uint32_t> waiting_core;      // core_sharing.cpp; 0: has not waited yet
    std::atomic<std::int32_t>
        pid;  // 0: not introduced yet; the futex word of peers that wait for it
};

struct alignas(2 * cache_line) Channel {
    // Written by the sender: the number of chunks, and of each of the last ones how long its
    // message is and where it lies (chunk_places.hpp), in the line that the receiver polls. With
    // the highest bit of the length set, the chunk holds the message's address.
    alignas(cache_line) std::atomic<std::uint64_t> written;
    std::uint64_t message[channel_slots];
    std::uint32_t place[channel_slots];
    alignas(cache_line) std::atomic<std::uint64_t> read;  // by the receiver
};

}  // namespace ddp::shm
