// Who may speak to a store's server. A client on this host is served only if the other end of its
// connection belongs to root, to this process's user, or to a process that descends from this one
// (a worker that has changed its user). Asked once a connection, before a byte of it is read. Of a
// local socket's connection the kernel tells user and process (SO_PEERCRED); of TCP's see
// socket_owner.hpp.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <chrono>
#include <optional>
#include <set>
#include <string>

#include "base/net/own_addresses.hpp"
#include "store/admission/socket_owner.hpp"
#include "store/admission/store_peers.hpp"

namespace ddp::store {

struct PeerRule {
    StorePeers peers = StorePeers::same_user;
    // Serve clients that are not on this host: nobody can tell who they are. See served_hosts.hpp.
    bool other_hosts = true;
};

// Single-threaded.
class PeerCheck {
public:
    // Throws SystemError that says what to do when the kernel tells nobody who connects.
    explicit PeerCheck(PeerRule rule, SocketOwners::Source first = SocketOwners::Source::netlink);

    // An accepted connection, before a byte of it is read.
    struct Verdict {
        std::optional<std::string> refusal = {};  // why it is not served, in one line
        bool is_elsewhere = false;                // on another host; whether that is served is open
    };
    Verdict look_at(int connection);
    // The same of a connection from this host: nothing when it is served.
    std::optional<std::string> refusal(int connection) { return look_at(connection).refusal; }
    // Whether the process at the other end descends from this one.
    bool belongs_to_job(int connection);
    // Whether the socket of this host at `own`, which is connected to `other`, is one of those.
    bool trusts_end(const base::SocketAddress& own, const base::SocketAddress& other);
    // Whether a socket's owner is root, this user or a descendant of this process.
    bool trusts(const SocketOwner& owner);
    // "uid 1001, pid 4711 (python3)": the other end, as far as it can be seen.
    std::string describe(int connection) const;

private:
    using Clock = std::chrono::steady_clock;

    Verdict look_at_local(const ucred& peer);
    std::string refusal_of(const std::string& who, uid_t user) const;
    bool is_known(uid_t user) const;
    bool descends(const SocketOwner& owner);
    bool descends(const ucred& peer);
    bool is_user_of_job(uid_t user) { return user == own_user_ || some_descendant_runs_as(user); }
    bool some_descendant_runs_as(uid_t user);

    PeerRule rule_;
    SocketOwners owners_;
    base::OwnAddresses own_addresses_;
    uid_t own_user_;
    // A crowd of strangers must not keep this process reading /proc: a tenth of its time at most.
    std::set<uid_t> descendants_users_;
    Clock::time_point next_look_{};
};

// For a client: throws UsageError when the server at the other end is on this host and belongs to
// somebody else than root or this user (a port that nobody holds can be taken by anybody), and
// SystemError when that cannot be told. `where` is for the message.
void require_trusted_server(int connection, const std::string& where);

}  // namespace ddp::store
