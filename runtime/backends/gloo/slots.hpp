// The slots that messages are sent in. Messages of one slot from one rank to another are matched in
// their order.
#pragma once

#include <cstdint>

namespace ddp::gloo {

inline constexpr std::uint64_t liveness_slot = 1;      // never sent; of Gloo
inline constexpr std::uint64_t abort_notice_slot = 2;  // once
inline constexpr std::uint64_t collective_slot = 3;
// Point to point: the sender tells its size and the receiver its own, then the data follows.
inline constexpr std::uint64_t sender_slot = 4;
inline constexpr std::uint64_t receiver_slot = 5;
inline constexpr std::uint64_t transfer_slot = 6;
// While ranks connect by UCX.
inline constexpr std::uint64_t first_hello_slot = 7;
inline constexpr std::uint64_t second_hello_slot = 8;

}  // namespace ddp::gloo
