// What a look at the whole job takes: the coordinator asks the hosts of its round what they would
// show of their ranks, and each answers with rows, as bytes protocol.md's.
#pragma once

#include "launcher/hosts/messages/message_bytes.hpp"
#include "launcher/report/rank_row.hpp"

#include <cstdint>
#include <vector>

namespace ddp::launcher {

// Down.
struct ShowMessage {
    int round = 0;
    std::uint64_t question = 0;
};
inline constexpr std::uint64_t unasked = 0;  // a question: the member's workers have ended
// Up. The rows name no hosts.
struct RowsMessage {
    int round = 0;
    std::uint64_t question = unasked;
    std::vector<RankRow> rows = {};
};

// What would not fit into a frame is left out, rows from the end on.
void put_rows(MessageWriter& out, const std::vector<RankRow>& rows);
// Throws UsageError on anything that put_rows() does not make.
std::vector<RankRow> take_rows(MessageReader& in);

}  // namespace ddp::launcher
