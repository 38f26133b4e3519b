// The connections of a TCP store's server: accept, read, execute, write, close. Clients are
// addressed by a number that is never used twice, since a descriptor may be given to a new
// connection while events for its former owner are still in hand. Invariant: between two events no
// client is closing, epoll watches exactly what each client's state asks for, and what each
// client's requests and replies cost is charged to its account.
#include "store/server/store_server.hpp"

#include <ddp/error.hpp>

#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <set>
#include <vector>

#include "base/log.hpp"
#include "store/admission/admission.hpp"
#include "store/admission/new_agents.hpp"
#include "store/server/client_memory.hpp"
#include "store/server/heap_trimmer.hpp"
#include "store/server/listener.hpp"
#include "store/server/server_client.hpp"
#include "store/server/server_log.hpp"
#include "store/server/silent_clients.hpp"
#include "store/server/store_data.hpp"
#include "store/server/wake_timer.hpp"

namespace ddp::store {
namespace {

using Clock = std::chrono::steady_clock;

constexpr ClientId timer_id = ~ClientId{0};
constexpr std::size_t max_silent = 64;
constexpr int rounds_a_call = 16;
constexpr int reads_an_event = 4;
constexpr int accepts_an_event = 4;                    // others have asked meanwhile
constexpr std::chrono::milliseconds longest_call{20};  // before one more round
// A read gives no more than this unless it is known that much more is to come: what cannot be used
// now has to be kept.
constexpr std::size_t usual_read = std::size_t{16} << 10;
constexpr std::chrono::seconds memory_tick{1};

}  // namespace

class StoreServer::Impl {
public:
    Impl(std::vector<base::UniqueFd> listeners, StoreServerOptions options);
    std::uint16_t port() const { return listeners_.port(); }
    const std::string& local_name() const { return listeners_.local_name(); }
    int fd() const { return epoll_.get(); }
    void run_ready();
    void start_attempt(int attempt, std::optional<int> world_size);
    void serve_hosts(const std::vector<std::string>& addresses);
    std::optional<ClientQuestion> take_question() {
        return admission_.vouching().take_question(Clock::now());
    }
    void vouch(ClientId id, bool is_of_job);

private:
    void handle(const epoll_event& event);
    void handle_client(ServerClient& client, std::uint32_t events);
    void handle_timer();
    void set_timer();
    void accept_some(Listener& listener);
    bool free_descriptor_for_next(Listener& listener);
    void add_client(Listener& listener, AcceptedSocket socket);
    void close_surplus();
    void read_from(ServerClient& client);
    bool follow(ServerClient& client, const Admission::Step& step);
    void take_agent(ServerClient& client, std::string_view first_bytes);
    void execute(ServerClient& client, std::string_view fresh_bytes);
    bool can_go_on(ServerClient& client);
    bool take_request(ServerClient& client);
    void carry_out(ServerClient& client);
    void identified(ServerClient& client);
    void join(ServerClient& client, const Request& request, Replies& replies);
    ClientHooks hooks();
    void end_of_input(ServerClient& client);
    void deliver(Replies& replies);
    void flush(ServerClient& client);
    void watch(ServerClient& client);

    void settle();
    void close_clients();

    void close_later(ServerClient& client, const std::string& why);
    void finish_event();
    void finish(ClientId id);
    ServerClient* find(ClientId id);

    StoreLimits limits_;
    base::UniqueFd epoll_;
    WakeTimer timer_;
    Listeners listeners_;
    Admission admission_;
    StoreData data_;
    ClientId next_id_ = 1;
    std::unordered_map<ClientId, ServerClient> clients_;
    SilentClients silent_{max_silent};
    std::vector<ClientId> changed_;  // to be finished after this event
    NewAgents agents_;
    ClientMemory memory_{data_, clients_};
    ServerLog log_;
    HeapTrimmer heap_;
    std::array<char, 64 * 1024> read_buffer_;
};

StoreServer::Impl::Impl(std::vector<base::UniqueFd> listeners, StoreServerOptions options)
    : limits_(options.limits),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      listeners_(std::move(listeners), epoll_.get()),
      admission_(options.peers, std::move(options.job), options.needs_vouchers),
      data_(limits_, hooks()),
      agents_(std::move(options.take_agent)),
      heap_(limits_.returns_memory) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = timer_id;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.fd(), &event) != 0) {
        throw SystemError{"store: epoll_ctl of the timer", errno};
    }
    if (options.is_local_too) listeners_.listen_locally();
}

