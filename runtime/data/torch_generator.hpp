// The random numbers of torch's CPU generator, which is MT19937 (Matsumoto and Nishimura, 1998).
// Not std::mt19937: it gives the same numbers, but one by one; these are made 624 at a time by
// loops that the compiler vectorises, which takes a quarter of the time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ddp::data {

class TorchGenerator {
public:
    // As manual_seed, of which only the low 32 bits count.
    explicit TorchGenerator(std::uint64_t seed);

    std::uint32_t random() {
        if (next_ == words) refill();
        return numbers_[next_++];
    }
    std::uint64_t random64() {
        const std::uint64_t high = random();
        return high << 32 | random();
    }

private:
    static constexpr std::size_t words = 624;

    void refill();

    std::array<std::uint32_t, words> state_;
    std::array<std::uint32_t, words> numbers_{};
    std::size_t next_ = words;
};

}  // namespace ddp::data
