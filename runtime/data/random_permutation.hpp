// torch.randperm on the CPU, bit for bit, so that a C++ job sees the samples in the order in which
// the Python job it replaces saw them. Invariant: the result is a permutation of 0 .. n - 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ddp::data {

// What `torch.randperm(n, generator=torch.Generator().manual_seed(seed))` gives in all versions for
// n < 214,748,364 (UINT32_MAX / 20), and in torch before 2.6 for larger n; newer ones use another
// algorithm there (pytorch/pytorch#144735). As in torch, only the low 32 bits of the seed count.
std::vector<std::size_t> random_permutation(std::size_t n, std::uint64_t seed);

}  // namespace ddp::data
