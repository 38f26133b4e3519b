// The connections of a TCP store's server: accept, read, execute, write, close. Clients are
// addressed by a number that is never used twice, since a descriptor may be given to a newcomer
// while events for its former owner are still in hand. Invariant: between two events no client is
// doomed, and epoll watches exactly what each client's state asks for.
#include "store/store_server.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

#include "base/log.hpp"
#include "base/socket.hpp"
#include "store/server_client.hpp"
#include "store/silent_clients.hpp"
#include "store/store_data.hpp"

namespace ddp::store {
namespace {

constexpr ClientId listener_id = 0;
constexpr std::size_t max_silent = 64;
constexpr int rounds_a_call = 16;
constexpr int reads_an_event = 4;
constexpr int accepts_an_event = 16;

base::UniqueFd open_spare() { return base::UniqueFd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

bool out_of_descriptors(int error) {
    return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

}  // namespace

class StoreServer::Impl {
public:
    Impl(base::UniqueFd listener, StoreServerOptions options);
    std::uint16_t port() const { return base::local_port(listener_.get()); }
    int fd() const { return epoll_.get(); }
    void run_ready();
    void start_attempt(int attempt);

private:
    void handle(const epoll_event& event);
    void handle_client(ServerClient& client, std::uint32_t events);
    void accept_some();
    bool make_room_for_newcomer();
    void listen_for_newcomers(bool listen);
    void add_client(Newcomer newcomer);
    void read_from(ServerClient& client);
    void execute(ServerClient& client, std::string_view fresh_bytes);
    void identified(ServerClient& client);
    void join(ServerClient& client, const Request& request, Replies& replies);
    std::optional<std::string> claim_rank(ClientId client, const RankClaim& claim);
    bool has_hung_up(ClientId client);
    void end_of_input(ServerClient& client);
    void deliver(Replies& replies);
    void flush(ServerClient& client);
    void watch(ServerClient& client);
    void doom(ServerClient& client, const std::string& why);
    void settle();
    ServerClient* find(ClientId id);

    base::UniqueFd listener_;
    base::UniqueFd epoll_;
    base::UniqueFd spare_ = open_spare();
    bool listening_ = false;
    PeerCheck peers_;
    JobClaims claims_;
    StoreData data_;
    ClientId next_id_ = listener_id + 1;
    std::unordered_map<ClientId, ServerClient> clients_;
    SilentClients silent_{max_silent};
    std::vector<ClientId> touched_;  // to be settled after this event
    std::array<char, 64 * 1024> read_buffer_;
};

StoreServer::Impl::Impl(base::UniqueFd listener, StoreServerOptions options)
    : listener_(std::move(listener)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      peers_(options.peers),
      claims_(options.job ? JobClaims(std::move(*options.job)) : JobClaims()) {
    if (!epoll_) throw SystemError{"store: epoll_create1", errno};
    const int flags = ::fcntl(listener_.get(), F_GETFL);
    if (flags < 0 || ::fcntl(listener_.get(), F_SETFL, flags | O_NONBLOCK) < 0) {
        throw SystemError{"store: making the listener non-blocking", errno};
    }
    epoll_event event{};
    event.data.u64 = listener_id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener_.get(), &event) != 0) {
        throw SystemError{"store: epoll_ctl of the listener", errno};
    }
    listen_for_newcomers(true);
}

void StoreServer::Impl::run_ready() {
    std::array<epoll_event, 64> events;
    for (int round = 0; round < rounds_a_call; ++round) {
        const int count =
            ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)]);
        if (count < static_cast<int>(events.size())) return;  // what came since wakes us anew
    }
}

void StoreServer::Impl::start_attempt(int attempt) {
    clients_.clear();
    silent_.clear();
    touched_.clear();
    data_ = StoreData{};
    claims_.start_attempt(attempt);
    // What still waits to be accepted belongs to the old attempt too, with all that it has already
    // sent.
    while (base::UniqueFd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)}) {
    }
    listen_for_newcomers(true);
}

void StoreServer::Impl::handle(const epoll_event& event) {
    if (event.data.u64 == listener_id) {
        accept_some();
    } else if (auto* client = find(event.data.u64)) {
        if (!listening_) listen_for_newcomers(true);
        handle_client(*client, event.events);
    }
    settle();
}

