// RandpermEra: which PyTorch a random order is to be equal to. PyTorch changed in January 2025 how
// torch.randperm and torch.randint use their random numbers when the range is large
// (pytorch/pytorch#144735, #143787); smaller ranges give the same numbers in 1.13.1 and 2.15.
#pragma once

#include <cstdint>

namespace ddp {

// To tell which one an installation has: torch.randperm(214748364,
// generator=torch.Generator().manual_seed(42))[0] is 85514504, or 105398994 before.
enum class RandpermEra : std::uint8_t {
    since_2025,   // seen in 2.15
    before_2025,  // seen in 1.13
};

}  // namespace ddp
