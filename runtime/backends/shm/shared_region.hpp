// The memory that the ranks of one group share: a nameless, sealed memfd, so that nothing is left
// in /dev/shm whatever dies. Made by the group's lowest rank, opened by the others through
// /proc/<pid>/fd.
//
//   offset 0            RegionHeader: who we are, the barrier's words, the abort word
//   one line a rank     RankLine: its pid, how far it is, what it calls
//   two slots a rank    staging for its input, used in turn
//   two result slots    what the ranks reduced together, used in turn
#pragma once

#include "backends/shm/region_handover.hpp"
#include "base/deadline.hpp"
#include "base/unique_fd.hpp"

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace ddp::shm {

inline constexpr std::size_t cache_line = 64;

// The signature of a call as its rank published it; compared by the others.
struct CallHeader {
    std::uint64_t sequence;
    std::uint64_t elements;
    std::int32_t root;
    std::uint8_t kind;
    std::uint8_t dtype;
    std::uint8_t op;
    std::uint8_t reserved;
    friend bool operator==(const CallHeader&, const CallHeader&) = default;
};

struct RegionHeader {
    std::uint64_t magic;
    std::uint32_t version;
    std::uint32_t ranks;
    std::uint64_t cookie;
    std::uint64_t slot_bytes;
    alignas(cache_line) std::atomic<std::uint32_t> arrived;     // at the current barrier
    alignas(cache_line) std::atomic<std::uint32_t> generation;  // barriers passed; the futex word
    std::atomic<std::uint32_t> sleepers;                        // in futex(generation)
    alignas(cache_line) std::atomic<std::uint32_t> abort_word;  // 0, or why and because of whom
};

struct alignas(2 * cache_line) RankLine {
    std::atomic<std::int32_t> pid;
    std::atomic<std::uint32_t> arrivals;  // barriers this rank has reached: names who is missing
    CallHeader calls[2];                  // by the parity of the sequence number
};

class SharedRegion {
public:
    // Throws SystemError that names the bytes when there is no memory for it.
    static std::shared_ptr<SharedRegion> create(int ranks, std::size_t slot_bytes);

    // How another process finds it: "<pid> <fd> <cookie> <socket>". Valid until close_descriptor.
    std::string address() const;
    // Through /proc/<pid>/fd, else through the socket. Throws SystemError when the maker cannot be
    // reached, UsageError when what is found there is not the region.
    static std::shared_ptr<SharedRegion> open(const std::string& address,
                                              const base::Deadline& deadline);
    void close_descriptor();

    ~SharedRegion();
    SharedRegion(const SharedRegion&) = delete;
    SharedRegion& operator=(const SharedRegion&) = delete;

    int ranks() const { return static_cast<int>(header().ranks); }
    std::size_t slot_bytes() const { return header().slot_bytes; }
    RegionHeader& header() const;
    RankLine& line(int rank) const;
    std::byte* slot(int rank, std::uint32_t parity) const;
    std::byte* result(std::uint32_t parity) const;

private:
    SharedRegion(base::UniqueFd fd, std::byte* memory, std::size_t bytes)
        : fd_(std::move(fd)), memory_(memory), bytes_(bytes) {}

    base::UniqueFd fd_;
    std::unique_ptr<RegionHandover> handover_;  // the maker's, until close_descriptor
    std::byte* memory_;
    std::size_t bytes_;
};

}  // namespace ddp::shm
