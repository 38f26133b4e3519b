// The queue of silent connections. Were a 1.13 client's second connection closed, a thread of that
// client would spin: it opens it right after the reply to its first request, or, when it does not
// wait for workers, before that request. Invariant: an excused connection is not in the queue.
#include "store/server/silent_clients.hpp"

#include <algorithm>

namespace ddp::store {

void SilentClients::add(ClientId id, const std::string& address) {
    const auto due = partners_due_.find(address);
    if (due == partners_due_.end()) {
        silent_.push_back({id, address});
    } else {
        partners_due_.erase(due);
    }
}

void SilentClients::remove(ClientId id) {
    std::erase_if(silent_, [id](const Silent& silent) { return silent.id == id; });
}

void SilentClients::forget(ClientId id, const std::string& address) {
    remove(id);
    const auto [first, last] = partners_due_.equal_range(address);
    const auto due = std::find_if(first, last, [id](const auto& who) { return who.second == id; });
    if (due != last) partners_due_.erase(due);
}

void SilentClients::excuse_partner_of(ClientId id, const std::string& address) {
    const auto partner = std::find_if(silent_.begin(), silent_.end(), [&](const Silent& silent) {
        return silent.id > id && silent.address == address;
    });
    if (partner == silent_.end()) {
        partners_due_.emplace(address, id);
    } else {
        silent_.erase(partner);
    }
}

std::optional<SilentClients::ClientId> SilentClients::oldest() const {
    return silent_.empty() ? std::nullopt : std::optional{silent_.front().id};
}

std::optional<SilentClients::ClientId> SilentClients::surplus() const {
    return silent_.size() > most_ ? oldest() : std::nullopt;
}

void SilentClients::clear() {
    silent_.clear();
    partners_due_.clear();
}

}  // namespace ddp::store
