// Listener: a listening socket of a store's server, in the server's epoll set; Listeners: all of
// them. A listener pauses when no descriptor is left, and when strangers come and go too fast.
// Invariant: no call accepts more than a bounded number of connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "base/unique_fd.hpp"
#include "store/server/server_client.hpp"

namespace ddp::store {

// How many connections may end within a while that have never said a whole request: 10,000 a
// second, which leaves the server's process time for others. The rest is short, as ranks wait in
// the same queue. Pure.
class StrangerRate {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::size_t most_at_once = 200;
    static constexpr std::chrono::milliseconds window{20};

    // One more has ended. When that is one too many: when new connections may come again.
    std::optional<Clock::time_point> note_end(Clock::time_point now) {
        if (now - since_ >= window) {
            since_ = now;
            ended_ = 0;
        }
        if (++ended_ <= most_at_once) return std::nullopt;
        return since_ + window;
    }

private:
    Clock::time_point since_{};
    std::size_t ended_ = 0;
};

class Listener {
public:
    using Clock = StrangerRate::Clock;

    // A TCP socket becomes non-blocking. Adds it to `epoll`, which must outlive this. Throws
    // SystemError.
    enum class Kind { tcp, local };
    Listener(Kind kind, base::UniqueFd socket, int epoll, std::uint64_t tag);

    std::uint16_t port() const;
    // As accept_socket().
    AcceptedSocket accept() { return accept_socket(socket_.get()); }
    // Whether a connection waits to be accepted.
    bool has_pending() const;
    // No descriptor is left: accepts one with a spare descriptor and closes it. False: there was
    // not even a spare one, and the listener rests until resume().
    bool reject_one();
    // Closes those that wait to be accepted now, at most as many as a queue holds.
    void drop_pending();

    void note_stranger_gone(Clock::time_point now);
    // Ends a rest that is over by then, or the one for want of a descriptor.
    void resume(Clock::time_point now);
    bool is_paused() const { return !listening_; }
    std::optional<Clock::time_point> wakes_at() const { return paused_until_; }

private:
    void listen(bool on);

    base::UniqueFd socket_;
    int epoll_;
    std::uint64_t tag_;
    base::UniqueFd spare_;
    bool listening_ = true;
    StrangerRate strangers_;
    std::optional<Clock::time_point> paused_until_;
};

// The sockets on which one server listens: its TCP port and, beside it, a local socket if one can
// be had.
class Listeners {
public:
    using Clock = Listener::Clock;
    static constexpr std::uint64_t tcp_tag = 0;
    static constexpr std::uint64_t local_tag = ~std::uint64_t{0} - 1;

    // As Listener.
    Listeners(base::UniqueFd tcp, int epoll)
        : epoll_(epoll), tcp_(Listener::Kind::tcp, std::move(tcp), epoll, tcp_tag) {}
    // The port alone remains where no local socket can be had.
    void listen_locally();

    Listener* find(std::uint64_t tag);  // null: no listener's
    Listener& of(const ServerClient& client) { return client.is_local() ? *local_ : tcp_; }
    std::uint16_t port() const { return tcp_.port(); }
    const std::string& local_name() const { return local_name_; }

    void resume(Clock::time_point now);
    void drop_pending();
    std::optional<Clock::time_point> wakes_at() const;

private:
    int epoll_;
    Listener tcp_;
    std::optional<Listener> local_;
    std::string local_name_;
};

}  // namespace ddp::store
