// Small things are charged after the fact, since they cost at most one read; large ones before.
#include "store/server/client_memory.hpp"

#include <ddp/error.hpp>

#include <algorithm>
#include <utility>

namespace ddp::store {
namespace {

using Use = MemoryBudget::Use;

constexpr std::chrono::seconds longest_without_reading{5};

}  // namespace

bool ClientMemory::get_memory(ServerClient& client) {
    if (client.pending) {
        const auto bytes = data_.reply_bytes(*client.pending);
        if (bytes <= RequestParser::bytes_without_grant || bytes <= client.charged.reply)
            return true;
    }
    if (queue_.empty() && reserve(client) == Grant::granted) return true;
    wait(client);
    return false;
}

ClientMemory::Grant ClientMemory::reserve(ServerClient& client) {
    if (!client.pending) return reserve_for_request(client);
    const auto bytes = data_.reply_bytes(*client.pending);
    if (!data_.budget().charge_large(client.id(), Use::reply, bytes)) return Grant::no_memory;
    client.charged.reply = bytes;
    return Grant::granted;
}

ClientMemory::Grant ClientMemory::reserve_for_request(ServerClient& client) {
    auto& budget = data_.budget();
    const auto id = client.id();
    const auto wanted = client.parser.wanted_memory();
    const auto bytes = wanted + client.parser.unread_bytes();
    if (!budget.may_ever_have(id, bytes)) {
        throw UsageError{"a request of " + std::to_string(wanted) + " bytes where at most " +
                         std::to_string(budget.most_for(id)) + " are allowed"};
    }
    if (client.parser.wants_more_later() && !take_slot(id)) return Grant::no_slot;
    if (!budget.charge_large(id, Use::request, bytes)) return Grant::no_memory;
    client.charged.request = bytes;
    client.parser.grant_memory(wanted);
    queue_.note_sender(id, client.parser.received_bytes(), Clock::now());
    return Grant::granted;
}

bool ClientMemory::take_slot(ClientId client) {
    auto& [first, second] = slots_;
    if (first == client || second == client) return true;
    if (first != 0 && (second != 0 || !data_.budget().is_rank(client))) return false;
    (first == 0 ? first : second) = client;
    return true;
}

void ClientMemory::release_slot(ClientId client) {
    for (auto& slot : slots_) {
        if (slot != client) continue;
        slot = 0;
        recheck_ = true;
    }
}

void ClientMemory::wait(ServerClient& client) {
    client.waits_for_memory = true;
    recheck_ = true;
    if (client.parser.granted_memory() > 0) {
        queue_.wait_first(client.id(), Clock::now());
    } else {
        queue_.wait(client.id(), Clock::now());
    }
}

// Ranks do not wait for others, nor others for ranks; else nobody overtakes.
ClientMemory::Decisions ClientMemory::admit() {
    Decisions decisions;
    auto& budget = data_.budget();
    recheck_ |= budget.take_released();
    if (queue_.empty() || !std::exchange(recheck_, false)) return decisions;
    std::array<bool, 2> is_full{};
    for (const auto id : queue_.waiting()) {
        auto& client = clients_.at(id);
        auto& full = is_full[budget.is_rank(id) ? 1 : 0];
        if (full) continue;
        try {
            const auto grant = reserve(client);
            full = grant == Grant::no_memory;
            if (grant != Grant::granted) continue;
            decisions.resumed.push_back(id);
        } catch (const std::exception& error) {
            decisions.evicted.push_back({id, error.what()});
        }
        queue_.stop_waiting(id);
        client.waits_for_memory = false;
    }
    return decisions;
}

std::vector<ClientMemory::Evicted> ClientMemory::overdue(Clock::time_point now) {
    std::vector<Evicted> evicted;
    if (queue_.empty()) return evicted;
    for (auto& [id, client] : clients_) {
        if (client.charged.reply <= RequestParser::bytes_without_grant) continue;
        if (client.read_pace.is_stalled(client.backlog(), now, longest_without_reading)) {
            evicted.push_back({id, "does not read its replies, while others wait for its memory"});
        }
    }
    for (const auto id : queue_.waited_too_long(now)) {
        evicted.push_back({id, "no memory was free for its request within 30 s"});
    }
    const auto received = [this](ClientId id) { return clients_.at(id).parser.received_bytes(); };
    for (const auto id : queue_.too_slow(now, received)) {
        evicted.push_back({id, "sends too slowly, while others wait for its memory"});
    }
    return evicted;
}

std::vector<ClientMemory::Evicted> ClientMemory::limit_detached() {
    std::vector<Evicted> evicted;
    auto& detached = data_.detached();
    const auto most = data_.budget().left_for_detached();
    if (detached.bytes() <= most) return evicted;
    for (detached.recount(); detached.bytes() > most; detached.recount()) {
        ServerClient* slowest = nullptr;
        std::size_t most_unread = 0;
        for (auto& [id, client] : clients_) {
            const auto unread = client.outbox().detached_bytes();
            if (unread <= most_unread) continue;
            slowest = &client;
            most_unread = unread;
        }
        if (slowest == nullptr) break;
        evicted.push_back({slowest->id(), "does not read its replies"});
        slowest->drop_replies();
    }
    return evicted;
}

std::string ClientMemory::charge(ServerClient& client) {
    if (!client.identified) return {};  // at most max_first_request_bytes
    auto& budget = data_.budget();
    const auto request =
        client.parser.held_bytes() + (client.pending ? cost_of(*client.pending) : 0);
    if (request != client.charged.request) {
        if (!budget.charge(client.id(), Use::request, request)) {
            return "no memory left for its request";
        }
        client.charged.request = request;
        if (client.parser.granted_memory() == 0) {
            queue_.remove_sender(client.id());
            release_slot(client.id());
        }
    }
    auto reply = client.outbox().owned_bytes();
    if (client.pending) reply = std::max(reply, client.charged.reply);
    if (reply != client.charged.reply) {
        if (!budget.charge(client.id(), Use::reply, reply)) return "does not read its replies";
        client.charged.reply = reply;
    }
    return {};
}

void ClientMemory::forget(ClientId client) {
    queue_.remove(client);
    release_slot(client);
}

void ClientMemory::clear() {
    queue_.clear();
    slots_ = {};
}

}  // namespace ddp::store
