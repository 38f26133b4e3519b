// torch.randperm on the CPU, bit for bit, so that a C++ job sees the samples in the order in which
// the Python job it replaces saw them. Invariant: the result is a permutation of 0 .. n - 1, or the
// asked part of one.
#pragma once

#include <ddp/randperm_era.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "data/torch_generator.hpp"

namespace ddp::data {

// Indices into an order: `count` of them, every `stride`-th from `first` on, modulo its length.
struct StridedSlice {
    std::size_t first = 0;
    std::size_t stride = 1;
    std::size_t count = 0;
};

// From this n on the eras differ: UINT32_MAX / 20.
constexpr std::size_t randperm_changes_at = 214'748'364;

// What `torch.randperm(n, generator=generator)` has in the slice. Takes 4 n bytes up to n = 2^32,
// and no more for the result when that is at most half of the order.
std::vector<std::size_t> random_permutation(std::size_t n, const StridedSlice& slice,
                                            TorchGenerator& generator, RandpermEra era);

// All of it, for a new generator with that seed.
std::vector<std::size_t> random_permutation(std::size_t n, std::uint64_t seed, RandpermEra era);

}  // namespace ddp::data
