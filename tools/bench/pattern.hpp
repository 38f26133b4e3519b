// The contents of the buffers that are measured: sequences that repeat a pattern, cheap to write
// and to compare. Shared by ddp-bench and the peers' drivers.
#pragma once

#include <cstddef>
#include <cstring>
#include <vector>

namespace ddp::bench {

// One period of a rank's sequence, or of the reduction of all.
using Pattern = std::vector<std::byte>;
inline constexpr std::size_t pattern_length = 4099;  // elements

inline std::size_t first_of(int iteration) {
    return static_cast<std::size_t>(iteration) * 7 % pattern_length;
}

// The integer from 0 to 3 that makes element i of rank r; without a short period.
inline unsigned digit(int rank, std::size_t index) {
    const std::size_t mixed = (index + 1) * 0x9e3779b97f4a7c15 >> 40;
    return static_cast<unsigned>((static_cast<std::size_t>(rank) * 3 + mixed) % 4);
}

// A stretch of a buffer: elements `first`... of a sequence.
struct Stretch {
    const Pattern* pattern = nullptr;
    std::size_t first = 0;
    std::size_t elements = 0;
};

// Writes the sequence from element `first` on: block copies of a pattern that stays in the cache.
inline void write_sequence(std::byte* to, const Stretch& stretch) {
    const std::size_t size = stretch.pattern->size() / pattern_length;
    std::size_t at = stretch.first % pattern_length;
    for (std::size_t left = stretch.elements; left > 0;) {
        const std::size_t some = left < pattern_length - at ? left : pattern_length - at;
        std::memcpy(to, stretch.pattern->data() + at * size, some * size);
        to += some * size;
        left -= some;
        at = 0;
    }
}

// Calls differs(element, expected element) for each pair of elements whose bytes differ.
template <class Differs>
void compare_sequence(const std::byte* got, const Stretch& stretch, const Differs& differs) {
    const std::size_t size = stretch.pattern->size() / pattern_length;
    std::size_t at = stretch.first % pattern_length;
    for (std::size_t left = stretch.elements; left > 0;) {
        const std::size_t some = left < pattern_length - at ? left : pattern_length - at;
        const std::byte* const want = stretch.pattern->data() + at * size;
        if (std::memcmp(got, want, some * size) != 0) {
            for (std::size_t i = 0; i < some * size; i += size) {
                if (std::memcmp(got + i, want + i, size) != 0) differs(got + i, want + i);
            }
        }
        got += some * size;
        left -= some;
        at = 0;
    }
}

}  // namespace ddp::bench
