// ServerClient: one connection as the server sees it: what it has sent so far, what it is still
// owed, and what epoll watches for it. Invariant: its requests are carried out, and its replies
// sent, in the order in which they came.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/unique_fd.hpp"
#include "store/admission/vouching.hpp"
#include "store/server/outbox.hpp"
#include "store/server/server_limits.hpp"
#include "store/wire.hpp"

namespace ddp::store {

// Small replies are sent together.
inline constexpr std::size_t gathered_bytes = std::size_t{4} << 10;
inline constexpr std::size_t max_backlog_bytes = std::size_t{32} << 20;

struct AcceptedSocket {
    base::UniqueFd fd;
    std::string address;         // of its host, to be compared, not read
    bool is_local = false;       // by the server's local socket, not by TCP
    std::uint64_t listener = 0;  // the tag of the listener that accepted it
    bool is_elsewhere = false;   // comes from another host
    // It came before the attempt that is served now: if a client speaks, it is a late one.
    bool is_of_no_attempt = false;
};
// Accepts one connection, non-blocking, with the listener's TCP options. Without one the fd is
// invalid and errno says why.
AcceptedSocket accept_socket(int listener, std::uint64_t tag);
// Whether that errno means that there was no descriptor or memory for one.
inline bool out_of_descriptors(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

// What a client's connection costs, as its account is charged now.
struct MemoryCharges {
    std::size_t request = 0;
    std::size_t reply = 0;
};

// Whether a client reads its replies; looked at only while others wait for memory.
class ReadPace {
public:
    using Clock = std::chrono::steady_clock;

    // `unread`: what the client is owed. True when it has read nothing for that long.
    bool is_stalled(std::size_t unread, Clock::time_point now, std::chrono::seconds longest) {
        if (unread == std::exchange(unread_, unread)) return now - read_at_ >= longest;
        read_at_ = now;
        return false;
    }

private:
    std::size_t unread_ = 0;
    Clock::time_point read_at_{};
};

class ServerClient {
public:
    ServerClient(ClientId id, AcceptedSocket socket) : id_(id), peer_(std::move(socket)) {}

    ClientId id() const { return id_; }
    int fd() const { return peer_.fd.get(); }
    const std::string& address() const { return peer_.address; }
    bool is_local() const { return peer_.is_local; }
    std::uint64_t listener() const { return peer_.listener; }
    bool is_elsewhere() const { return peer_.is_elsewhere; }
    bool is_of_no_attempt() const { return peer_.is_of_no_attempt; }
    void outlive_attempt() { peer_.is_of_no_attempt = true; }
    bool has_said_nothing() const { return parser.received_bytes() == 0; }
    bool may_be_agent() const {
        return !is_local() && has_said_nothing() && voucher != Vouched::awaited;
    }
    // The connection is another's from now on: the client has none, and epoll watches it no more.
    base::UniqueFd take_fd(int epoll);
    // Neither a client, as far as it has said, nor an agent.
    bool is_stranger() const { return !identified && peer_.fd; }

    RequestParser parser{};
    std::optional<Request> pending{};  // whole; waits until there is memory for its reply
    bool identified = false;           // has sent a whole request
    bool finished = false;             // has closed its sending side: only owed replies are left
    bool closing = false;              // to be closed at the end of this event
    bool waits_for_memory = false;     // in ClientMemory
    bool waits_for_turn = false;       // has asked for more than is done in one
    Vouched voucher = Vouched::not_needed;
    MemoryCharges charged{};
    ReadPace read_pace{};

    struct Received {
        std::string_view bytes{};  // in the buffer; fewer than fit: there are no more now
        bool has_ended = false;
        bool is_lost = false;
    };
    Received receive(std::span<char> buffer);
    // False when more than max_backlog_bytes of replies to it are unread: it is to be closed.
    bool queue(Reply reply);
    // Sends what the kernel takes. False when the connection is lost.
    bool flush();
    std::size_t backlog() const { return outbox_.bytes(); }
    const Outbox& outbox() const { return outbox_; }
    // Its requests wait until it has read its replies.
    bool paused() const { return blocked_ || backlog() > gathered_bytes; }
    void drop_replies() { outbox_ = Outbox{}; }
    // Lets epoll watch what its state asks for. False when that fails.
    bool watch(int epoll);
    // Whether its process has closed the connection, also when that has not been looked at yet.
    bool has_hung_up() const;
    // Ends the connection as base::reset_connection(). The client is to be closed.
    void reset();
    // From now on the kernel ends the connection when its replies are left unread for 10 s.
    void limit_drain_time();

private:
    ClientId id_;
    AcceptedSocket peer_;
    Outbox outbox_;
    std::optional<std::uint32_t> events_;  // what epoll watches now; nothing: it does not yet
    bool blocked_ = false;                 // the kernel has not taken all that it was given
};

}  // namespace ddp::store
