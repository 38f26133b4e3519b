// StoreServer: the server of TCP stores as a guest in another's event loop. It owns one epoll
// descriptor; when that is readable, run_ready() has something to do. No threads. Invariant:
// nothing that a client sends or leaves unread blocks it, makes it throw, or makes it hold more
// memory than protocol.md allows.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"
#include "store/admission/vouching.hpp"
#include "store/server/server_limits.hpp"

namespace ddp::store {

struct StoreServerOptions {
    StoreLimits limits = {};
    PeerRule peers = {};
    std::optional<RankClaim> job = {};  // whose store it is; nothing: that of the first who joins
    bool is_local_too = false;          // serves a local socket, too (protocol.md, "Who is served")
    // Takes the connections of other hosts' launchers (protocol.md, "Agents"): non-blocking, with
    // all that was read of it. Called by run_ready() alone, which throws what it throws. It may
    // call the server, but not destroy it. Absent: they are closed.
    std::function<void(base::UniqueFd connection, std::string first_bytes)> take_agent = {};
    // Reads a client on another host only when somebody has vouched for it: see take_question().
    bool needs_vouchers = false;
};

class StoreServer {
public:
    // Listening TCP sockets, as from base::listen_tcp_all: at least one, all on one port. Throws
    // SystemError when epoll cannot be had, or nobody tells who connects (PeerCheck).
    explicit StoreServer(std::vector<base::UniqueFd> listeners, StoreServerOptions options = {});
    ~StoreServer();
    StoreServer(StoreServer&& other) noexcept;
    StoreServer& operator=(StoreServer&& other) noexcept;

    std::uint16_t port() const;
    // Of the local socket. Empty: there is none, or it could not be had.
    const std::string& local_name() const;
    // Readable when run_ready() has something to do.
    int fd() const;
    // Handles what is ready now, and a bounded amount of it: call again while fd() is readable.
    void run_ready();
    // Closes all connections, also those not yet accepted, and empties the map. Keeps listening.
    // Ranks that join for another attempt are told so; the first is 0. Where agents are taken,
    // connections of which nothing was read are left, for agents alone (protocol.md, "Agents").
    // `world_size`: of that attempt, where it is another than before.
    void start_attempt(int attempt, std::optional<int> world_size = {});
    // From the first call on, clients on other hosts are served only from these addresses: numeric,
    // IPv4 or IPv6, also with %scope. Connections from others are closed; agents may come from
    // anywhere. A text that is no such address is nobody's, and a warning names it.
    void serve_hosts(const std::vector<std::string>& addresses);
    // A client on another host waits for vouch(), for 5 s from when this can tell of it; each is
    // asked about once. To be called in each turn of the loop, until nothing comes.
    std::optional<ClientQuestion> take_question();
    // The answer: the client is served, or closed. Of one that is gone: nothing happens.
    void vouch(std::uint64_t client, bool is_of_job);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::store
