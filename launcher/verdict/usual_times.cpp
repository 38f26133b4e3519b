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

std::optional<UsualTimes::Duration> UsualTimes::Samples::median() const {
    if (count < needed) return std::nullopt;
    std::array<Duration, samples> sorted = last;
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(std::min(count, samples));
    const auto middle = sorted.begin() + (end - sorted.begin()) / 2;
    std::nth_element(sorted.begin(), middle, end);
    return *middle;
}

void UsualTimes::note(const contract::OperationRecord& operation, std::optional<Time> free_since) {
    if (!operation.ended) return;
    const std::uint64_t key = key_of(operation);
    if (calls_.size() >= most_calls && !calls_.contains(key)) return;
    Call& call = calls_[key];
    // A clock of ticks, and a page that anybody may have written to.
    const auto between = [](Time from, Time to) {
        return std::clamp<Duration>(to - from, Duration::zero(), std::chrono::hours{24});
    };
    const Duration wait = between(operation.started, *operation.ended);
    call.waits.add(wait);
    call.longest = std::max(wait, call.longest - call.longest / 256);
    if (free_since) call.before.add(between(*free_since, operation.started));
}

UsualTimes::Duration UsualTimes::patience(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    const auto median = found != calls_.end() ? found->second.waits.median() : std::nullopt;
    if (!median) return untaught;
    return std::max({least, 3 * *median, found->second.longest * 3 / 2});
}

UsualTimes::Duration UsualTimes::time_before(const contract::OperationRecord& operation) const {
    const auto found = calls_.find(key_of(operation));
    const auto median = found != calls_.end() ? found->second.before.median() : std::nullopt;
    return median ? std::max(least, 3 * *median) : least;
}

}  // namespace ddp::launcher