void StoreServer::Impl::run_ready() {
    std::array<epoll_event, 64> events;
    const auto until = Clock::now() + longest_call;
    for (int round = 0; round < rounds_a_call && Clock::now() < until; ++round) {
        const int count =
            ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
        for (int i = 0; i < count; ++i) {
            handle(events[static_cast<std::size_t>(i)]);
            agents_.hand_over([this] { set_timer(); });
        }
        if (count < static_cast<int>(events.size())) break;  // what came since wakes us anew
    }
    settle();
}

ClientHooks StoreServer::Impl::hooks() {
    return {[this](ClientId id) { return admission_.belongs_to_job(clients_.at(id).fd()); },
            [this](ClientId id) { return admission_.describe(id, clients_.at(id).fd()); }};
}

void StoreServer::Impl::start_attempt(int attempt, std::optional<int> world_size) {
    close_clients();
    memory_.clear();
    data_.clear();
    admission_.start_attempt(attempt, world_size);
    // What still waits to be accepted belongs to the old attempt too, with all that it has already
    // sent.
    agents_.are_taken() ? listeners_.outlive_attempt() : listeners_.drop_pending();
    close_surplus();
    settle();
}

// But for those that may turn out to be agents. Of these more than before count as silent: nobody's
// partner is due any more.
void StoreServer::Impl::close_clients() {
    silent_.clear();
    changed_.clear();
    std::erase_if(clients_, [this](const auto& entry) {
        return !agents_.are_taken() || !entry.second.may_be_agent();
    });
    std::set<ClientId> left;
    for (auto& [id, client] : clients_) {
        client.outlive_attempt();
        left.insert(id);
    }
    for (const ClientId id : left) silent_.add(id, find(id)->address());
}

void StoreServer::Impl::serve_hosts(const std::vector<std::string>& addresses) {
    for (const std::string& unknown : admission_.serve_hosts(addresses)) {
        log_.say(base::LogLevel::warn, "\"" + unknown + "\" is no host's address here");
    }
    for (auto& [id, client] : clients_) {
        if (agents_.are_taken() && client.has_said_nothing()) continue;
        follow(client, admission_.look_at_host(client));
    }
    finish_event();
    settle();
}

void StoreServer::Impl::handle(const epoll_event& event) {
    if (auto* client = find(event.data.u64)) {
        handle_client(*client, event.events);
    } else if (event.data.u64 == timer_id) {
        handle_timer();
    } else if (auto* listener = listeners_.find(event.data.u64)) {
        accept_some(*listener);
    }
    finish_event();
}

void StoreServer::Impl::handle_client(ServerClient& client, std::uint32_t events) {
    changed_.push_back(client.id());
    client.waits_for_turn = false;
    if ((events & EPOLLOUT) != 0) flush(client);
    const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
    const bool is_awaited = client.voucher == Vouched::awaited;
    if (client.paused() || client.waits_for_memory || client.finished || is_awaited) {
        if (broken) close_later(client, "connection lost");
    } else if (broken || (events & EPOLLIN) != 0) {
        read_from(client);
    }
}

void StoreServer::Impl::handle_timer() {
    timer_.acknowledge();
    const auto now = Clock::now();
    listeners_.resume(now);
    log_.say_rest(now);
    for (const auto& [id, why] : memory_.overdue(now)) close_later(*find(id), why);
    for (const ClientId id : admission_.vouching().overdue(now)) {
        follow(*find(id), admission_.unanswered(*find(id)));
    }
}

