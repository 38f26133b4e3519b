#include "base/deadline.hpp"

namespace ddp::base {

std::string to_string(std::chrono::milliseconds time) {
    const auto ms = time.count();
    if (ms < 1000) return std::to_string(ms) + " ms";
    if (ms % 60000 == 0) return std::to_string(ms / 60000) + " min";
    if (ms % 1000 == 0) return std::to_string(ms / 1000) + " s";
    return std::to_string(ms / 1000) + "." + std::to_string(ms % 1000 / 100) + " s";
}

}  // namespace ddp::base
