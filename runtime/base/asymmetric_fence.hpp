// Two fences that together order as two seq_cst fences do, of which the one on the fast path costs
// nothing (C++ proposal P1202): a light fence is a fence for the compiler alone, a heavy one makes
// every core that runs a registered thread pass a full fence meanwhile (membarrier(2), 1 us).
// Invariant: a store before a light fence is seen after the heavy fence, or a store before the
// heavy fence is seen after the light one. Two light fences order nothing.
#pragma once

#include <atomic>

namespace ddp::base {
namespace detail {

// Whether the kernel takes a heavy fence to this process's cores. Where it does not (before Linux
// 4.16, or refused by a seccomp filter), light fences are full ones.
extern std::atomic<bool> reached_by_heavy_fences;

}  // namespace detail

inline void light_fence() noexcept {
    if (detail::reached_by_heavy_fences.load(std::memory_order_relaxed)) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
        std::atomic_thread_fence(std::memory_order_seq_cst);
    }
}

// Against light fences of this process's threads.
void heavy_fence() noexcept;
// Against light fences of all processes that link this library. False: the kernel refuses this
// process such a fence (others may have been given theirs), so it was a full fence of this thread.
bool heavy_fence_across_processes() noexcept;

}  // namespace ddp::base
