// Admission: which clients a server's store lets in. Before a byte is read: the connection's owner,
// or that it is on another host, and then whether that host is served, and somebody there vouches
// for it. With JOIN: which rank of which job.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"
#include "store/admission/served_hosts.hpp"
#include "store/admission/vouching.hpp"
#include "store/server/reply.hpp"
#include "store/server/server_client.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class Admission {
public:
    // `job`: whose store it is; nothing: that of the first who joins. `needs_vouchers`: of clients
    // on other hosts. Throws as PeerCheck.
    Admission(PeerRule peers, std::optional<RankClaim> job, bool needs_vouchers)
        : peers_(peers),
          needs_vouchers_(needs_vouchers),
          hosts_(peers.other_hosts || peers.peers == StorePeers::any ? ServedHosts::Before::all
                                                                     : ServedHosts::Before::none),
          claims_(job ? JobClaims(std::move(*job)) : JobClaims()) {}

    // A new connection, before a byte of it is read: as PeerCheck, and where no agent can come from
    // another host, also whether that is served.
    enum class Agents { taken, closed };
    PeerCheck::Verdict look_at(int connection, Agents agents);
    // As ServedHosts.
    std::vector<std::string> serve_hosts(const std::vector<std::string>& addresses) {
        return hosts_.set(addresses);
    }

    // What the server does next with a client that it has not heard yet.
    enum class Next : std::uint8_t { read, wait, end_of_input, close };
    struct Step {
        Next next = Next::read;
        std::string warning = {};  // for the log
        std::string why = {};      // it is closed
    };
    // Something can be read of it. Who needs a voucher is asked about, and not read; of who has
    // spoken, an agent shows by its first byte.
    Step before_reading(ServerClient& client);
    // It has spoken, and is no agent.
    Step first_words(const ServerClient& client);
    // It is on a host that is served, or is closed.
    Step look_at_host(const ServerClient& client);
    // Its request, on a host of which other launchers may be. A torchrun agent's is refused: it
    // would wait for the others, which have another launcher.
    Step look_at_request(const ServerClient& client, const Request& request);
    // Of one that was asked about: the answer, or that there is none.
    Step vouched(ServerClient& client, bool is_of_job);
    Step unanswered(const ServerClient& client);

    // Of a client that is on another host, or not.
    Vouched voucher_for(bool is_elsewhere) const {
        return needs_vouchers_ && is_elsewhere ? Vouched::needed : Vouched::not_needed;
    }
    Vouching& vouching() { return vouching_; }

    struct Answer {
        Reply reply;
        std::string refusal;  // empty: the client is that rank
    };
    // A JOIN. `has_hung_up`: whether a connection has ended, although nobody has looked at it yet:
    // who held the rank may be gone, and the news of it come after this claim. Throws UsageError
    // when it is none.
    Answer join(ClientId client, const Request& request,
                const std::function<bool(ClientId)>& has_hung_up);
    void leave(ClientId client) {
        claims_.leave(client);
        vouching_.remove(client, Vouching::Clock::now());
        described_.erase(client);
    }
    void start_attempt(int attempt, std::optional<int> world_size) {
        claims_.start_attempt(attempt, world_size);
        vouching_.clear();
        described_.clear();
    }

    bool belongs_to_job(int connection) { return peers_.belongs_to_job(connection); }
    // A rank by its number, anybody else by user and process: looked for once a client, since that
    // means to read all of /proc.
    std::string describe(ClientId client, int connection);

private:
    PeerCheck peers_;
    bool needs_vouchers_;
    ServedHosts hosts_;
    Vouching vouching_;
    JobClaims claims_;
    std::map<ClientId, std::string> described_;
};

}  // namespace ddp::store
