// The Fisher-Yates shuffle of ATen's randperm_cpu, driven by MT19937, which torch and the C++
// standard define alike. Not std::shuffle: it may use the random numbers in any way it likes.
#include "data/random_permutation.hpp"

#include <numeric>
#include <random>
#include <utility>

namespace ddp::data {

std::vector<std::size_t> random_permutation(std::size_t n, std::uint64_t seed) {
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::mt19937 random{static_cast<std::uint32_t>(seed)};
    // i + 1 < n, not i < n - 1: n may be 0.
    for (std::size_t i = 0; i + 1 < n; ++i) {
        const std::size_t distance = random() % (n - i);
        std::swap(order[i], order[i + distance]);
    }
    return order;
}

}  // namespace ddp::data
