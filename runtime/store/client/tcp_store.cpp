// The client of the TCP store. Values travel on one connection, so that a thread reads what it
// wrote; each wait has a connection of its own meanwhile, so that nobody waits for a waiting
// thread. Invariant: a connection on which an exchange failed is never used again.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <mutex>

#include "base/deadline.hpp"
#include "store/admission/peer_check.hpp"
#include "store/client/job_store.hpp"
#include "store/client/tcp_connection.hpp"
#include "store/limits.hpp"

namespace ddp {
namespace store {
namespace {

using base::Deadline;
using std::chrono::milliseconds;

// A call with a short timeout still gives the server this long for a plain exchange, which never
// waits for other ranks: a busy machine must not cost the connection.
constexpr milliseconds exchange_grace{10'000};
constexpr std::size_t kept_connections = 8;
constexpr std::size_t most_keys_asked_after = 64;

class TcpStore final : public Store {
public:
    // `job`: the server is one of ddp's, and must serve this rank.
    struct Job {
        const RankClaim& claim;
        ServedBy server;
        StorePeers peers;
    };
    TcpStore(const MasterAddress& server, Timeout timeout, const Job* job);

    using Store::get;
    using Store::multi_get;
    using Store::wait;
    void set(const std::string& key, const std::string& value) override;
    std::string get(const std::string& key, Timeout timeout) override;
    std::optional<std::string> try_get(const std::string& key) override;
    std::int64_t add(const std::string& key, std::int64_t amount) override;
    bool check(const StoreKeys& keys) override;
    void wait(const StoreKeys& keys, Timeout timeout) override;
    std::string compare_set(const std::string& key, const std::string& expected,
                            const std::string& desired) override;
    bool delete_key(const std::string& key) override;
    void append(const std::string& key, const std::string& value) override;
    StoreValues multi_get(const StoreKeys& keys, Timeout timeout) override;
    void multi_set(const StoreKeys& keys, const StoreValues& values) override;
    std::int64_t num_keys() override;
    Timeout timeout() const override { return timeout_; }
    int program() const { return program_; }

private:
    // checked_values: CHECK is sent before the request; its reply, then the values.
    enum class ReplyKind { none, byte, number, value, values, checked_values };
    struct Answer {
        std::uint8_t byte = 0;
        std::int64_t number = 0;
        StoreValues values{};
    };
    Answer exchange(const Request& request, ReplyKind kind, const std::string& what,
                    Timeout timeout);
    Answer exchange(const Request& request, ReplyKind kind, const std::string& what) {
        return exchange(request, kind, what, timeout_);
    }
    int finish_join(TcpConnection& connection, const Deadline& deadline) const;
    void check_server(const TcpConnection& connection) const;
    static TcpConnection::Servers servers_of(const Job* job) {
        if (job == nullptr) return TcpConnection::Servers::any;
        return job->server == ServedBy::launcher ? TcpConnection::Servers::of_launcher
                                                 : TcpConnection::Servers::of_ddp;
    }
    bool all_there(const StoreKeys& keys, Timeout timeout);
    void wait_elsewhere(const StoreKeys& keys, const Deadline& deadline);
    bool finish_wait(TcpConnection& connection, const std::string& doing,
                     const Deadline& deadline) const;
    StoreKeys still_missing(const StoreKeys& keys);
    bool can_cancel() const { return era_ == Era::modern; }
    TcpConnection start_wait(const StoreKeys& keys, const std::string& doing,
                             const Deadline& deadline);
    void give_back(TcpConnection connection);
    Deadline exchange_deadline(Timeout timeout) const {
        return Deadline::after(std::max(timeout, std::min(timeout_, exchange_grace)));
    }

    const MasterAddress server_;
    const Timeout timeout_;
    const bool is_jobs_;  // the server is one of ddp's
    const TcpConnection::Servers servers_;
    const bool checks_server_;  // and may be anybody's
    std::string join_;          // the claim that goes with each connection
    int program_ = 0;           // of this process among its rank's, as the server has told
    const pid_t owner_ = ::getpid();
    std::mutex mutex_;                         // of connection_; held for one exchange
    std::optional<TcpConnection> connection_;  // nothing: it was lost
    std::string where_;
    // Of the server. PyTorch's of 1.13 knows the older numbering's operations up to delete_key.
    Era era_ = Era::modern;
    std::mutex idle_mutex_;
    std::vector<TcpConnection> idle_;  // for waits to come
};

std::string on_wire(const std::string& key) {
    auto wire_key = "/" + key;
    check_key(wire_key);
    return wire_key;
}

StoreKeys on_wire(const StoreKeys& keys) {
    StoreKeys wire_keys;
    wire_keys.reserve(keys.size());
    for (const auto& key : keys) wire_keys.push_back(on_wire(key));
    check_keys(wire_keys);
    return wire_keys;
}

bool is_ready(std::uint8_t check_reply) {
    return check_reply == static_cast<std::uint8_t>(CheckReply::ready);
}

TcpStore::TcpStore(const MasterAddress& server, Timeout timeout, const Job* job)
    : server_(server),
      timeout_(timeout),
      is_jobs_(job != nullptr),
      servers_(servers_of(job)),
      checks_server_(is_jobs_ && job->server == ServedBy::rank_0 &&
                     job->peers == StorePeers::same_user) {
    const auto deadline = Deadline::after(timeout);
    std::vector<Request> questions;
    if (is_jobs_) join_ = encode_claim(job->claim);
    if (is_jobs_) questions.push_back({.op = Opcode::join, .values = {join_}});
    auto& connection = connection_.emplace(server, deadline, TcpConnection::Refused::try_again,
                                           Era::modern, questions, servers_);
    where_ = connection.where();
    era_ = connection.era();
    if (is_jobs_) {
        check_server(connection);
        program_ = finish_join(connection, deadline);
    } else {  // PyTorch's rank 0 counts these to know that all workers have come
        exchange({.op = Opcode::add, .keys = {"init/"}, .number = 1}, ReplyKind::number, "hello");
    }
}

// Returns the number of this process among its rank's.
int TcpStore::finish_join(TcpConnection& connection, const Deadline& deadline) const {
    const auto reply = static_cast<JoinReply>(connection.receive_u8(deadline, "join"));
    const std::string why = connection.receive_value(deadline, "join");
    if (reply != JoinReply::joined) throw UsageError{"store: at " + where_ + " " + why};
    int program = 0;
    const char* const end = why.data() + why.size();
    const auto parsed = std::from_chars(why.data(), end, program);
    if (!why.empty() && (parsed.ec != std::errc{} || parsed.ptr != end || program < 0)) {
        throw SystemError{"store: " + where_ + " answered a join with no number", EPROTO};
    }
    return program;
}

void TcpStore::check_server(const TcpConnection& connection) const {
    if (checks_server_) require_trusted_server(connection.fd(), where_);
}

// One request and its reply on the shared connection.
TcpStore::Answer TcpStore::exchange(const Request& request, ReplyKind kind, const std::string& what,
                                    Timeout timeout) {
    if (::getpid() != owner_) {
        throw UsageError{"store: this client of " + where_ +
                         " was made before a fork; connect anew in the child"};
    }
    const auto doing = request.keys.empty() ? what : what + " of keys " + name_keys(request.keys);
    const auto deadline = exchange_deadline(timeout);
    const std::lock_guard lock{mutex_};
    if (!connection_) {
        throw SystemError{"store: the connection to " + where_ + " was lost before (" + doing + ")",
                          ENOTCONN};
    }
    Answer answer;
    try {
        if (kind == ReplyKind::checked_values) {
            connection_->send_both({.op = Opcode::check, .keys = request.keys}, request, deadline,
                                   doing);
            answer.byte = connection_->receive_u8(deadline, doing);
        } else {
            connection_->send(request, deadline, doing);
        }
        switch (kind) {
            case ReplyKind::none:
                break;
            case ReplyKind::byte:
                answer.byte = connection_->receive_u8(deadline, doing);
                break;
            case ReplyKind::number:
                answer.number = connection_->receive_i64(deadline, doing);
                break;
            case ReplyKind::value:
                answer.values.push_back(connection_->receive_value(deadline, doing));
                break;
            case ReplyKind::values:
            case ReplyKind::checked_values:
                for (std::size_t i = 0; i < request.keys.size(); ++i) {
                    answer.values.push_back(connection_->receive_value(deadline, doing));
                }
                break;
        }
    } catch (...) {
        connection_.reset();
        throw;
    }
    return answer;
}

void TcpStore::set(const std::string& key, const std::string& value) {
    check_value_bytes(key, value.size());
    exchange({.op = Opcode::set, .keys = {on_wire(key)}, .values = {value}}, ReplyKind::none,
             "set");
}

std::string TcpStore::get(const std::string& key, Timeout timeout) {
    return std::move(multi_get({key}, timeout).front());
}

std::optional<std::string> TcpStore::try_get(const std::string& key) {
    if (!check({key})) return std::nullopt;
    return std::move(exchange({.op = Opcode::get, .keys = {on_wire(key)}}, ReplyKind::value, "get")
                         .values.front());
}

std::int64_t TcpStore::add(const std::string& key, std::int64_t amount) {
    return exchange({.op = Opcode::add, .keys = {on_wire(key)}, .number = amount},
                    ReplyKind::number, "add")
        .number;
}

bool TcpStore::check(const StoreKeys& keys) { return all_there(on_wire(keys), timeout_); }

bool TcpStore::all_there(const StoreKeys& wire_keys, Timeout timeout) {
    const auto answer =
        exchange({.op = Opcode::check, .keys = wire_keys}, ReplyKind::byte, "check", timeout);
    return is_ready(answer.byte);
}

void TcpStore::wait(const StoreKeys& keys, Timeout timeout) {
    const auto deadline = Deadline::after(timeout);
    if (all_there(on_wire(keys), timeout)) return;
    wait_elsewhere(keys, deadline);
}

// Waits on a connection of its own. Throws TimeoutError with the keys that are missing.
void TcpStore::wait_elsewhere(const StoreKeys& keys, const Deadline& deadline) {
    if (!deadline.passed()) {
        const auto doing = "waiting for keys " + name_keys(keys);
        auto connection = start_wait(keys, doing, deadline);
        const bool came = finish_wait(connection, doing, deadline);
        if (came || can_cancel()) give_back(std::move(connection));
        if (came) return;
    }
    const auto missing = still_missing(keys);
    if (missing.empty()) return;  // the last one came just now
    throw TimeoutError{not_set_message(missing, deadline.timeout(), where_)};
}

// WAIT has been sent; when the time is over CANCEL_WAIT. Returns whether all keys came.
bool TcpStore::finish_wait(TcpConnection& connection, const std::string& doing,
                           const Deadline& deadline) const {
    const bool answered = connection.readable(deadline);
    const auto last = exchange_deadline(milliseconds{0});
    const auto expect = [&](std::uint8_t got, WaitReply wanted) {
        if (got == static_cast<std::uint8_t>(wanted)) return;
        throw SystemError{"store: " + where_ + " answered out of turn (" + doing + ")", EPROTO};
    };
    if (!answered && !can_cancel()) return false;  // the wait ends with the connection
    if (!answered) connection.send({.op = Opcode::cancel_wait}, last, doing);
    const auto reply = connection.receive_u8(last, doing);
    if (!answered && reply == static_cast<std::uint8_t>(WaitReply::wait_canceled)) return false;
    expect(reply, WaitReply::stop_waiting);
    // The keys came while the wait was being cancelled: one reply more.
    if (!answered) expect(connection.receive_u8(last, doing), WaitReply::wait_canceled);
    return true;
}

StoreKeys TcpStore::still_missing(const StoreKeys& keys) {
    if (keys.size() > most_keys_asked_after) return keys;
    StoreKeys missing;
    for (const auto& key : keys) {
        if (!all_there({on_wire(key)}, milliseconds{0})) missing.push_back(key);
    }
    return missing;
}

// Returns a connection on which WAIT has been sent: an idle one, or a new one with its hello.
TcpConnection TcpStore::start_wait(const StoreKeys& keys, const std::string& doing,
                                   const Deadline& deadline) {
    const Request request{.op = Opcode::wait, .keys = on_wire(keys)};
    std::optional<TcpConnection> idle;
    {
        const std::lock_guard lock{idle_mutex_};
        if (!idle_.empty()) {
            idle = std::move(idle_.back());
            idle_.pop_back();
        }
    }
    const auto plain = exchange_deadline(deadline.left());
    if (!idle) {
        std::vector<Request> questions;
        if (is_jobs_) questions.push_back({.op = Opcode::join, .values = {join_}});
        questions.push_back(request);
        TcpConnection fresh{server_, plain,     TcpConnection::Refused::give_up,
                            era_,    questions, servers_};
        check_server(fresh);
        if (is_jobs_) finish_join(fresh, plain);
        return fresh;
    }
    idle->send(request, plain, doing);
    return std::move(*idle);
}

void TcpStore::give_back(TcpConnection connection) {
    const std::lock_guard lock{idle_mutex_};
    if (idle_.size() < kept_connections) idle_.push_back(std::move(connection));
}

std::string TcpStore::compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired) {
    check_value_bytes(key, std::max(expected.size(), desired.size()));
    return std::move(
        exchange({.op = Opcode::compare_set, .keys = {on_wire(key)}, .values = {expected, desired}},
                 ReplyKind::value, "compare_set")
            .values.front());
}

bool TcpStore::delete_key(const std::string& key) {
    return exchange({.op = Opcode::delete_key, .keys = {on_wire(key)}}, ReplyKind::number,
                    "delete_key")
               .number > 0;
}

void TcpStore::append(const std::string& key, const std::string& value) {
    check_value_bytes(key, value.size());
    if (era_ == Era::legacy) {
        throw SystemError{"store: PyTorch's server at " + where_ +
                              " is older than 2.2, and append is not known there; use set",
                          EOPNOTSUPP};
    }
    exchange({.op = Opcode::append, .keys = {on_wire(key)}, .values = {value}}, ReplyKind::none,
             "append");
}

StoreValues TcpStore::multi_get(const StoreKeys& keys, Timeout timeout) {
    const auto deadline = Deadline::after(timeout);
    const Request request{.op = keys.size() == 1 ? Opcode::get : Opcode::multi_get,
                          .keys = on_wire(keys)};
    if (is_jobs_ && keys.size() == 1) {
        Answer answer = exchange(request, ReplyKind::checked_values, "get", timeout);
        if (is_ready(answer.byte)) return std::move(answer.values);
        wait_elsewhere(keys, deadline);
    } else {
        wait(keys, timeout);
    }
    if (era_ == Era::legacy) {
        StoreValues values;
        for (const auto& key : on_wire(keys)) {
            values.push_back(exchange({.op = Opcode::get, .keys = {key}}, ReplyKind::value, "get",
                                      deadline.left())
                                 .values.front());
        }
        return values;
    }
    return exchange(request, ReplyKind::values, "get", deadline.left()).values;
}

void TcpStore::multi_set(const StoreKeys& keys, const StoreValues& values) {
    check_pairs(keys, values);
    if (era_ == Era::legacy) {
        for (std::size_t i = 0; i < keys.size(); ++i) set(keys[i], values[i]);
        return;
    }
    exchange({.op = Opcode::multi_set, .keys = on_wire(keys), .values = values}, ReplyKind::none,
             "multi_set");
}

std::int64_t TcpStore::num_keys() {
    return exchange({.op = Opcode::get_num_keys}, ReplyKind::number, "num_keys").number;
}

}  // namespace
}  // namespace store

store::JobStore store::connect_job_store(const MasterAddress& master, const RankClaim& claim,
                                         ServedBy server, StorePeers peers,
                                         Store::Timeout timeout) {
    const store::TcpStore::Job job{claim, server, peers};
    auto store = std::make_shared<store::TcpStore>(master, timeout, &job);
    const int program = store->program();
    return {std::move(store), program};
}

std::shared_ptr<Store> connect_tcp_store(const MasterAddress& master, Store::Timeout timeout) {
    return std::make_shared<store::TcpStore>(master, timeout, nullptr);
}

}  // namespace ddp
