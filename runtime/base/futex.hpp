// Sleeping at a 32-bit word until another thread wakes the sleepers (futex(2)).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>

namespace ddp::base {

enum class FutexScope { process, shared };  // shared: the word lies in memory of several processes

// Until futex_wake_all, if the word is `expected`; at most for `timeout`, less than a second. May
// return early.
void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected, FutexScope scope,
                std::optional<std::chrono::nanoseconds> timeout = {}) noexcept;
void futex_wake_all(std::atomic<std::uint32_t>& word, FutexScope scope) noexcept;

}  // namespace ddp::base
