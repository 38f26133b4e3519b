// The slots of Gloo's pairs that this backend uses. Messages of one slot from one rank to another
// are matched in their order.
#pragma once

#include <cstdint>

namespace ddp::gloo {

inline constexpr std::uint64_t liveness_slot = 1;      // never sent
inline constexpr std::uint64_t abort_notice_slot = 2;  // once
inline constexpr std::uint64_t collective_slot = 3;
// Point to point: the sender tells its size and the receiver its own, then the data follows.
inline constexpr std::uint64_t sender_slot = 4;
inline constexpr std::uint64_t receiver_slot = 5;
inline constexpr std::uint64_t transfer_slot = 6;

}  // namespace ddp::gloo
