// Whether a client of the coordinator's store, on another host, belongs to the job. Vouchers, the
// coordinator's: which members are asked, and what their answers come to; pure. Voucher, a
// member's: what the kernel of its host says. Single-threaded.
// Invariant: only members at the client's own address are asked, and nobody else's answer counts.
#pragma once

#include "base/net/address.hpp"
#include "launcher/hosts/membership/rank_table.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "store/admission/peer_check.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::launcher {

class Vouchers {
public:
    // The hosts of a round, whose workers may come. Earlier questions are forgotten.
    void begin_round(const RankTable& table);
    // The members that have to be asked: all at that address, as one host may have several. Empty:
    // nobody can vouch for it.
    std::vector<MemberId> ask(std::uint64_t question, const base::SocketAddress& client);
    // What is known now: it belongs to the job as soon as one says so, and does not when all have
    // denied it. Nothing: others have not answered yet, or the member was not asked.
    std::optional<bool> answered(std::uint64_t question, MemberId by, bool is_of_job);

private:
    std::vector<std::pair<base::SocketAddress, MemberId>> members_;
    std::map<std::uint64_t, std::vector<MemberId>> asked_;  // and have not answered
};

class Voucher {
public:
    // Whether the other end is a socket of root, of this user, or of a process that descends from
    // this one. No where the kernel tells nobody, which is logged once.
    bool vouches_for(const VouchMessage& question);

private:
    bool has_asked_ = false;
    std::optional<store::PeerCheck> peers_;
};

}  // namespace ddp::launcher
