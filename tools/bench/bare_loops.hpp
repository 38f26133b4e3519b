// What the bare loops are made of (bench/floor.hpp, bench/bare.hpp).
#pragma once

#include <ddp/process_group.hpp>

#include <sched.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

namespace ddp::bench {

inline constexpr std::size_t line_bytes = 64;

// So that the lines, which others have read, are this core's before it writes them.
[[gnu::target("prfchw")]] inline void claim(std::byte* at, std::size_t bytes) {
    for (std::size_t i = 0; i < bytes; i += line_bytes) __builtin_prefetch(at + i, 1);
}

inline bool is_crowded(const ProcessGroup& group) {
    return static_cast<unsigned>(group.size()) > std::thread::hardware_concurrency();
}

inline std::atomic<std::uint32_t>& flag_at(std::byte* place) {
    return *reinterpret_cast<std::atomic<std::uint32_t>*>(place);
}

// Until the flag has come to that turn.
inline void wait_for(const std::atomic<std::uint32_t>& flag, std::uint32_t turn, bool crowded) {
    const auto missing = [&] {
        return static_cast<std::int32_t>(turn - flag.load(std::memory_order_acquire));
    };
    for (int looks = 0; missing() > 0; ++looks) {
        if (crowded || looks > 2000) ::sched_yield();
    }
}

}  // namespace ddp::bench
