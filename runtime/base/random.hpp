// Random numbers from the kernel: for cookies and names that nobody guesses. Not for training.
#pragma once

#include <cstdint>

namespace ddp::base {

std::uint64_t random_bits();  // throws SystemError

}  // namespace ddp::base
