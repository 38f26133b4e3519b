// First come, first served. Nobody is hurried as long as nobody waits.
#include "store/server/memory_queue.hpp"

#include <algorithm>

namespace ddp::store {

void RoomQueue::wait(ClientId client, Clock::time_point now) {
    begin(now);
    waiting_.push_back({client, now});
}

void RoomQueue::wait_first(ClientId client, Clock::time_point now) {
    begin(now);
    waiting_.push_front({client, now});
}

// The pace counts from the moment when somebody waits.
void RoomQueue::begin(Clock::time_point now) {
    if (!waiting_.empty()) return;
    for (auto& [client, mark] : senders_) mark.time = now;
}

bool RoomQueue::is_waiting(ClientId client) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [client](const Waiting& entry) { return entry.client == client; });
}

std::vector<ClientId> RoomQueue::waiting() const {
    std::vector<ClientId> clients;
    clients.reserve(waiting_.size());
    for (const auto& entry : waiting_) clients.push_back(entry.client);
    return clients;
}

void RoomQueue::stop_waiting(ClientId client) {
    std::erase_if(waiting_, [client](const Waiting& entry) { return entry.client == client; });
}

void RoomQueue::note_sender(ClientId client, std::uint64_t received, Clock::time_point now) {
    senders_.try_emplace(client, Mark{received, now});
}

void RoomQueue::remove(ClientId client) {
    stop_waiting(client);
    remove_sender(client);
}

void RoomQueue::clear() {
    waiting_.clear();
    senders_.clear();
}

std::vector<ClientId> RoomQueue::waited_too_long(Clock::time_point now) const {
    std::vector<ClientId> clients;
    for (const auto& entry : waiting_) {
        if (now - entry.since >= longest_wait) clients.push_back(entry.client);
    }
    return clients;
}

}  // namespace ddp::store
