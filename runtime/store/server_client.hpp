// ServerClient: one connection as the server sees it: what it has sent so far, what it is still
// owed, and what epoll watches for it. Invariant: `out` is empty whenever nothing is owed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/unique_fd.hpp"
#include "store/store_data.hpp"
#include "store/wire.hpp"

namespace ddp::store {

inline constexpr std::size_t pause_backlog_bytes = std::size_t{1} << 20;
inline constexpr std::size_t max_backlog_bytes = std::size_t{32} << 20;

struct Newcomer {
    base::UniqueFd fd;
    std::string address;  // of its host, to be compared, not read
};
// Accepts one connection, non-blocking. Without one the fd is invalid and errno says why.
Newcomer accept_newcomer(int listener);

class ServerClient {
public:
    ServerClient(ClientId id, Newcomer newcomer) : id_(id), peer_(std::move(newcomer)) {}

    ClientId id() const { return id_; }
    int fd() const { return peer_.fd.get(); }
    const std::string& address() const { return peer_.address; }

    RequestParser parser{};
    std::uint32_t events = 0;  // what epoll watches now
    bool identified = false;   // has sent a whole request
    bool finished = false;     // has closed its sending side: only owed replies are left
    bool doomed = false;       // to be closed at the end of this event

    // False when it already owes too much reading.
    bool queue(std::string bytes);
    // Sends what the kernel takes. False when the connection is lost.
    bool flush();
    std::size_t backlog() const { return out_.size() - sent_; }
    // Its requests wait until it has read more of its replies.
    bool paused() const { return backlog() > pause_backlog_bytes; }
    // From now on the kernel ends the connection when its replies are left unread for 10 s.
    void limit_drain_time();

private:
    ClientId id_;
    Newcomer peer_;
    std::string out_;
    std::size_t sent_ = 0;  // bytes of out_
};

}  // namespace ddp::store