// For the next thing that happens although nobody says anything.
void StoreServer::Impl::set_timer() {
    if (const auto time = listeners_.wakes_at()) timer_.set(*time);
    if (const auto time = log_.wakes_at()) timer_.set(*time);
    if (const auto time = admission_.vouching().wakes_at()) timer_.set(*time);
    if (agents_.are_here()) timer_.set(Clock::now());
    if (memory_.has_waiters() && !timer_.is_set()) timer_.set(Clock::now() + memory_tick);
}

void StoreServer::Impl::accept_some(Listener& listener) {
    for (int i = 0; i < accepts_an_event && !listener.is_paused(); ++i) {
        if (auto socket = listener.accept(); socket.fd) {
            add_client(listener, std::move(socket));
        } else if (out_of_descriptors(errno)) {
            if (!free_descriptor_for_next(listener)) return;
        } else if (errno != EINTR && errno != ECONNABORTED) {
            return;  // EAGAIN: all are in; anything else concerns one connection that is gone
        }
    }
}

// No descriptor is left for the next connection, if there is one: accept fails that way also when
// nobody waits. Returns whether to try again.
bool StoreServer::Impl::free_descriptor_for_next(Listener& listener) {
    if (!listener.has_pending()) return false;
    const auto silent = silent_.oldest();
    if (const auto oldest = silent ? silent : admission_.vouching().first_to_go()) {
        close_later(*find(*oldest), "no descriptor left");
        finish_event();
        return true;
    }
    log_.say(base::LogLevel::warn, "no descriptor left: a connection is turned away");
    return listener.reject_one();
}

void StoreServer::Impl::add_client(Listener& listener, AcceptedSocket socket) {
    const auto agents = agents_.are_taken() ? Admission::Agents::taken : Admission::Agents::closed;
    const auto verdict = admission_.look_at(socket.fd.get(), agents);
    socket.is_elsewhere = verdict.is_elsewhere;
    if (verdict.refusal) {
        if (!verdict.refusal->empty()) log_.say(base::LogLevel::warn, *verdict.refusal);
        return listener.note_stranger_gone(Clock::now());
    }
    const auto id = next_id_++;
    silent_.add(id, socket.address);
    auto& client = clients_.try_emplace(id, id, std::move(socket)).first->second;
    client.voucher = admission_.voucher_for(client.is_elsewhere());
    changed_.push_back(id);
    read_from(client);  // it may have spoken already: then it is no stranger, or an agent
    close_surplus();
}

void StoreServer::Impl::close_surplus() {
    while (const auto surplus = silent_.surplus()) {
        find(*surplus)->reset();  // thousands may come a second
        close_later(*find(*surplus), "silent, and too many others are");
        finish_event();
    }
    finish_event();
}

void StoreServer::Impl::read_from(ServerClient& client) {
    execute(client, {});  // first what is there already
    if (!follow(client, admission_.before_reading(client))) return;
    for (int i = 0; i < reads_an_event && can_go_on(client); ++i) {
        const auto size = client.parser.granted_memory() > 0 ? read_buffer_.size() : usual_read;
        const auto got = client.receive({read_buffer_.data(), size});
        if (got.has_ended) return end_of_input(client);
        if (got.is_lost) return close_later(client, "connection lost");
        if (!got.bytes.empty()) execute(client, got.bytes);
        if (got.bytes.size() < size) return;  // that was all
    }
}

