// The page of one rank in the control region: who it is, how far it has come, and the last
// collectives of its groups. It outlives the rank, which alone writes it (OperationRecorder); the
// agent reads it at any time (rank_record.hpp). All fields are zero at first. Times are nanoseconds
// of CLOCK_MONOTONIC as of the kernel's last tick, up to 10 ms ago.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::contract {

inline constexpr auto relaxed = std::memory_order_relaxed;  // of nearly all of its fields

enum class Phase : std::uint32_t { starting, joining, running, failed, left };

enum class GroupEnd : std::uint32_t { none, left, failed };

// A group that the rank is in, or was.
struct GroupEntry {
    std::atomic<std::uint32_t> id;       // the same on all of its ranks; 0: the entry is free
    std::atomic<std::uint32_t> size;     // ranks in it
    std::atomic<std::uint64_t> started;  // collectives that the rank has started in it
    std::atomic<std::uint64_t> ended;    // of them: equal, or less by the one that it is in, or
                                         // that has failed; on a GPU by those under way
    std::atomic<std::uint32_t> end;      // a GroupEnd; with one, the entry may be used anew
    std::atomic<std::uint32_t> on_gpu;   // 1: of a group's GPU half, of which many may be under way
    std::atomic<std::uint64_t> bytes;    // that collectives were called with, of all groups that
                                         // have had the entry
};

// What a rank waits in, of the group's entry of the same index, with nothing moving: the first of
// its transfers.
struct TransferEntry {
    std::atomic<std::int64_t> since_ns;  // 0: it waits in none
    std::atomic<std::uint64_t> bytes;
    std::atomic<std::int32_t> peer;   // its number in the job
    std::atomic<std::uint32_t> line;  // as OperationEntry's
    std::atomic<std::uint16_t> file;
    std::atomic<std::uint8_t> sends;  // 0: it receives
    std::uint8_t reserved[5];
};

// One collective. Written while `serial` is 0, but for `ended_ns`.
struct OperationEntry {
    std::atomic<std::uint64_t> serial;    // how many the rank had recorded with it, in all groups
    std::atomic<std::uint64_t> sequence;  // its number in its group, from 1
    std::atomic<std::uint64_t> elements;
    std::atomic<std::int64_t> started_ns;
    std::atomic<std::int64_t> ended_ns;  // 0: it has not ended, or has failed
    std::atomic<std::uint32_t> group;    // its id
    std::atomic<std::uint32_t> source;   // CallSignature's, as the next ones
    std::atomic<std::int32_t> root;
    std::atomic<std::uint32_t> line;  // of the call; 0: not known
    std::atomic<std::uint16_t> file;  // where its name is in `files`
    std::atomic<std::uint8_t> kind;
    std::atomic<std::uint8_t> dtype;
    std::atomic<std::uint8_t> op;
    std::atomic<std::uint8_t> uneven;
    std::uint16_t reserved;
};
static_assert(sizeof(OperationEntry) == 64);

inline constexpr std::size_t control_page_bytes = 8192;
inline constexpr std::size_t recorded_groups = 16;
inline constexpr std::size_t recorded_operations = 64;
inline constexpr std::size_t file_name_bytes = 2880;

struct alignas(64) ControlPage {
    std::atomic<std::int32_t> pid;     // 0: it has not joined
    std::atomic<std::uint32_t> phase;  // a Phase
    std::atomic<std::int64_t> step;    // published by the training loop
    std::atomic<double> steps_per_second;
    std::atomic<std::int64_t> joined_ns;          // when its first group began
    std::atomic<std::uint64_t> recorded;          // collectives so far; number n is at (n - 1) % 64
    std::atomic<std::int32_t> checkpoints;        // that it is at; mostly 0
    std::atomic<std::int32_t> in_unrecorded;      // collectives of groups without an entry, and
                                                  // transfers on a GPU
    std::atomic<std::uint64_t> unrecorded_bytes;  // likewise, of groups without an entry
    std::atomic<std::int64_t> exposed_ns;         // that steps have waited for their gradients
    GroupEntry groups[recorded_groups];
    TransferEntry transfers[recorded_groups];
    OperationEntry operations[recorded_operations];
    // Names of source files, each with a zero behind it; the first is empty.
    std::atomic<std::uint16_t> files_used;
    char files[file_name_bytes - sizeof(std::uint16_t)];
};
static_assert(sizeof(ControlPage) == control_page_bytes);

}  // namespace ddp::contract
