// StoreServer: the server of TCP stores as a guest in another's event loop. It owns one epoll
// descriptor; when that is readable, run_ready() has something to do. No threads. Invariant:
// nothing that a client sends or leaves unread blocks it, makes it throw, or makes it hold more
// memory than protocol.md allows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.hpp"
#include "store/admission/job_claims.hpp"
#include "store/admission/peer_check.hpp"
#include "store/server/server_limits.hpp"

namespace ddp::store {

struct StoreServerOptions {
    StoreLimits limits = {};
    PeerRule peers = {};
    std::optional<RankClaim> job = {};  // whose store it is; nothing: that of the first who joins
    bool is_local_too = false;          // serves a local socket, too (protocol.md, "Who is served")
};

class StoreServer {
public:
    // Listening TCP sockets, as from base::listen_tcp_all: at least one, all on one port. Throws
    // SystemError when epoll cannot be had, or nobody tells who connects (PeerCheck).
    explicit StoreServer(std::vector<base::UniqueFd> listeners, StoreServerOptions options = {});
    explicit StoreServer(base::UniqueFd listener, StoreServerOptions options = {});
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
    // Ranks that join for another attempt are told so; the first is 0.
    void start_attempt(int attempt);

private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace ddp::store
