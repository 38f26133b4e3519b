// What a call keeps beside the tensors; kept between calls, and grows as needed.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace ddp::hierarchical {

// Not initialised.
class StagingBuffer {
public:
    // At least that many bytes; what was in it may be lost.
    std::byte* reserve(std::size_t bytes) {
        if (bytes > size_) {
            memory_.reset();
            size_ = 0;
            memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
            size_ = bytes;
        }
        return memory_.get();
    }

private:
    std::unique_ptr<std::byte[]> memory_;
    std::size_t size_ = 0;
};

struct Staging {
    StagingBuffer packed;                  // this rank's input, by who carries it
    StagingBuffer inputs;                  // of the ranks of this host, what this one carries
    StagingBuffer wide;                    // the same, in the type that is added in
    std::array<StagingBuffer, 2> sums;     // of the subtrees here; of two chunks
    std::array<StagingBuffer, 2> theirs;   // of the subtrees elsewhere
    std::array<StagingBuffer, 2> results;  // before they go to the root
};

}  // namespace ddp::hierarchical
