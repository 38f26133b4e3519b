// Listener: a listening socket of a store's server, in the server's epoll set; Listeners: all of
// them; listen_as_master: where they listen. A listener pauses when no descriptor is left, and when
// strangers come and go too fast.
// Invariant: no call accepts more than a bounded number of connections.
#pragma once

#include <ddp/master_address.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
    AcceptedSocket accept();
    // Whether a connection waits to be accepted.
    bool has_pending() const;
    // No descriptor is left: accepts one with a spare descriptor and closes it. False: there was
    // not even a spare one, and the listener rests until resume().
    bool reject_one();
    // Closes those that wait to be accepted now, at most as many as a queue holds.
    void drop_pending();
    // Those that wait now are of no attempt, and stay. At a local socket they are dropped: nobody
    // counts them.
    void outlive_attempt();

    void note_stranger_gone(Clock::time_point now);
    // Ends a rest that is over by then, or the one for want of a descriptor.
    void resume(Clock::time_point now);
    bool is_paused() const { return !listening_; }
    std::optional<Clock::time_point> wakes_at() const { return paused_until_; }

private:
    void listen(bool on);
    void resume();

    base::UniqueFd socket_;
    int epoll_;
    std::uint64_t tag_;
    std::size_t of_no_attempt_ = 0;  // the next so many that are accepted
    base::UniqueFd spare_;
    bool listening_ = true;
    StrangerRate strangers_;
    std::optional<Clock::time_point> paused_until_;
};

// The listening sockets of a store that ranks know as MASTER_ADDR:MASTER_PORT: at all addresses of
// `master.host` that this host has. Where all addresses of a name are loopback, at all addresses of
// this host, and one warning says so: Debian gives a host's own name 127.0.1.1 in /etc/hosts, while
// other hosts know the name by another address. Not so for localhost, nor for an address in digits.
// Blocks while the name is looked up (base/net/address.hpp). Throws SystemError that names host and
// port.
std::vector<base::UniqueFd> listen_as_master(const MasterAddress& master);

// Whether loopback alone is meant by that name: localhost, what ends in .localhost (RFC 6761), and
// the names that distributions give 127.0.0.1 and ::1. Pure.
bool is_name_of_loopback(std::string_view name);

// The sockets on which one server listens: its TCP port, at one address or several, and beside it a
// local socket if one can be had.
class Listeners {
public:
    using Clock = Listener::Clock;
    // The first listener's; those of the others count down from it.
    static constexpr std::uint64_t first_tag = ~std::uint64_t{0} - 1;

    // As Listener. `tcp`: at least one, all on one port.
    Listeners(std::vector<base::UniqueFd> tcp, int epoll);
    // The port alone remains where no local socket can be had.
    void listen_locally();

    Listener* find(std::uint64_t tag);  // null: no listener's
    Listener& of(const ServerClient& client) { return *find(client.listener()); }
    std::uint16_t port() const { return all_.front().port(); }
    const std::string& local_name() const { return local_name_; }

    void resume(Clock::time_point now);
    void drop_pending();
    void outlive_attempt();
    std::optional<Clock::time_point> wakes_at() const;

private:
    void add(Listener::Kind kind, base::UniqueFd socket);

    int epoll_;
    std::vector<Listener> all_;  // the local one is the last
    std::string local_name_;
};

}  // namespace ddp::store
