#include <ddp/detail/epoch_passes.hpp>

#include "base/log.hpp"

#include <string>
#include <utility>

namespace ddp::data {

void EpochPasses::begin(std::string_view who, std::int64_t epoch) {
    if (!std::exchange(passed_, true) || std::exchange(warned_, true)) return;
    base::log_warn("data", std::string(who) + ": a second pass over epoch " +
                               std::to_string(epoch) +
                               " shows the samples in the same order again; call "
                               "set_epoch(epoch) before each epoch");
}

}  // namespace ddp::data
