// The layout of the memory that the ranks of one group share, as protocol.md gives it.
#pragma once

#include "backends/shm/memory_orders.hpp"
#include "backends/shm/tuning.hpp"
#include "base/eventcount.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::shm {

inline constexpr std::size_t cache_line = 64;
inline constexpr std::size_t slots_a_rank = 4;
// Of an all_reduce, in the rest of the line that is polled and those after it: the reader's core
// fetches them beside it, so that small data comes sooner than from a slot.
inline constexpr std::size_t inline_bytes = 1120;
inline constexpr std::size_t channel_slots = 4;
// Data of which each line counts, and is asked for before it is used.
inline constexpr std::size_t few_lines = 2048;

struct RegionHeader {
    std::uint64_t ranks;
    Tuning tuning;
    alignas(cache_line) std::atomic<std::uint32_t> abort_word;  // 0, or why and because of whom
};

// What peers would touch of this rank's memory in this call: nothing, memory that they have mapped,
// memory that they may reach by its address, or what must be staged for them.
enum class MemoryKind : std::uint8_t { none, shared, reachable, ordinary };

// Of a rank's input, for peers to read, and of its output, for them to write; where they may write
// in none they leave it to their peer.
struct Offer {
    MemoryKind input = MemoryKind::none;
    MemoryKind output = MemoryKind::none;
};

// What one rank calls, as the others compare it.
struct Signature {
    std::uint64_t elements;
    std::uint32_t sequence;
    std::uint32_t parts;  // 0: even; else a digest of the counts that all must agree on
    std::uint16_t root;
    std::uint8_t kind;
    std::uint8_t dtype;
    std::uint8_t op;
    Offer offer;  // not compared
    std::uint8_t reserved;
};

// Where in the group's allocations some memory lies. Allocation 0: in none; then the offset is its
// address in the rank's process.
struct Location {
    std::uint32_t allocation;
    std::uint64_t offset;
};

// Pairs of cache lines, as processors fetch them; small data has its first part in the line that is
// polled.
struct alignas(2 * cache_line) PhaseLine {
    std::atomic<std::uint32_t> arrived;  // the last phase of this parity
    std::uint32_t source;                // who calls (call_header.hpp), compared as the signature
    Signature signature;
    std::byte data[inline_bytes];
};
static_assert(sizeof(PhaseLine) == 18 * cache_line);

// Read only where the signature says that it matters.
struct alignas(cache_line) CallDetails {
    Location input;
    Location output;
    double factor;  // of premul_sum
};

struct alignas(2 * cache_line) Announcement {
    PhaseLine line;
    CallDetails details;
};

// Where ranks sleep until somebody has published something.
struct alignas(cache_line) Bell : base::BasicEventcount<SharedEventcountPolicy> {};

// What one rank writes into another's memory just now (peer_memory.cpp); begins as an iovec does.
struct alignas(cache_line) RemoteWrite {
    std::atomic<std::uintptr_t> address;
    std::atomic<std::size_t> bytes;
    std::atomic<std::int32_t> target;  // 1 + the rank whose memory it is; 0: nothing is written
};

struct alignas(2 * cache_line) RankBlock {
    Announcement announcements[2];  // by the parity of the phase
    Bell arrivals;                  // rung by this rank, for those who wait for it at a phase
    Bell inbox;                     // rung by the others, for this rank's transfers
    RemoteWrite write;
    // Who reaches peers' memory by address finds this number there.
    std::uint64_t token_address;
    std::uint64_t token;
    std::atomic<std::uint32_t> reaches_peers;  // 1: this rank has found all tokens
    std::uint32_t wanted;                      // what this rank asks for (make_backend.cpp)
    std::atomic<std::uint32_t> waiting_place;  // core_sharing.cpp; 0: it has not waited yet
    std::atomic<std::int32_t> pid;  // 0: has not come yet, and futex words of who waits for that
};

struct alignas(2 * cache_line) Channel {
    // By the sender: chunks, and of the last ones the bytes of their messages, in the line that the
    // receiver polls. With the highest bit, the chunk is the address of the message.
    alignas(cache_line) std::atomic<std::uint64_t> written;
    std::uint64_t message[channel_slots];
    alignas(cache_line) std::atomic<std::uint64_t> read;  // by the receiver
};

}  // namespace ddp::shm
