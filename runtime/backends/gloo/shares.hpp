// Which elements of a buffer belong to whom. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace ddp::gloo {

struct Share {
    std::size_t first = 0;
    std::size_t count = 0;

    std::size_t end() const { return first + count; }
};
using Shares = std::vector<Share>;

// The `index`th of so many even parts; the first ones take one more.
inline Share even_share(const Share& whole, std::size_t index, std::size_t parts) {
    const std::size_t each = whole.count / parts;
    const std::size_t longer = whole.count % parts;
    return {whole.first + index * each + std::min(index, longer), each + (index < longer ? 1 : 0)};
}

// One after the other, without gaps.
inline Shares shares_of(std::span<const std::size_t> counts) {
    Shares shares;
    std::size_t first = 0;
    for (const std::size_t count : counts) {
        shares.push_back({first, count});
        first += count;
    }
    return shares;
}
// Those of a call's uneven parts; without any, as many elements for each of the ranks.
inline Shares shares_of(const std::vector<std::size_t>* counts, std::size_t ranks,
                        std::size_t elements) {
    return shares_of(counts != nullptr ? *counts : std::vector<std::size_t>(ranks, elements));
}

}  // namespace ddp::gloo
