#include "launcher/hosts/membership/succession.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace ddp::launcher {
namespace {

constexpr std::chrono::seconds time_for_each_before{2};

std::vector<HostRanks> candidates_of(const RoundMessage& last) {
    std::vector<HostRanks> candidates;
    std::ranges::copy_if(
        last.table.hosts, std::back_inserter(candidates),
        [&](const HostRanks& host) { return host.port != 0 && host.member != last.coordinator; });
    return candidates;
}

}  // namespace

Succession::Succession(const RoundMessage& last, MemberId own, const MembershipRules& rules,
                       Time now)
    : last_(last),
      own_(own),
      candidates_(candidates_of(last)),
      time_(rules.time_to_succeed()),
      ends_(now + time_) {
    const auto found = std::ranges::find(candidates_, own, &HostRanks::member);
    if (found == candidates_.end()) return;
    own_place_ = static_cast<std::size_t>(found - candidates_.begin());
    serves_from_ = now + time_for_each_before * static_cast<int>(*own_place_);
}

bool Succession::is_possible(const RoundMessage& last) {
    const std::size_t all = last.table.hosts.size();
    const std::size_t others = all - (last.table.find(last.coordinator) == nullptr ? 0 : 1);
    return 2 * others > all && !candidates_of(last).empty();
}

const HostRanks* Succession::next() const {
    const std::size_t count = own_place_.value_or(candidates_.size());
    return count == 0 ? nullptr : &candidates_[at_ % count];
}

void Succession::defer(Time now) { serves_from_ = now + 2 * time_for_each_before; }

void Succession::doubt() {
    const HostRanks* one = next();
    if (one == nullptr) return;
    if (doubted_.insert(one->member).second) {
        pass();
    } else {
        exclude();
    }
}

void Succession::exclude() {
    const std::size_t count = own_place_.value_or(candidates_.size());
    if (count == 0) return;
    candidates_.erase(candidates_.begin() + static_cast<std::ptrdiff_t>(at_ % count));
    if (own_place_) --*own_place_;
}

void Succession::pass() {
    const std::size_t count = own_place_.value_or(candidates_.size());
    if (count > 0) at_ = (at_ + 1) % count;
}

}  // namespace ddp::launcher
