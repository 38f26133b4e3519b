// Admission: which clients a server's store lets in. Before a byte is read: the connection's owner,
// or that it is on another host, and then whether that host is served. With JOIN: which rank of
// which job.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"
#include "store/admission/served_hosts.hpp"
#include "store/server/reply.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class Admission {
public:
    // `job`: whose store it is; nothing: that of the first who joins. Throws as PeerCheck.
    Admission(PeerRule peers, std::optional<RankClaim> job)
        : peers_(peers),
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
    std::optional<std::string> host_refusal(int connection) { return hosts_.refusal(connection); }

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
        described_.erase(client);
    }
    void start_attempt(int attempt, std::optional<int> world_size) {
        claims_.start_attempt(attempt, world_size);
        described_.clear();
    }

    bool belongs_to_job(int connection) { return peers_.belongs_to_job(connection); }
    // A rank by its number, anybody else by user and process: looked for once a client, since that
    // means to read all of /proc.
    std::string describe(ClientId client, int connection);

private:
    PeerCheck peers_;
    ServedHosts hosts_;
    JobClaims claims_;
    std::map<ClientId, std::string> described_;
};

}  // namespace ddp::store
