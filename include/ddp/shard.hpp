// Which part of a whole: part `index` of `count`. A type of its own so that the two are never
// swapped.
#pragma once

#include <cstddef>

namespace ddp {

struct Shard {
    std::size_t index = 0;  // 0 <= index < count
    std::size_t count = 1;  // at least 1
};

}  // namespace ddp
