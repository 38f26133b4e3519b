// Optimal string alignment: Damerau's edit distance without editing one place twice.
#include "launcher/options/did_you_mean.hpp"

#include <algorithm>
#include <vector>

namespace ddp::launcher {

std::size_t edit_distance(std::string_view left, std::string_view right) {
    // Optimal string alignment, three rows at a time.
    std::vector<std::size_t> before(right.size() + 1);
    std::vector<std::size_t> above(right.size() + 1);
    std::vector<std::size_t> row(right.size() + 1);
    for (std::size_t j = 0; j <= right.size(); ++j) above[j] = j;
    for (std::size_t i = 1; i <= left.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= right.size(); ++j) {
            const std::size_t replace = left[i - 1] == right[j - 1] ? 0 : 1;
            row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + replace});
            if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        std::swap(before, above);
        std::swap(above, row);
    }
    return above[right.size()];
}

std::optional<std::string> did_you_mean(std::string_view word,
                                        std::span<const std::string> candidates) {
    constexpr std::size_t min_prefix = 3;
    std::optional<std::string> nearest;
    std::size_t best = std::max<std::size_t>(1, word.size() / 4) + 1;
    std::optional<std::string> longer;
    for (const std::string& candidate : candidates) {
        const std::size_t distance = edit_distance(word, candidate);
        if (distance < best && distance < word.size()) {
            best = distance;
            nearest = candidate;
        }
        const bool begins = word.size() >= min_prefix && candidate.starts_with(word);
        if (begins && (!longer || candidate.size() < longer->size())) longer = candidate;
    }
    return nearest ? nearest : longer;
}

}  // namespace ddp::launcher
