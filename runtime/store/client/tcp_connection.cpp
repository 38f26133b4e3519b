// Connecting with retries, and exact exchanges under a deadline.
// Invariant: only the hello is ever repeated; a request that changes something is sent once.
#include "store/client/tcp_connection.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "base/net/local_socket.hpp"
#include "store/server/server_limits.hpp"

namespace ddp::store {
namespace {

using std::chrono::milliseconds;

using Clock = std::chrono::steady_clock;

constexpr milliseconds first_pause{10};
constexpr milliseconds longest_pause{1000};
// A server that accepts but does not answer may be restarting: try anew after this.
constexpr milliseconds hello_timeout{10'000};
// What serves others alone closes at once; what has no descriptor left may have one again.
constexpr milliseconds closed_for{30'000};
// A server that restarts may close one; PyTorch's before 2.2 closes each.
constexpr int hellos_before_older_one = 2;

// Trying a free port again and again can end in a connection to oneself (TCP's simultaneous open).
bool connected_to_itself(int fd) {
    sockaddr_storage here{};
    sockaddr_storage there{};
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&here), &here_size) == 0 &&
           ::getpeername(fd, reinterpret_cast<sockaddr*>(&there), &there_size) == 0 &&
           here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

base::Deadline sooner(const base::Deadline& deadline, milliseconds cap) {
    return base::Deadline::after(std::min(deadline.left(), cap));
}

}  // namespace

TcpConnection::TcpConnection(const MasterAddress& server, const base::Deadline& deadline,
                             Refused refused, Era expected, std::span<const Request> questions,
                             Servers servers)
    : server_(server), where_(base::host_and_port(server.host, server.port)), era_(expected) {
    std::string trouble = "no time to try";
    int closed_hellos = 0;
    auto answered_until = Clock::now();
    for (auto pause = first_pause; !deadline.passed(); pause = std::min(2 * pause, longest_pause)) {
        const base::Deadline soon = sooner(deadline, hello_timeout);
        base::ConnectResult connected = connect(soon, servers);
        fd_ = std::move(connected.fd);
        const int error = fd_ ? try_hello(soon, questions) : connected.error;
        if (error == 0) return;
        // A process that cannot be recognised by name may be by its port.
        if (servers == Servers::of_launcher) servers = Servers::of_ddp;
        if (error == ECONNREFUSED && refused == Refused::give_up) {
            throw SystemError{"store: the server at " + where_ + " is gone", error};
        }
        const bool closed = era_ == Era::modern && (error == ECONNRESET || error == EPIPE);
        closed_hellos = closed ? closed_hellos + 1 : 0;
        if (closed_hellos == 0) answered_until = Clock::now();
        if (servers == Servers::any) {
            era_ = closed_hellos == hellos_before_older_one ? Era::legacy : Era::modern;
        } else if (Clock::now() - answered_until > closed_for) {
            throw SystemError{"store: " + where_ +
                                  " has closed each connection of this process "
                                  "for " +
                                  base::to_string(closed_for) +
                                  "; why is said in the output of who serves there (ddp-launch, or "
                                  "rank 0)",
                              error};
        }
        trouble = connected.trouble.empty() ? ::strerror(error) : connected.trouble;
        std::this_thread::sleep_for(std::min(pause, deadline.left()));
    }
    throw TimeoutError{"store: no answer from " + where_ + " after " +
                       base::to_string(deadline.timeout()) + " (" + trouble +
                       "); is rank 0 running?"};
}

// A failure is worth another try.
base::ConnectResult TcpConnection::connect(const base::Deadline& deadline, Servers servers) {
    const char* const name = std::getenv("DDP_AGENT_STORE_SOCKET");
    if (servers == Servers::of_launcher && name != nullptr) {
        if (base::UniqueFd fd = base::try_connect_local(name)) return {.fd = std::move(fd)};
    }
    base::ConnectResult result = base::connect_tcp(server_.host, server_.port, deadline);
    if (result.fd && connected_to_itself(result.fd.get())) return {.error = ECONNREFUSED};
    return result;
}

// 0, or the errno that makes it worth another try: ETIMEDOUT also when the hello is not answered.
int TcpConnection::try_hello(const base::Deadline& deadline, std::span<const Request> questions) {
    try {
        if (answers_hello(deadline, questions)) return 0;
    } catch (const SystemError& lost) {
        return lost.code();
    } catch (const TimeoutError&) {
        return ETIMEDOUT;
    }
    throw SystemError{"store: what listens at " + where_ + " is neither a ddp nor a PyTorch store",
                      EPROTO};
}

// The older numbering has no hello; whether no keys are there is a question without effect.
bool TcpConnection::answers_hello(const base::Deadline& deadline,
                                  std::span<const Request> questions) {
    std::string asked;
    for (const Request& question : questions) asked += encode_request(question, era_);
    if (era_ == Era::legacy) {
        send_bytes(encode_request({.op = Opcode::check}, era_) + asked, deadline, "hello");
        return receive_u8(deadline, "hello") == static_cast<std::uint8_t>(CheckReply::ready);
    }
    // An older server takes all this for the length of a key. The bit, beyond any pid, makes the
    // length one that cannot be allocated, whatever the machine promises.
    constexpr std::uint32_t impossible_length = 1U << 23;
    const auto nonce = static_cast<std::uint32_t>(::getpid()) | impossible_length;
    send_bytes(encode_request({.op = Opcode::validate, .number = validate_magic}, era_) +
                   encode_request({.op = Opcode::ping, .number = nonce}, era_) + asked,
               deadline, "hello");
    return receive_u32(deadline, "hello") == nonce;
}

void TcpConnection::send(const Request& request, const base::Deadline& deadline,
                         const std::string& doing) {
    send_bytes(encode_request(request, era_), deadline, doing);
}

void TcpConnection::send_both(const Request& first, const Request& second,
                              const base::Deadline& deadline, const std::string& doing) {
    send_bytes(encode_request(first, era_) + encode_request(second, era_), deadline, doing);
}

namespace {

// Runs one transfer and puts the store's words on what goes wrong.
template <class Transfer>
void with_store_errors(const std::string& where, const base::Deadline& deadline,
                       const std::string& doing, Transfer transfer) {
    try {
        transfer();
    } catch (const SystemError& error) {
        throw SystemError{"store: lost the connection to " + where + " (" + doing + ")",
                          error.code()};
    } catch (const TimeoutError&) {
        throw TimeoutError{"store: no answer from " + where + " after " +
                           base::to_string(deadline.timeout()) + " (" + doing +
                           "); is rank 0 running?"};
    }
}

}  // namespace

void TcpConnection::send_bytes(const std::string& bytes, const base::Deadline& deadline,
                               const std::string& doing) {
    with_store_errors(where_, deadline, doing, [&] {
        base::send_all(fd_.get(), std::as_bytes(std::span{bytes}), deadline);
    });
}

std::string TcpConnection::receive(std::size_t count, const base::Deadline& deadline,
                                   const std::string& doing) {
    std::string bytes(count, '\0');
    with_store_errors(where_, deadline, doing, [&] {
        base::receive_all(fd_.get(), std::as_writable_bytes(std::span{bytes}), deadline);
    });
    return bytes;
}

std::uint8_t TcpConnection::receive_u8(const base::Deadline& deadline, const std::string& doing) {
    return static_cast<std::uint8_t>(receive(1, deadline, doing)[0]);
}

std::uint32_t TcpConnection::receive_u32(const base::Deadline& deadline, const std::string& doing) {
    return read_u32(receive(sizeof(std::uint32_t), deadline, doing));
}

std::int64_t TcpConnection::receive_i64(const base::Deadline& deadline, const std::string& doing) {
    return static_cast<std::int64_t>(read_u64(receive(sizeof(std::uint64_t), deadline, doing)));
}

std::string TcpConnection::receive_value(const base::Deadline& deadline, const std::string& doing) {
    const auto length = read_u64(receive(sizeof(std::uint64_t), deadline, doing));
    // PyTorch's server lets APPEND grow a value beyond what one request may carry.
    if (length > max_reply_bytes) {
        throw SystemError{"store: " + where_ + " announced a value of " + std::to_string(length) +
                              " bytes (" + doing + ")",
                          EPROTO};
    }
    return receive(length, deadline, doing);
}

bool TcpConnection::readable(const base::Deadline& deadline) const {
    return base::wait_readable(fd_.get(), deadline);
}

}  // namespace ddp::store
