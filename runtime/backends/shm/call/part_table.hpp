// Where the parts of a buffer lie that this rank exchanges with each rank, in bytes. Invariant: the
// parts lie in order of rank, without gaps.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace ddp::shm {

struct Part {
    std::size_t offset, bytes;
};

// One part for each rank.
class PartTable {
public:
    static PartTable even(std::size_t ranks, std::size_t bytes) {
        PartTable table(ranks);
        for (std::size_t rank = 0; rank < ranks; ++rank) table.add(bytes);
        return table;
    }
    static PartTable uneven(std::span<const std::size_t> counts, std::size_t element_bytes) {
        PartTable table(counts.size());
        for (const std::size_t count : counts) table.add(count * element_bytes);
        return table;
    }

    const Part& operator[](std::size_t rank) const { return parts_[rank]; }
    std::size_t total_bytes() const { return total_bytes_; }
    std::size_t largest_bytes() const { return largest_bytes_; }

private:
    explicit PartTable(std::size_t ranks) { parts_.reserve(ranks); }
    void add(std::size_t bytes) {
        parts_.push_back({total_bytes_, bytes});
        total_bytes_ += bytes;
        largest_bytes_ = std::max(largest_bytes_, bytes);
    }

    std::vector<Part> parts_;
    std::size_t total_bytes_ = 0;
    std::size_t largest_bytes_ = 0;
};

// Of an uneven all_to_all, in bytes, from the counts of all ranks: the largest part of any pair of
// ranks, and where this rank's part begins in each rank's input and output.
struct PeerOffsets {
    std::size_t largest_part = 0;
    std::vector<std::size_t> in_input, in_output;
};

}  // namespace ddp::shm
