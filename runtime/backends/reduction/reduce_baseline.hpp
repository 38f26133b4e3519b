// What every processor of an architecture has, as the sources of baseline kernels take it. Each
// derives its Machine from it, which adds how results are stored past the caches.
#pragma once

#include <cstddef>

namespace ddp::backends {
namespace {

struct Baseline {
    static constexpr std::size_t vector_bytes = 16;
    static constexpr bool combines_into_several = false;
    static void prefetch_to_write(std::byte* at) { __builtin_prefetch(at, 1); }
};

}  // namespace
}  // namespace ddp::backends