void StoreServer::Impl::handle_client(ServerClient& client, std::uint32_t events) {
    touched_.push_back(client.id());
    if ((events & EPOLLOUT) != 0) flush(client);
    const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
    if (client.paused() || client.finished) {
        if (broken) doom(client, "connection lost");
    } else if (broken || (events & EPOLLIN) != 0) {
        read_from(client);
    }
}

void StoreServer::Impl::accept_some() {
    for (int i = 0; i < accepts_an_event; ++i) {
        if (auto newcomer = accept_newcomer(listener_.get()); newcomer.fd) {
            add_client(std::move(newcomer));
        } else if (out_of_descriptors(errno)) {
            if (!make_room_for_newcomer()) return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;  // EAGAIN: all are in; anything else concerns one connection that is gone
        }
    }
}

// No descriptor is left for a newcomer, if there is one: accept fails that way also when nobody
// waits. Returns whether to try again.
bool StoreServer::Impl::make_room_for_newcomer() {
    pollfd waiting{listener_.get(), POLLIN, 0};
    if (::poll(&waiting, 1, 0) <= 0) return false;
    if (const auto oldest = silent_.oldest()) {
        doom(*find(*oldest), "no descriptor left");
        settle();
        return true;
    }
    if (!spare_) spare_ = open_spare();
    if (spare_) {
        base::log_warn("store", "no descriptor left: a connection is turned away");
        spare_.reset();
        const base::UniqueFd turned_away{
            ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }
    spare_ = open_spare();
    // Without even a spare one, rest until a client has something to say.
    if (!spare_) listen_for_newcomers(false);
    return static_cast<bool>(spare_);
}

void StoreServer::Impl::listen_for_newcomers(bool listen) {
    epoll_event event{};
    event.events = listen ? static_cast<std::uint32_t>(EPOLLIN) : 0U;
    event.data.u64 = listener_id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, listener_.get(), &event) == 0) listening_ = listen;
}

void StoreServer::Impl::add_client(Newcomer newcomer) {
    if (const auto refusal = peers_.refusal(newcomer.fd.get())) {
        return base::log_warn("store", *refusal);
    }
    const auto id = next_id_++;
    epoll_event event{};
    event.data.u64 = id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, newcomer.fd.get(), &event) != 0) return;
    silent_.add(id, newcomer.address);
    auto& client = clients_.try_emplace(id, id, std::move(newcomer)).first->second;
    touched_.push_back(id);
    read_from(client);  // it may have spoken already, and then it is no stranger
    if (const auto surplus = silent_.surplus()) {
        doom(*find(*surplus), "silent, and too many others are");
    }
    settle();
}

void StoreServer::Impl::read_from(ServerClient& client) {
    for (int i = 0; i < reads_an_event && !client.doomed && !client.paused(); ++i) {
        const auto count =
            ::recv(client.fd(), read_buffer_.data(), read_buffer_.size(), MSG_DONTWAIT);
        if (count > 0) {
            execute(client, {read_buffer_.data(), static_cast<std::size_t>(count)});
            if (static_cast<std::size_t>(count) < read_buffer_.size()) return;  // that was all
        } else if (count == 0) {
            return end_of_input(client);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            return doom(client, "connection lost");
        }
    }
}

// Stops when the client has left too many replies unread; settle() calls again once it has read
// them.
void StoreServer::Impl::execute(ServerClient& client, std::string_view fresh_bytes) {
    Replies replies;
    Request request;
    try {
        client.parser.feed(fresh_bytes);
        while (!client.doomed && !client.paused()) {
            const auto status = client.parser.next(request);
            if (status == RequestParser::Status::incomplete) return;
            if (status == RequestParser::Status::refused) throw UsageError{client.parser.refusal()};
            if (!client.identified) identified(client);
            if (request.op == Opcode::join) {
                join(client, request, replies);
            } else {
                data_.execute(client.id(), client.parser.era(), request, replies);
            }
            deliver(replies);
        }
    } catch (const std::exception& error) {  // also bad_alloc: one client's trouble
        flush(client);
        doom(client, error.what());
    }
}

void StoreServer::Impl::identified(ServerClient& client) {
    client.identified = true;
    silent_.remove(client.id());
    if (client.parser.era() == Era::legacy) {
        silent_.excuse_partner_of(client.id(), client.address());
    }
}

