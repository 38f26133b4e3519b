// Admission: which clients a server's store lets in. Before a byte is read: the connection's owner.
// With JOIN: which rank of which job.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"
#include "store/server/reply.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class Admission {
public:
    // `job`: whose store it is; nothing: that of the first who joins. Throws as PeerCheck.
    Admission(PeerRule peers, std::optional<RankClaim> job)
        : peers_(peers), claims_(job ? JobClaims(std::move(*job)) : JobClaims()) {}

    // Why a new connection must be closed; nothing: it is served.
    std::optional<std::string> refusal(int connection) { return peers_.refusal(connection); }

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
    void start_attempt(int attempt) {
        claims_.start_attempt(attempt);
        described_.clear();
    }

    bool belongs_to_job(int connection) { return peers_.belongs_to_job(connection); }
    // A rank by its number, anybody else by user and process: looked for once a client, since that
    // means to read all of /proc.
    std::string describe(ClientId client, int connection);

private:
    PeerCheck peers_;
    JobClaims claims_;
    std::map<ClientId, std::string> described_;
};

}  // namespace ddp::store
