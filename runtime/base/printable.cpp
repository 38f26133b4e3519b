#include "base/printable.hpp"

#include <algorithm>

namespace ddp::base {

std::string printable(std::string_view text, std::size_t most) {
    std::string result(text.substr(0, most));
    std::replace_if(
        result.begin(), result.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
    return result;
}

}  // namespace ddp::base
