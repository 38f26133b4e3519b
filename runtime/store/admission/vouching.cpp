#include "store/admission/vouching.hpp"

#include <algorithm>

namespace ddp::store {

ClientQuestion question_about(ClientId client, int connection) {
    return {.client = client,
            .there = base::address_of(connection, base::End::other),
            .here = base::address_of(connection, base::End::own)};
}

void Vouching::add(const ClientQuestion& question, const std::string& address,
                   Clock::time_point now) {
    const ClientId id = question.client;
    Address& place = addresses_[address];
    Waiting& waiting = waiting_.emplace(id, Waiting{question, address}).first->second;
    if (place.turns < most_asked) {
        give_turn(waiting, place, now);
    } else {
        place.others.push_back(id);
    }
}

void Vouching::give_turn(Waiting& waiting, Address& place, Clock::time_point now) {
    waiting.has_turn = true;
    ++place.turns;
    questions_.push_back(waiting.question.client);
    asked_.emplace_back(now, waiting.question.client);
}

std::optional<ClientQuestion> Vouching::take_question(Clock::time_point now) {
    last_turn_ = now;
    while (!questions_.empty()) {
        const auto found = waiting_.find(questions_.front());
        questions_.pop_front();
        if (found != waiting_.end()) return found->second.question;
    }
    return std::nullopt;
}

void Vouching::remove(ClientId client, Clock::time_point now) {
    const auto found = waiting_.find(client);
    if (found == waiting_.end()) return;
    const Waiting gone = std::move(found->second);
    waiting_.erase(found);
    if (!gone.has_turn) return;
    Address& place = addresses_.at(gone.address);
    --place.turns;
    while (!place.others.empty() && place.turns < most_asked) {
        const auto next = waiting_.find(place.others.front());
        place.others.pop_front();
        if (next != waiting_.end()) give_turn(next->second, place, now);
    }
    if (place.turns == 0) addresses_.erase(gone.address);
}

void Vouching::clear() { *this = Vouching(); }

void Vouching::drop_answered() {
    while (!asked_.empty() && !waiting_.contains(asked_.front().second)) asked_.pop_front();
}

std::vector<ClientId> Vouching::overdue(Clock::time_point now) {
    if (now - last_turn_ >= own_pause) excused_until_ = now + own_pause;
    if (now < excused_until_) return {};
    std::vector<ClientId> late;
    for (const auto& [since, client] : asked_) {
        if (since + longest_answer > now) break;
        if (waiting_.contains(client)) late.push_back(client);
    }
    return late;
}

std::optional<Vouching::Clock::time_point> Vouching::wakes_at() {
    drop_answered();
    if (asked_.empty()) return std::nullopt;
    return std::max(asked_.front().first + longest_answer, excused_until_);
}

std::optional<ClientId> Vouching::first_to_go() const {
    if (waiting_.empty()) return std::nullopt;
    const auto most = std::ranges::max_element(addresses_, {}, [](const auto& entry) {
        return entry.second.turns + entry.second.others.size();
    });
    for (auto last = most->second.others.rbegin(); last != most->second.others.rend(); ++last) {
        if (waiting_.contains(*last)) return *last;
    }
    return std::ranges::find_if(
               waiting_, [&](const auto& entry) { return entry.second.address == most->first; })
        ->first;
}

}  // namespace ddp::store
