// The memory that a communicator's ranks share: a memfd of the process that made the unique id,
// opened by the others through /proc/<pid>/fd. Ranks that are threads of one process use one
// mapping of it. Data moves through mailboxes, one from each rank to each, that hold one message.
#pragma once

#include <nccl.h>
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace stand_in {

constexpr int most_ranks = 16;
constexpr std::size_t message_bytes = 16384;

// What a message belongs to; both sides have to mean the same.
struct Header {
    std::uint64_t sequence = 0;  // of the collective; 0 for send and receive
    std::uint64_t count = 0;
    std::uint32_t kind = 0;
    std::uint32_t dtype = 0;
    std::uint32_t reduction = 0;
    std::uint32_t root = 0;
    friend bool operator==(const Header&, const Header&) = default;
};

struct Mailbox {
    std::atomic<std::uint64_t> written;  // messages until now, by the sender
    std::atomic<std::uint64_t> taken;    // by the receiver
    Header header;
    std::array<std::byte, message_bytes> bytes;
};

// The wishes of a rank that splits, and where its new communicator's region is.
struct SplitEntry {
    std::atomic<std::uint64_t> asked;      // splits until now
    std::atomic<std::uint64_t> published;  // by the first rank of its color
    std::atomic<std::uint64_t> finished;
    int color;
    int key;
    ncclUniqueId id;
};

// What ranks meet for, and what they tell then.
enum class Meeting { window, shrink };
struct Note {
    std::uint64_t bytes = 0;   // of a window
    std::uint64_t offset = 0;  // of it in its allocation
    int flags = 0;
    std::uint32_t ranks = 0;  // that remain, a bit each
    ncclUniqueId id = {};     // of the new communicator, from the first of them
};
struct NoteBox {
    std::atomic<std::uint64_t> written;
    std::atomic<std::uint64_t> taken;
    Note note;
};

struct RankEntry {
    std::atomic<std::uint32_t> arrived;
    std::atomic<std::uint32_t> left;       // aborted
    std::atomic<std::uint32_t> finalized;  // finalize or destroy has begun, its work is done
    pid_t pid;
    int ranks;
    unsigned long long bus_id;
    std::uint64_t host;
    SplitEntry split;
};

struct Region {
    std::atomic<std::uint64_t> cookie;
    std::array<RankEntry, most_ranks> rank;
    // From, to. Collectives and point-to-point transfers do not meet.
    std::array<std::array<std::array<Mailbox, most_ranks>, most_ranks>, 2> mail;
    std::array<std::array<std::array<NoteBox, most_ranks>, most_ranks>, 2> notes;  // by Meeting
};

// Makes a region and the id that names it. Throws std::runtime_error.
ncclUniqueId make_region();
// The region of an id; null, and why, when its process is gone or it is no such id.
std::shared_ptr<Region> open_region(const ncclUniqueId& id, const char*& why);
// All ranks have opened it.
void forget_id(const ncclUniqueId& id);

}  // namespace stand_in
