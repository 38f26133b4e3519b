#include "launcher/verdict/usual_times.hpp"

#include <algorithm>
#include <string_view>

namespace ddp::launcher {

namespace {

constexpr std::uint64_t prime = 0x100000001b3;

// FNV-1a: the same on every host.
std::uint64_t hash_of(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char letter : text) hash = (hash ^ static_cast<std::uint8_t>(letter)) * prime;
    return hash;
}

Patience::Duration patience_after(Patience::Duration longest_transfer) {
    return std::max<Patience::Duration>(UsualTimes::untaught, 2 * longest_transfer);
}

}  // namespace

// Elements are left out: a call of many sizes is one.
CallKey key_of(const contract::OperationRecord& operation) {
    CallKey key = operation.call.source == 0 ? hash_of(operation.file) + operation.line : 0;
    for (const std::uint64_t part :
         {std::uint64_t{operation.group}, std::uint64_t(operation.call.kind),
          std::uint64_t{contract::without_backward(operation.call.source)}}) {
        key = (key ^ part) * prime;
    }
    return key;
}

CallKey key_of(const contract::TransferRecord& transfer) {
    return hash_of(transfer.file) + 2 * std::uint64_t{transfer.line} + (transfer.sends ? 1 : 0);
}

// Within some thousand calls a long one is forgotten.
void UsualTimes::Samples::add(Duration value) {
    last[count++ % samples] = value;
    longest = std::max(value, longest - longest / 4096);
}

UsualTimes::Duration UsualTimes::Samples::median() const {
    std::array<Duration, samples> sorted = last;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count, samples));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
}

UsualTimes::Duration UsualTimes::Samples::most(Duration untaught) const {
    const Duration known =
        count > 0 ? std::max({least, 3 * median(), 2 * longest}) : Duration(least);
    return count < needed ? std::max(known, untaught) : known;
}

void UsualTimes::note(const contract::OperationRecord& operation, std::optional<Time> free_since) {
    if (!operation.ended) return;
    // A clock of ticks, and a page that anybody may have written to.
    const auto between = [](Time from, Time to) {
        return std::clamp<Duration>(to - from, Duration::zero(), std::chrono::hours{24});
    };
    Noted& noted = noted_[{key_of(operation), operation.sequence}];
    noted.wait = std::max(noted.wait, between(operation.started, *operation.ended));
    if (!free_since) return;
    const Duration before = between(*free_since, operation.started);
    noted.before = std::max(noted.before.value_or(before), before);
}

void UsualTimes::settle() {
    for (const auto& [key, noted] : noted_) {
        if (calls_.size() >= most_calls && !calls_.contains(key.first)) continue;
        Call& call = calls_[key.first];
        call.waits.add(noted.wait);
        if (noted.before) call.before.add(*noted.before);
    }
    noted_.clear();
}

// Waits that are too short to be seen teach nothing.
void UsualTimes::note(const contract::TransferRecord& transfer, Duration waited) {
    const CallKey key = key_of(transfer);
    if (transfers_.size() >= most_calls && !transfers_.contains(key)) return;
    Duration& longest = transfers_[key];
    longest = std::max(longest, waited);
}

UsualTimes::Duration UsualTimes::patience(const contract::TransferRecord& transfer) const {
    const auto found = transfers_.find(key_of(transfer));
    return patience_after(found != transfers_.end() ? found->second : Duration{0});
}

UsualTimes::Duration UsualTimes::patience(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    return found != calls_.end() ? found->second.waits.most(untaught) : untaught;
}

UsualTimes::Duration UsualTimes::time_before(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    return found != calls_.end() ? found->second.before.most(least) : least;
}

bool UsualTimes::is_taught(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    return found != calls_.end() && found->second.waits.count >= needed;
}

UsualTimes::Duration UsualTimes::alarm_after(const contract::OperationRecord& operation) const {
    return is_taught(operation) ? patience(operation) : Duration(least);
}

std::vector<UsualTime> UsualTimes::tell(const std::vector<CallKey>& calls) const {
    std::vector<UsualTime> told;
    for (const CallKey key : calls) {
        const auto call = calls_.find(key);
        const auto transfer = transfers_.find(key);
        if (call != calls_.end()) {
            told.push_back({key, call->second.waits.most(untaught), call->second.before.most(least),
                            call->second.waits.count >= needed});
        } else if (transfer != transfers_.end()) {
            told.push_back({key, patience_after(transfer->second), least});
        }
    }
    return told;
}

void ToldTimes::add(const UsualTime& told) {
    UsualTime& known = told_.try_emplace(told.call, told).first->second;
    known.patience = std::max(known.patience, told.patience);
    known.before = std::max(known.before, told.before);
    known.is_taught = known.is_taught || told.is_taught;
}

ToldTimes::Duration ToldTimes::patience(const contract::OperationRecord& operation) const {
    const auto found = told_.find(key_of(operation));
    return found != told_.end() ? found->second.patience : UsualTimes::untaught;
}

ToldTimes::Duration ToldTimes::patience(const contract::TransferRecord& transfer) const {
    const auto found = told_.find(key_of(transfer));
    return found != told_.end() ? found->second.patience : UsualTimes::untaught;
}

bool ToldTimes::is_taught(const contract::OperationRecord& operation) const {
    const auto found = told_.find(key_of(operation));
    return found != told_.end() && found->second.is_taught;
}

ToldTimes::Duration ToldTimes::time_before(const contract::OperationRecord& operation) const {
    const auto found = told_.find(key_of(operation));
    return found != told_.end() ? found->second.before : UsualTimes::least;
}

}  // namespace ddp::launcher
