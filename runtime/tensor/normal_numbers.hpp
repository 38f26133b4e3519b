// Normally distributed numbers: torch.randn's on the CPU, from the same random bits.
#pragma once

#include <cstdint>
#include <span>

namespace ddp::device {

// Mean 0, variance 1. A function of the seed's low 32 bits and the number of values alone.
void fill_normal(std::span<float> values, std::uint64_t seed);
void fill_normal(std::span<double> values, std::uint64_t seed);

}  // namespace ddp::device