void StoreServer::Impl::join(ServerClient& client, const Request& request, Replies& replies) {
    const auto claim = decode_claim(request.values.front());
    if (!claim) throw UsageError{"store: a JOIN that is none"};
    const auto refusal = claim_rank(client.id(), *claim);
    auto& reply = replies.emplace_back(Reply{client.id(), {}}).bytes;
    append_u8(reply, static_cast<std::uint8_t>(refusal ? JoinReply::refused : JoinReply::joined));
    append_bytes(reply, refusal.value_or(""));
    if (refusal) base::log_warn("store", *refusal);
}

// Who held the rank may have ended just now, and the news of it come after this claim.
std::optional<std::string> StoreServer::Impl::claim_rank(ClientId client, const RankClaim& claim) {
    auto refusal = claims_.join(client, claim);
    if (!refusal) return refusal;
    bool freed = false;
    for (const ClientId other : claims_.connections_of(claim.rank)) {
        if (!has_hung_up(other)) continue;
        claims_.leave(other);
        freed = true;
    }
    return freed ? claims_.join(client, claim) : refusal;
}

bool StoreServer::Impl::has_hung_up(ClientId client) {
    auto* const found = find(client);
    if (found == nullptr || found->finished || found->doomed) return true;
    pollfd entry{found->fd(), POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) > 0;
}

void StoreServer::Impl::end_of_input(ServerClient& client) {
    client.finished = true;
    data_.forget(client.id());
    claims_.leave(client.id());
    if (client.backlog() == 0) return doom(client, "");
    client.limit_drain_time();
}

void StoreServer::Impl::deliver(Replies& replies) {
    for (auto& reply : replies) {
        auto* client = find(reply.to);
        if (client == nullptr || client->doomed) continue;
        touched_.push_back(client->id());
        if (!client->queue(std::move(reply.bytes))) doom(*client, "does not read its replies");
    }
    replies.clear();
}

void StoreServer::Impl::flush(ServerClient& client) {
    if (client.doomed) return;
    if (!client.flush()) return doom(client, "connection lost");
    if (client.finished && client.backlog() == 0) doom(client, "");
}

void StoreServer::Impl::watch(ServerClient& client) {
    std::uint32_t events = 0;
    if (!client.paused() && !client.finished) events |= EPOLLIN;
    if (client.backlog() > 0) events |= EPOLLOUT;
    if (events == client.events) return;
    epoll_event event{};
    event.events = events;
    event.data.u64 = client.id();
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fd(), &event) != 0) {
        return doom(client, "epoll_ctl failed");
    }
    client.events = events;
}

// `why` empty: it left by itself.
void StoreServer::Impl::doom(ServerClient& client, const std::string& why) {
    if (client.doomed) return;
    client.doomed = true;
    touched_.push_back(client.id());
    if (why.empty()) return;
    const auto level = client.identified ? base::LogLevel::warn : base::LogLevel::debug;
    base::log(level, "store", "closing connection " + std::to_string(client.id()) + ": " + why);
}

// After each event: sends what it caused, goes on where a full backlog stopped it, and closes whom
// it doomed.
void StoreServer::Impl::settle() {
    for (std::size_t i = 0; i < touched_.size(); ++i) {  // grows while it runs
        auto* client = find(touched_[i]);
        if (client == nullptr) continue;
        flush(*client);
        execute(*client, {});
        if (!client->doomed) watch(*client);
        if (!client->doomed) continue;
        data_.forget(client->id());
        claims_.leave(client->id());
        silent_.remove(client->id());
        clients_.erase(client->id());
    }
    touched_.clear();
}

ServerClient* StoreServer::Impl::find(ClientId id) {
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
}

StoreServer::StoreServer(base::UniqueFd listener, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listener), std::move(options))) {}
StoreServer::~StoreServer() = default;
StoreServer::StoreServer(StoreServer&& other) noexcept = default;
StoreServer& StoreServer::operator=(StoreServer&& other) noexcept = default;
std::uint16_t StoreServer::port() const { return impl_->port(); }
int StoreServer::fd() const { return impl_->fd(); }
void StoreServer::run_ready() { impl_->run_ready(); }
void StoreServer::start_attempt(int attempt) { impl_->start_attempt(attempt); }

}  // namespace ddp::store
