// TcpConnection: one connection of a store's client, after the hello, which finds out the server's
// numbering. It speaks whole requests and replies and turns what the network does into the store's
// errors. Not thread-safe: one exchange at a time. Invariant: after an exception the connection's
// state is unknown; its owner drops it.
#pragma once

#include <ddp/master_address.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "store/wire.hpp"

namespace ddp::store {

class TcpConnection {
public:
    enum class Refused { try_again, give_up };
    // What kinds of server are tried.
    enum class Servers {
        any,          // PyTorch's before 2.2, too
        of_ddp,       // ddp's own alone: one that closes has no descriptor left, or serves others
        of_launcher,  // as of_ddp, first by its local socket (DDP_AGENT_STORE_SOCKET)
    };

    // Connects and says hello, again and again with growing pauses until the deadline, also while
    // the name does not resolve or the host cannot be reached (it may be starting). The name is
    // looked up anew each time, which may take longer than the deadline (base/net/address.hpp).
    // Throws TimeoutError when nobody answered, SystemError at once when the answer is not a
    // store's (EPROTO), or when nobody listens and that means that the server is gone (`give_up`),
    // and after half a minute when a server `of_ddp` has closed each connection.
    // `expected`: the numbering that is tried first. `questions`: requests that may be sent with
    // each hello, as they change nothing that outlives the connection; their replies are the
    // caller's to receive.
    TcpConnection(const MasterAddress& server, const base::Deadline& deadline, Refused refused,
                  Era expected = Era::modern, std::span<const Request> questions = {},
                  Servers servers = Servers::any);

    // `doing` is for the messages: "get of keys [a]". All throw SystemError when the connection is
    // lost and TimeoutError when the deadline passes.
    void send(const Request& request, const base::Deadline& deadline, const std::string& doing);
    void send_both(const Request& first, const Request& second, const base::Deadline& deadline,
                   const std::string& doing);
    std::uint8_t receive_u8(const base::Deadline& deadline, const std::string& doing);
    std::uint32_t receive_u32(const base::Deadline& deadline, const std::string& doing);
    std::int64_t receive_i64(const base::Deadline& deadline, const std::string& doing);
    std::string receive_value(const base::Deadline& deadline, const std::string& doing);
    // Whether a reply has begun to arrive, or the connection ended, before the deadline.
    bool readable(const base::Deadline& deadline) const;

    int fd() const { return fd_.get(); }
    const std::string& where() const { return where_; }  // "host:port", "[::1]:port"
    Era era() const { return era_; }

private:
    base::ConnectResult connect(const base::Deadline& deadline, Servers servers);
    int try_hello(const base::Deadline& deadline, std::span<const Request> questions);
    bool answers_hello(const base::Deadline& deadline, std::span<const Request> questions);
    void send_bytes(const std::string& bytes, const base::Deadline& deadline,
                    const std::string& doing);
    std::string receive(std::size_t bytes, const base::Deadline& deadline,
                        const std::string& doing);

    MasterAddress server_;
    std::string where_;
    Era era_;
    base::UniqueFd fd_;
};

}  // namespace ddp::store
