// EpochPasses: tells of the well-known trap of samplers, an epoch that shows the samples in the
// same order as the one before, because nobody called set_epoch. Not for users.
#pragma once

#include <ddp/export.hpp>

#include <cstdint>
#include <string_view>

namespace ddp::data {

// What a shuffled order counts its passes with.
class DDP_API EpochPasses {
public:
    void set_epoch() noexcept { passed_ = false; }
    // A pass begins. The second one without set_epoch is warned of, once: "`who`: a second pass..."
    void begin(std::string_view who, std::int64_t epoch);

private:
    bool passed_ = false;
    bool warned_ = false;
};

}  // namespace ddp::data
