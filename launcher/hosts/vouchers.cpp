#include "launcher/hosts/vouchers.hpp"

#include "base/log.hpp"

#include <ddp/error.hpp>

namespace ddp::launcher {

void Vouchers::begin_round(const RankTable& table) {
    members_.clear();
    asked_.clear();
    for (const HostRanks& host : table.hosts) {
        if (const auto address = base::numeric_address(host.address)) {
            members_.emplace_back(*address, host.member);
        }
    }
}

std::vector<MemberId> Vouchers::ask(std::uint64_t question, const base::SocketAddress& client) {
    std::vector<MemberId> there;
    for (const auto& [address, member] : members_) {
        if (address.is_same_host(client)) there.push_back(member);
    }
    if (!there.empty()) asked_[question] = there;
    return there;
}

std::optional<bool> Vouchers::answered(std::uint64_t question, MemberId by, bool is_of_job) {
    const auto found = asked_.find(question);
    if (found == asked_.end()) return std::nullopt;
    if (std::erase(found->second, by) == 0) return std::nullopt;
    if (!is_of_job && !found->second.empty()) return std::nullopt;
    asked_.erase(found);
    return is_of_job;
}

bool Voucher::vouches_for(const VouchMessage& question) {
    if (!std::exchange(has_asked_, true)) {
        try {
            peers_.emplace(store::PeerRule{});
        } catch (const Error& error) {
            base::log_warn("launcher", std::string("cannot vouch for the workers of this host; on "
                                                   "the head --store-peers=any does without: ") +
                                           error.what());
        }
    }
    return peers_ && peers_->trusts_end(question.there, question.here);
}

}  // namespace ddp::launcher
