#include "store/admission/admission.hpp"

#include <ddp/error.hpp>

namespace ddp::store {

PeerCheck::Verdict Admission::look_at(int connection, Agents agents) {
    auto verdict = peers_.look_at(connection);
    if (verdict.is_elsewhere && agents == Agents::closed)
        verdict.refusal = host_refusal(connection);
    return verdict;
}

Admission::Answer Admission::join(ClientId client, const Request& request,
                                  const std::function<bool(ClientId)>& has_hung_up) {
    const auto claim = decode_claim(request.values.front());
    if (!claim) throw UsageError{"store: a JOIN that is none"};
    auto refusal = claims_.join(client, *claim);
    if (refusal) {
        bool freed = false;
        for (const ClientId other : claims_.connections_of(claim->rank)) {
            if (!has_hung_up(other)) continue;
            claims_.leave(other);
            freed = true;
        }
        if (freed) refusal = claims_.join(client, *claim);
    }
    Answer answer{{client, {}}, refusal.value_or("")};
    append_u8(answer.reply.bytes,
              static_cast<std::uint8_t>(refusal ? JoinReply::refused : JoinReply::joined));
    const int program = refusal ? 0 : claims_.program_of(claim->rank);
    append_bytes(answer.reply.bytes, program > 0 ? std::to_string(program) : answer.refusal);
    return answer;
}

std::string Admission::describe(ClientId client, int connection) {
    std::string rank = claims_.describe(client);
    if (!rank.empty()) return rank;
    const auto [known, is_new] = described_.try_emplace(client);
    if (is_new) known->second = peers_.describe(connection);
    return known->second;
}

}  // namespace ddp::store
