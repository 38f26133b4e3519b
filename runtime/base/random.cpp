#include "base/random.hpp"

#include <ddp/error.hpp>

#include <sys/random.h>

#include <cerrno>

namespace ddp::base {

std::uint64_t random_bits() {
    std::uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) throw SystemError("getrandom", errno);
    return bits;
}

}  // namespace ddp::base
