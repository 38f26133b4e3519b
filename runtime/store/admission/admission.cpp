#include "store/admission/admission.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>

#include <cerrno>

namespace ddp::store {

PeerCheck::Verdict Admission::look_at(int connection, Agents agents) {
    auto verdict = peers_.look_at(connection);
    if (verdict.is_elsewhere && agents == Agents::closed)
        verdict.refusal = hosts_.refusal(connection);
    return verdict;
}

Admission::Step Admission::before_reading(ServerClient& client) {
    if (client.voucher == Vouched::not_needed) return {};
    if (client.voucher == Vouched::awaited) return {Next::wait};
    std::uint8_t first = 0;
    const auto count = ::recv(client.fd(), &first, 1, MSG_PEEK | MSG_DONTWAIT);
    if (count == 0) return {Next::end_of_input};
    if (count < 0 && errno == EAGAIN) return {Next::wait};
    if (count < 0) return {.next = Next::close, .why = "connection lost"};
    if (first == agent_hello || client.is_of_no_attempt()) return {};
    Step step = look_at_host(client);
    if (step.next != Next::read) return step;
    client.voucher = Vouched::awaited;
    vouching_.add(question_about(client.id(), client.fd()), client.address(),
                  Vouching::Clock::now());
    return {Next::wait};
}

Admission::Step Admission::first_words(const ServerClient& client) {
    if (!client.is_of_no_attempt()) return look_at_host(client);
    return {.next = Next::close, .why = "it came before this attempt"};
}

Admission::Step Admission::look_at_host(const ServerClient& client) {
    if (!client.is_elsewhere()) return {};
    auto refusal = hosts_.refusal(client.fd());
    if (!refusal) return {};
    return {.next = Next::close, .warning = *std::move(refusal)};
}

Admission::Step Admission::look_at_request(const ServerClient& client, const Request& request) {
    if (!client.is_elsewhere() || request.keys.empty()) return {};
    const std::string_view key = request.keys.front();
    if (key.find("torch.rendezvous.") == key.npos &&
        key.find("torchelastic/role_info") == key.npos) {
        return {};
    }
    return {.next = Next::close,
            .warning = "refused " + peer_address(client.fd()) +
                       ": it is a torchrun agent; all hosts of a job need one launcher"};
}

Admission::Step Admission::vouched(ServerClient& client, bool is_of_job) {
    vouching_.remove(client.id(), Vouching::Clock::now());
    client.voucher = Vouched::not_needed;
    if (is_of_job) return {};
    return {.next = Next::close,
            .warning = "refused " + peer_address(client.fd()) +
                       ": no launcher of this job there vouches for it"};
}

Admission::Step Admission::unanswered(const ServerClient& client) {
    return {.next = Next::close,
            .warning = "refused " + peer_address(client.fd()) +
                       ": the launcher on its host does not answer whose it is"};
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
