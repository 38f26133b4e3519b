// MT19937's recurrence, in three loops in which no turn needs the result of a turn shortly before.
#include "data/torch_generator.hpp"

namespace ddp::data {

namespace {

constexpr std::size_t middle = 397;

std::uint32_t twisted(std::uint32_t high, std::uint32_t low) {
    const std::uint32_t mixed = (high & 0x80000000U) | (low & 0x7FFFFFFFU);
    return mixed >> 1 ^ ((low & 1U) * 0x9908B0DFU);
}

}  // namespace

TorchGenerator::TorchGenerator(std::uint64_t seed) {
    state_[0] = static_cast<std::uint32_t>(seed);
    for (std::uint32_t i = 1; i < words; ++i) {
        state_[i] = 1812433253U * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
    }
}

void TorchGenerator::refill() {
    constexpr std::size_t rest = words - middle;
    for (std::size_t i = 0; i < rest; ++i) {
        state_[i] = state_[i + middle] ^ twisted(state_[i], state_[i + 1]);
    }
    for (std::size_t i = rest; i < words - 1; ++i) {
        state_[i] = state_[i - rest] ^ twisted(state_[i], state_[i + 1]);
    }
    state_[words - 1] = state_[middle - 1] ^ twisted(state_[words - 1], state_[0]);

    for (std::size_t i = 0; i < words; ++i) {
        std::uint32_t number = state_[i];
        number ^= number >> 11;
        number ^= number << 7 & 0x9D2C5680U;
        number ^= number << 15 & 0xEFC60000U;
        numbers_[i] = number ^ number >> 18;
    }
    next_ = 0;
}

}  // namespace ddp::data
