#pragma once

#include <chrono>
#include <thread>

namespace ddp::testing {

// Whether it does within 30 s.
template <class Condition>
bool comes_true(const Condition& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds{30};
    while (!condition() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    return condition();
}

}  // namespace ddp::testing
