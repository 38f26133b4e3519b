// The nearest of a few known names, for the word that somebody mistyped. A suggestion that is far
// off is worse than none, so only a few edits are forgiven.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::launcher {

// Edits that turn one word into the other: insert, delete, replace, swap two neighbours.
std::size_t edit_distance(std::string_view left, std::string_view right);

// The candidate with the smallest distance to `word`, at most a quarter of its length, or 1; of
// equals the first. When none is so near, the shortest candidate that begins with `word`. Nothing
// when neither exists.
std::optional<std::string> did_you_mean(std::string_view word,
                                        std::span<const std::string> candidates);

}  // namespace ddp::launcher
