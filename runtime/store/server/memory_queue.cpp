// First come, first served. Nobody is hurried as long as nobody waits.
#include "store/server/memory_queue.hpp"

#include <algorithm>

namespace ddp::store {

void MemoryQueue::wait(ClientId client, Clock::time_point now) {
    begin(now);
    waiting_.push_back({client, now});
}

void MemoryQueue::wait_first(ClientId client, Clock::time_point now) {
    begin(now);
    waiting_.push_front({client, now});
}

// The pace counts from the moment when somebody waits.
void MemoryQueue::begin(Clock::time_point now) {
    if (!waiting_.empty()) return;
    for (auto& [client, mark] : senders_) mark.time = now;
}

bool MemoryQueue::is_waiting(ClientId client) const {
    return std::any_of(waiting_.begin(), waiting_.end(),
                       [client](const Waiting& entry) { return entry.client == client; });
}

std::vector<ClientId> MemoryQueue::waiting() const {
    std::vector<ClientId> clients;
    clients.reserve(waiting_.size());
    for (const auto& entry : waiting_) clients.push_back(entry.client);
    return clients;
}

void MemoryQueue::stop_waiting(ClientId client) {
    std::erase_if(waiting_, [client](const Waiting& entry) { return entry.client == client; });
}

void MemoryQueue::note_sender(ClientId client, std::uint64_t received, Clock::time_point now) {
    senders_.try_emplace(client, Mark{received, now});
}

void MemoryQueue::remove(ClientId client) {
    stop_waiting(client);
    remove_sender(client);
}

void MemoryQueue::clear() {
    waiting_.clear();
    senders_.clear();
}

std::vector<ClientId> MemoryQueue::waited_too_long(Clock::time_point now) const {
    std::vector<ClientId> clients;
    for (const auto& entry : waiting_) {
        if (now - entry.since >= longest_wait) clients.push_back(entry.client);
    }
    return clients;
}

}  // namespace ddp::store
