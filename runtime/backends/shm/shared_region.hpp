// What the ranks of one group share, as protocol.md lays it out: who they are, how far each is,
// what it calls, and the slots through which data moves.
#pragma once

#include "backends/shm/shared_memory.hpp"
#include "backends/shm/tuning.hpp"
#include "base/deadline.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddp::shm {

inline constexpr std::size_t cache_line = 64;
inline constexpr std::size_t slots_a_rank = 4;
inline constexpr std::size_t inline_bytes = 96;
inline constexpr std::size_t channel_slots = 4;

struct RegionHeader {
    std::uint64_t ranks;
    Tuning tuning;
    alignas(cache_line) std::atomic<std::uint32_t> abort_word;  // 0, or why and because of whom
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
    std::uint8_t memory;  // a MemoryKind; not compared
    std::uint8_t reserved[2];
};

// What peers would touch of this rank's memory in this call: nothing, memory that they have mapped,
// memory that they may read by its address, or what must be staged for them.
enum class MemoryKind : std::uint8_t { none, shared, readable, ordinary };

// Where in the group's allocations some memory lies. Allocation 0: in none; then the offset is its
// address in the rank's process.
struct Location {
    std::uint32_t allocation;
    std::uint64_t offset;
};

// A pair of cache lines, as processors fetch them; small data has its first part in the line that
// is polled.
struct alignas(2 * cache_line) PhaseLine {
    std::atomic<std::uint32_t> arrived;  // the last phase of this parity
    std::uint32_t reserved;
    Signature signature;
    std::byte data[inline_bytes];
};
static_assert(sizeof(PhaseLine) == 2 * cache_line);

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
struct alignas(cache_line) Bell {
    std::atomic<std::uint32_t> rings;     // the futex word
    std::atomic<std::uint32_t> sleepers;  // in futex(rings), or on their way there
};

struct alignas(2 * cache_line) RankBlock {
    Announcement announcements[2];  // by the parity of the phase
    Bell arrivals;                  // rung by this rank, for those who wait for it at a phase
    Bell inbox;                     // rung by the others, for this rank's transfers
    // Who reads peers' memory by address finds this number there.
    std::uint64_t token_address;
    std::uint64_t token;
    std::atomic<std::uint32_t> reads_peers;  // 1: this rank has found all tokens
    std::uint32_t wanted;                    // the ddp::Backend that this rank asks for
    std::atomic<std::int32_t> pid;  // 0: has not come yet, and futex words of who waits for that
};

struct alignas(2 * cache_line) Channel {
    alignas(cache_line) std::atomic<std::uint64_t> written;  // chunks, by the sender
    alignas(cache_line) std::atomic<std::uint64_t> read;     // by the receiver
};

class SharedRegion {
public:
    // Throws SystemError that names the bytes when there is no memory for what every group needs.
    static std::shared_ptr<SharedRegion> create(int ranks, const Tuning& tuning);
    // As SharedMemory's.
    static std::shared_ptr<SharedRegion> open(const std::string& address,
                                              const base::Deadline& deadline);
    std::string address() const { return memory_->address(); }
    void close_descriptor() { memory_->close_descriptor(); }

    int ranks() const { return static_cast<int>(layout_.ranks); }
    RegionHeader& header() const;
    RankBlock& block(int rank) const { return blocks_[rank]; }
    // Writes down who this rank is, and what it wants: before any rank makes a backend of the
    // region.
    void introduce(int rank, std::uint32_t wanted = 0) const;
    // Whether it has, now or within `at_most`.
    bool has_come(int rank, std::chrono::nanoseconds at_most) const;
    // 2 * ranks() counts of an uneven all_to_all: sent, then received.
    std::uint64_t* parts(int rank, std::uint64_t parity) const;
    Channel& channel(int from, int to) const;
    std::byte* channel_slot(int from, int to, std::uint64_t chunk) const;
    std::size_t channel_slot_bytes() const { return layout_.channel_slot_bytes; }
    // Before this rank writes into its slots or the results, or sends through a channel: their
    // memory is taken then, since many jobs never move what needs them. Who only reads what another
    // wrote need not. Throws SystemError.
    void reserve_slots(int rank) const;
    void reserve_channels(int from) const;
    std::byte* slot(int rank, std::uint64_t chunk) const;
    std::byte* result(std::uint64_t chunk) const;
    std::size_t slot_bytes() const { return layout_.slot_bytes; }

private:
    // Offsets of the region's parts.
    struct Layout {
        Layout(std::size_t ranks, std::size_t slot_bytes);
        std::size_t ranks, slot_bytes, channel_slot_bytes, parts_bytes;
        std::size_t blocks, parts, channels, channel_slots, slots, end;
    };
    SharedRegion(std::shared_ptr<SharedMemory> memory, const Layout& layout);

    std::shared_ptr<SharedMemory> memory_;
    Layout layout_;
    RankBlock* blocks_;
    std::uint64_t token_;  // of this process, for its peers to find
};

}  // namespace ddp::shm
