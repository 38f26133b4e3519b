// Text of others in messages: one line, nothing that a terminal obeys.
#pragma once

#include <string>
#include <string_view>

namespace ddp::base {

// The first `most` bytes; each that is not a printable ASCII character is a '?'.
std::string printable(std::string_view text, std::size_t most = std::string_view::npos);

}  // namespace ddp::base
