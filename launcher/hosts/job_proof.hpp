// JobProof: how the hosts of a job prove to each other that they belong to it: by TLS with a token
// that each has, or that the coordinator tells processes of its user by MUNGE, or not at all.
#pragma once

#include "launcher/hosts/job_token.hpp"
#include "launcher/hosts/tls_session.hpp"

#include <ddp/error.hpp>

#include <optional>
#include <string>

namespace ddp::launcher {

struct JobProof {
    // With the job's token; nothing: there is none, or this host has yet to be told it.
    std::optional<TlsContext> tls = {};
    // The token, for members that have none (munge.hpp): the coordinator's, and later that of a
    // member that has been told it, which may succeed the coordinator.
    std::string credential = {};
    // A member takes the token from the coordinator's credential for this job. Empty: not so.
    std::string credential_for = {};

    bool is_there() const { return tls || !credential_for.empty(); }
};

// Whether libssl.so.3 can be had.
inline bool has_tls() {
    try {
        const TlsContext any(JobToken::make());
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

}  // namespace ddp::launcher
