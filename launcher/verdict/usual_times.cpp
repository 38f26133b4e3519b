#include "launcher/verdict/usual_times.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

namespace ddp::launcher {

// Elements are left out: a call of many sizes is one.
std::uint64_t UsualTimes::key_of(const contract::OperationRecord& operation) {
    constexpr std::uint64_t prime = 0x100000001b3;
    std::uint64_t key = operation.call.source == 0
                            ? std::hash<std::string_view>{}(operation.file) + operation.line
                            : 0;
    for (const std::uint64_t part :
         {std::uint64_t{operation.group}, std::uint64_t(operation.call.kind),
          std::uint64_t{contract::without_backward(operation.call.source)}}) {
        key = (key ^ part) * prime;
    }
    return key;
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

std::uint64_t UsualTimes::key_of(const contract::TransferRecord& transfer) {
    return std::hash<std::string_view>{}(transfer.file) + 2 * std::uint64_t{transfer.line} +
           (transfer.sends ? 1 : 0);
}

// Waits that are too short to be seen teach nothing.
void UsualTimes::note(const contract::TransferRecord& transfer, Duration waited) {
    const std::uint64_t key = key_of(transfer);
    if (transfers_.size() >= most_calls && !transfers_.contains(key)) return;
    Duration& longest = transfers_[key];
    longest = std::max(longest, waited);
}

UsualTimes::Duration UsualTimes::patience(const contract::TransferRecord& transfer) const {
    const auto found = transfers_.find(key_of(transfer));
    return found != transfers_.end() ? std::max(untaught, 2 * found->second) : untaught;
}

UsualTimes::Duration UsualTimes::patience(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    return found != calls_.end() ? found->second.waits.most(untaught) : untaught;
}

UsualTimes::Duration UsualTimes::time_before(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    return found != calls_.end() ? found->second.before.most(least) : least;
}

}  // namespace ddp::launcher
