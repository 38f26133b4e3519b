// An eventcount of the code, on modelled atomics: with the orders and fences of its own policy, and
// the explorer's sleep and wake-up. Models derive from it what they weaken.
#pragma once

#include "base/eventcount.hpp"
#include "explorer/explorer.hpp"

#include <cstdint>

namespace explorer {

// `Real`: the policy that the code uses.
template <class Real>
struct ModelPolicy {
    template <class T>
    using Atomic = explorer::Atomic<T>;
    using Timeout = typename Real::Timeout;
    static constexpr auto load_epoch = Real::load_epoch;
    static constexpr auto advance_epoch = Real::advance_epoch;
    static void light_fence() { explorer::light_fence(); }
    static void heavy_fence() { explorer::heavy_fence(); }
    static void sleep(Atomic<std::uint32_t>& word, std::uint32_t expected, Timeout) {
        word.park(expected);
    }
    static void wake_all(Atomic<std::uint32_t>& word) { word.wake_all(); }
};

}  // namespace explorer
