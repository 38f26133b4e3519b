// Sleeping at a 32-bit word until another thread wakes the sleepers (futex(2)). The only place
// that makes the system call. Invariant: a sleep begins only while the word has the expected value,
// which the kernel compares, so a change before the wake-up is never slept through.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace ddp::base {

enum class FutexScope { process, shared };  // shared: the word lies in memory of several processes

template <class Word>
concept FutexWord =
    std::integral<Word> && sizeof(Word) == sizeof(std::uint32_t) &&
    sizeof(std::atomic<Word>) == sizeof(Word) && std::atomic<Word>::is_always_lock_free;

// What the two templates call. `word`: the address of a 32-bit word.
void futex_wait_at(const void* word, std::uint32_t expected, FutexScope scope,
                   std::optional<std::chrono::nanoseconds> timeout) noexcept;
void futex_wake_all_at(const void* word, FutexScope scope) noexcept;

// Until futex_wake_all, if the word is `expected`; at most for `timeout`, which is not negative.
// May return early.
template <FutexWord Word>
void futex_wait(const std::atomic<Word>& word, std::type_identity_t<Word> expected,
                FutexScope scope, std::optional<std::chrono::nanoseconds> timeout = {}) noexcept {
    futex_wait_at(&word, std::bit_cast<std::uint32_t>(expected), scope, timeout);
}
template <FutexWord Word>
void futex_wake_all(const std::atomic<Word>& word, FutexScope scope) noexcept {
    futex_wake_all_at(&word, scope);
}

}  // namespace ddp::base
