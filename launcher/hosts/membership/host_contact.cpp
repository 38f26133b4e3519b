#include "launcher/hosts/membership/host_contact.hpp"

#include <algorithm>

namespace ddp::launcher {
namespace {

using std::chrono::minutes;

// Losses of a host that are further apart have nothing to do with each other.
constexpr minutes losses_go_together_for{10};
constexpr int most_doublings = 10;

}  // namespace

HostContact::News HostContact::look(const MembershipRules& rules, Time now) {
    const auto silent = now - acknowledged_;
    const auto stalled = now - heard_;
    if (silent >= rules.node_timeout || stalled >= rules.stall_timeout) return News::lost;
    const News is = silent >= rules.say_silent_after     ? News::silent
                    : stalled >= rules.say_stalled_after ? News::stalled
                                                         : News::none;
    if (is == said_) return News::none;
    said_ = is;
    return is == News::none ? News::answers_again : is;
}

std::string HostContact::why_lost(const MembershipRules& rules, Time now) const {
    return now - acknowledged_ >= rules.node_timeout
               ? "no answer for " + in_seconds(rules.node_timeout)
               : "its agent has not run for " + in_seconds(rules.stall_timeout);
}

std::optional<HostContact::Time> HostContact::next(const MembershipRules& rules, Time now) const {
    std::optional<Time> first;
    for (const Time time :
         {acknowledged_ + rules.say_silent_after, acknowledged_ + rules.node_timeout,
          heard_ + rules.say_stalled_after, heard_ + rules.stall_timeout}) {
        if (time > now) first = std::min(first.value_or(time), time);
    }
    return first;
}

void HostLosses::note(const std::string& host, Time now) {
    Losses& losses = losses_[host];
    const bool goes_on = losses.count > 0 && now - losses.last < losses_go_together_for;
    losses = {.count = goes_on ? losses.count + 1 : 1, .last = now};
}

int HostLosses::count(const std::string& host) const {
    const auto found = losses_.find(host);
    return found == losses_.end() ? 0 : found->second.count;
}

HostLosses::Time HostLosses::may_join_at(const std::string& host) const {
    const auto found = losses_.find(host);
    if (found == losses_.end() || found->second.count < 2) return {};
    const int doublings = std::min(found->second.count - 2, most_doublings);
    return found->second.last + minutes{1 << doublings};
}

std::string in_seconds(std::chrono::milliseconds time) {
    const auto tenths = time.count() / 100;
    return std::to_string(tenths / 10) +
           (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace ddp::launcher