// Stops when the client has left replies unread, waits for memory or has had its turn; finish()
// calls again once that is over.
void StoreServer::Impl::execute(ServerClient& client, std::string_view fresh_bytes) {
    try {
        if (!fresh_bytes.empty()) {
            if (client.has_said_nothing()) {
                const bool is_agent = static_cast<std::uint8_t>(fresh_bytes[0]) == agent_hello;
                if (is_agent && agents_.are_taken()) return take_agent(client, fresh_bytes);
                if (!follow(client, admission_.first_words(client))) return;
            }
            client.parser.feed(fresh_bytes);
        }
        const auto until = Clock::now() + limits_.longest_turn;
        while (can_go_on(client) && take_request(client)) {
            carry_out(client);
            client.waits_for_turn = Clock::now() >= until;
        }
        if (client.closing) return;
        if (const auto why = memory_.charge(client); !why.empty()) close_later(client, why);
    } catch (const std::exception& error) {  // also bad_alloc: one client's trouble
        flush(client);
        close_later(client, error.what());
    }
}

// Whether the client is to be read.
bool StoreServer::Impl::follow(ServerClient& client, const Admission::Step& step) {
    using Next = Admission::Next;
    if (client.voucher == Vouched::awaited) silent_.remove(client.id());
    if (!step.warning.empty()) log_.say(base::LogLevel::warn, step.warning);
    if (step.next == Next::end_of_input) end_of_input(client);
    if (step.next == Next::close) close_later(client, step.why);
    return step.next == Next::read;
}

void StoreServer::Impl::vouch(ClientId id, bool is_of_job) {
    ServerClient* const client = find(id);
    if (client == nullptr || client->voucher != Vouched::awaited) return;
    changed_.push_back(id);
    follow(*client, admission_.vouched(*client, is_of_job));
    finish_event();
    settle();
}

void StoreServer::Impl::take_agent(ServerClient& client, std::string_view first_bytes) {
    silent_.remove(client.id());
    agents_.add(client.take_fd(epoll_.get()), first_bytes);
    close_later(client, "");
}

bool StoreServer::Impl::can_go_on(ServerClient& client) {
    if (client.paused()) flush(client);
    return !client.closing && !client.waits_for_memory && !client.waits_for_turn &&
           !client.paused();
}

// Whether a whole request is there, and memory for its reply.
bool StoreServer::Impl::take_request(ServerClient& client) {
    while (!client.pending) {
        const auto status = client.parser.next(client.pending.emplace());
        if (status == RequestParser::Status::request) break;
        client.pending.reset();
        if (status == RequestParser::Status::incomplete) return false;
        if (status == RequestParser::Status::refused) throw UsageError{client.parser.refusal()};
        if (!memory_.get_memory(client)) return false;
    }
    if (!client.identified) identified(client);
    return !client.closing && memory_.get_memory(client);
}

void StoreServer::Impl::carry_out(ServerClient& client) {
    Request request = std::move(*client.pending);
    client.pending.reset();
    if (agents_.are_taken() && !follow(client, admission_.look_at_request(client, request))) return;
    if (request.op == Opcode::wait) memory_.charge(client);  // what it held becomes the wait's
    Replies replies;
    if (request.op == Opcode::join) {
        join(client, request, replies);
    } else {
        data_.execute(client.id(), client.parser.era(), std::move(request), replies);
    }
    deliver(replies);
}

void StoreServer::Impl::identified(ServerClient& client) {
    client.identified = true;
    silent_.remove(client.id());
    if (client.parser.era() == Era::legacy) {
        silent_.excuse_partner_of(client.id(), client.address());
    }
    if (!data_.budget().charge(client.id(), MemoryBudget::Use::request, 0)) {
        close_later(client, "no memory left for one more connection");
    }
}

void StoreServer::Impl::join(ServerClient& client, const Request& request, Replies& replies) {
    auto answer = admission_.join(client.id(), request, [this](ClientId other) {
        auto* const found = find(other);
        return found == nullptr || found->finished || found->closing || found->has_hung_up();
    });
    replies.push_back(std::move(answer.reply));
    if (!answer.refusal.empty()) return log_.say(base::LogLevel::warn, answer.refusal);
    data_.budget().mark_rank(client.id());
}

void StoreServer::Impl::end_of_input(ServerClient& client) {
    client.finished = true;
    data_.end_input(client.id());
    admission_.leave(client.id());
    // A local peer closes both directions, and nothing would limit its time to read the rest.
    if (client.backlog() == 0 || client.is_local()) return close_later(client, "");
    client.limit_drain_time();
}

void StoreServer::Impl::deliver(Replies& replies) {
    for (auto& reply : replies) {
        auto* client = find(reply.to);
        if (client == nullptr || client->closing) continue;
        if (changed_.empty() || changed_.back() != client->id()) changed_.push_back(client->id());
        if (!client->queue(std::move(reply))) close_later(*client, "does not read its replies");
    }
    replies.clear();
}

void StoreServer::Impl::flush(ServerClient& client) {
    if (client.closing) return;
    if (!client.flush()) return close_later(client, "connection lost");
    if (client.finished && client.backlog() == 0) close_later(client, "");
}

void StoreServer::Impl::watch(ServerClient& client) {
    if (!client.watch(epoll_.get())) close_later(client, "epoll_ctl failed");
}

// Until the next event.
void StoreServer::Impl::settle() {
    if (heap_.is_on()) heap_.note(data_.held_bytes());
    set_timer();
}

// `why` empty: it left by itself.
void StoreServer::Impl::close_later(ServerClient& client, const std::string& why) {
    if (client.closing) return;
    client.closing = true;
    changed_.push_back(client.id());
    if (why.empty()) return;
    log_.say(client.identified ? base::LogLevel::warn : base::LogLevel::debug,
             "closing connection " + std::to_string(client.id()) + ": " + why);
}

// After each event: sends what it caused, goes on where unread replies or a lack of memory stopped
// it, and closes the clients that are closing.
void StoreServer::Impl::finish_event() {
    do {
        for (std::size_t i = 0; i < changed_.size(); ++i) finish(changed_[i]);  // grows meanwhile
        changed_.clear();
        for (const auto& [id, why] : memory_.limit_detached()) close_later(*find(id), why);
        const auto decisions = memory_.admit();
        changed_.insert(changed_.end(), decisions.resumed.begin(), decisions.resumed.end());
        for (const auto& [id, why] : decisions.evicted) close_later(*find(id), why);
    } while (!changed_.empty());
}

void StoreServer::Impl::finish(ClientId id) {
    auto* client = find(id);
    if (client == nullptr) return;
    flush(*client);
    execute(*client, {});
    flush(*client);
    if (!client->closing) watch(*client);
    if (!client->closing) return;
    if (client->is_stranger()) listeners_.of(*client).note_stranger_gone(Clock::now());
    data_.forget(id);  // which may still ask who it is
    admission_.leave(id);
    silent_.forget(id, client->address());
    memory_.forget(id);
    clients_.erase(id);
}

ServerClient* StoreServer::Impl::find(ClientId id) {
    const auto found = clients_.find(id);
    return found == clients_.end() ? nullptr : &found->second;
}

StoreServer::StoreServer(std::vector<base::UniqueFd> listeners, StoreServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(listeners), std::move(options))) {}
StoreServer::~StoreServer() = default;
StoreServer::StoreServer(StoreServer&& other) noexcept = default;
StoreServer& StoreServer::operator=(StoreServer&& other) noexcept = default;
std::uint16_t StoreServer::port() const { return impl_->port(); }
const std::string& StoreServer::local_name() const { return impl_->local_name(); }
int StoreServer::fd() const { return impl_->fd(); }
void StoreServer::run_ready() { impl_->run_ready(); }
void StoreServer::start_attempt(int attempt, std::optional<int> world_size) {
    impl_->start_attempt(attempt, world_size);
}
std::optional<ClientQuestion> StoreServer::take_question() { return impl_->take_question(); }
void StoreServer::vouch(std::uint64_t client, bool is_of_job) { impl_->vouch(client, is_of_job); }
void StoreServer::serve_hosts(const std::vector<std::string>& addresses) {
    impl_->serve_hosts(addresses);
}

}  // namespace ddp::store
