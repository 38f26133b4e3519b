// What any client may send to a store: three connections at once, cut into requests and carried out
// on one store's data, which has little memory; or real connections to a server, which takes agents
// or none. Input: which of these; then turns of a client's number (or of what the server's owner
// does), a length of two bytes, and what the client says.
#include "store/server/store_server.hpp"
#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"
#include "fuzz/seeds.hpp"
#include "store/admission/job_claims.hpp"
#include "store/server/store_data.hpp"
#include "store/wire.hpp"

#include <ddp/error.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <optional>

namespace {

using namespace ddp::store;

constexpr std::size_t clients = 3;

constexpr StoreLimits little{.map_bytes = std::size_t{1} << 20,
                             .working_bytes = std::size_t{768} << 10};

struct Server {
    StoreData data{little};
    JobClaims claims;
    std::array<std::optional<RequestParser>, clients> parsers;
    std::array<ClientId, clients> connections{1, 2, 3};  // numbers are never used again
    ClientId last = clients;

    void close(std::size_t client) {
        data.end_input(connections[client]);
        data.forget(connections[client]);
        claims.leave(connections[client]);
        connections[client] = ++last;
        parsers[client].reset();
    }
    // Every reply is for a client that is there, and memory is what it may be.
    void check(const Replies& replies) {
        for (const Reply& reply : replies) {
            bool known = false;
            for (const ClientId connection : connections) known |= reply.to == connection;
            if (!known) std::abort();
        }
        // Without values that only replies hold: these are gone soon.
        const std::size_t held = data.held_bytes() - data.detached().bytes();
        if (held > little.map_bytes + little.working_bytes) std::abort();
    }
    void hear(std::size_t client, std::string_view bytes) {
        if (!parsers[client]) parsers[client].emplace();
        parsers[client]->feed(bytes);
        try {
            while (take(client)) {
            }
        } catch (const ddp::UsageError&) {
            close(client);
        }
    }
    // Whether there was a request.
    bool take(std::size_t client) {
        RequestParser& parser = *parsers[client];
        const ClientId connection = connections[client];
        Request request;
        switch (parser.next(request)) {
            case RequestParser::Status::request:
                carry_out(connection, parser.era(), std::move(request));
                return true;
            case RequestParser::Status::incomplete:
                return false;
            case RequestParser::Status::needs_memory:
                if (parser.wanted_memory() > little.working_bytes) break;
                parser.grant_memory(parser.wanted_memory());
                return true;
            case RequestParser::Status::refused:
                if (parser.refusal().empty()) std::abort();
                break;
        }
        close(client);
        return false;
    }
    void carry_out(ClientId connection, Era era, Request request) {
        if (request.op == Opcode::join) {
            const auto claim = decode_claim(request.values.front());
            if (claim) claims.join(connection, *claim);
            return;
        }
        Replies replies;
        data.reply_bytes(request);
        data.execute(connection, era, std::move(request), replies);
        check(replies);
    }
};

// What an input is about: its first byte.
enum class Target : std::uint8_t { data, server, server_of_agents };
constexpr unsigned targets = 3;

// The number of a turn in which no client speaks.
constexpr std::size_t begins_attempt = 0xF0;
constexpr std::size_t names_hosts = 0xF1;
constexpr std::size_t hangs_up = 0xF8;  // and the client's number

// A store's server as the launcher has it, and its clients.
class Front {
public:
    explicit Front(Target target) : takes_(target == Target::server_of_agents) {}
    Front(const Front&) = delete;
    Front& operator=(const Front&) = delete;

    void turn(std::size_t number, std::string_view bytes) {
        if (number == begins_attempt) {
            server_.start_attempt(++attempt_);
        } else if (number == names_hosts) {
            server_.serve_hosts({std::string(bytes)});
        } else if (number >= hangs_up) {
            clients_[number % clients] = {};
        } else {
            speak(number % clients, bytes);
        }
        settle();
    }

private:
    struct Client {
        ddp::base::UniqueFd fd;
        std::string said;
        bool is_taken = false;
    };

    StoreServerOptions options() {
        StoreServerOptions options{.limits = little, .is_local_too = true};
        if (!takes_) return options;
        options.take_agent = [this](ddp::base::UniqueFd connection, const std::string& bytes) {
            take(std::move(connection), bytes);
        };
        return options;
    }

    // Only run_ready() hands over, once a client, what that client has said.
    void take(ddp::base::UniqueFd connection, const std::string& bytes) {
        if (!in_run_ready_ || !connection || !bytes.starts_with('\xDD')) std::abort();
        for (Client& client : clients_) {
            if (client.is_taken || !client.said.starts_with(bytes)) continue;
            client.is_taken = true;
            agents_.push_back(std::move(connection));
            return;
        }
        // One that has hung up.
    }

    void speak(std::size_t number, std::string_view bytes) {
        Client& client = clients_[number];
        if (!client.fd) {
            int error = 0;
            client = {};
            client.fd = number == 0
                            ? ddp::base::try_connect_local(server_.local_name())
                            : ddp::base::try_connect_tcp("127.0.0.1", server_.port(),
                                                         ddp::base::Deadline::after(wait), error);
            if (!client.fd) return;
            const linger reset{1, 0};  // thousands of ports would wait a minute each
            ::setsockopt(client.fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
            settle();
        }
        client.said += bytes;
        ::send(client.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        settle();
        if (takes_ && !client.is_taken && client.said.starts_with('\xDD')) std::abort();
        std::array<char, 4096> reply{};
        ssize_t count = 1;
        while (count > 0) {
            count = ::recv(client.fd.get(), reply.data(), reply.size(), MSG_DONTWAIT);
            if (count > 0 && client.is_taken) std::abort();  // nothing is answered
            settle();
        }
        const bool is_closed = count == 0 || errno != EAGAIN;
        if (is_closed && client.is_taken) std::abort();
        if (is_closed) client = {};
    }

    // What a client asks for ends, but an unread reply may leave it half-done.
    void settle() {
        in_run_ready_ = true;
        pollfd ready{server_.fd(), POLLIN, 0};
        for (int i = 0; i < 100 && ::poll(&ready, 1, 0) > 0; ++i) server_.run_ready();
        in_run_ready_ = false;
    }

    static constexpr std::chrono::seconds wait{10};

    bool takes_;
    bool in_run_ready_ = false;
    int attempt_ = 0;
    std::array<Client, clients> clients_{};
    std::vector<ddp::base::UniqueFd> agents_{};
    StoreServer server_{ddp::base::listen_tcp_all("127.0.0.1", 0), options()};
};

void say(std::string& seed, std::size_t client, const std::string& bytes) {
    for (std::size_t done = 0; done == 0 || done < bytes.size(); done += 0xffff) {
        const std::string piece = bytes.substr(done, 0xffff);
        seed.push_back(static_cast<char>(client));
        seed.push_back(static_cast<char>(piece.size() & 0xff));
        seed.push_back(static_cast<char>(piece.size() >> 8));
        seed += piece;
    }
}

// What the ranks of a job say to each other, in both numberings.
std::vector<Request> conversation() {
    const RankClaim claim{.job = "7",
                          .world_size = 2,
                          .rank = 1,
                          .host = "n1",
                          .machine = "m",
                          .process = 12,
                          .pid = 4711,
                          .parent = "1@2",
                          .program = "./train"};
    return {
        {.op = Opcode::join, .values = {encode_claim(claim)}},
        {.op = Opcode::add, .keys = {"/init"}, .number = 1},
        {.op = Opcode::set, .keys = {"/a"}, .values = {"host/boot\n77 3 12345 ddp-region-1"}},
        {.op = Opcode::check, .keys = {"/a", "/b"}},
        {.op = Opcode::wait, .keys = {"/a", "/b"}},
        {.op = Opcode::cancel_wait},
        {.op = Opcode::get, .keys = {"/a"}},
        {.op = Opcode::append, .keys = {"/a"}, .values = {"more"}},
        {.op = Opcode::compare_set, .keys = {"/a"}, .values = {"", "new"}},
        {.op = Opcode::multi_set, .keys = {"/b", "/c"}, .values = {"1", "2"}},
        {.op = Opcode::multi_get, .keys = {"/b", "/c"}},
        {.op = Opcode::get_num_keys},
        {.op = Opcode::delete_key, .keys = {"/c"}},
        {.op = Opcode::queue_push, .keys = {"/q"}, .values = {"one"}},
        {.op = Opcode::queue_len, .keys = {"/q"}},
        {.op = Opcode::queue_pop, .keys = {"/q"}, .number = 1},
        {.op = Opcode::barrier, .keys = {"/bar"}, .number = 2},
        {.op = Opcode::list_keys},
        {.op = Opcode::watch_key, .keys = {"/a"}},
        {.op = Opcode::ping, .number = 77},
    };
}

std::string opening(Era era) {
    if (era == Era::legacy) return {};
    return encode_request({.op = Opcode::validate, .number = validate_magic}, era);
}

std::optional<std::string> encoded(const Request& request, Era era) {
    try {
        return encode_request(request, era);
    } catch (const ddp::UsageError&) {
        return std::nullopt;  // not in that numbering
    }
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    std::vector<std::string> all;
    const auto add = [&all](const std::string& turns) {
        for (unsigned target = 0; target < targets; ++target) {
            all.push_back(static_cast<char>(target) + turns);
        }
    };
    std::string agents;
    for (std::size_t client = 0; client < clients; ++client) {
        say(agents, client, "\xDD");
        say(agents, client, " hello");
        say(agents, begins_attempt, "");
        say(agents, names_hosts, "10.0.0.2");
        say(agents, hangs_up + client, "");
    }
    add(agents);
    for (const Era era : {Era::modern, Era::legacy}) {
        std::string together;
        for (std::size_t client = 0; client < clients; ++client) {
            say(together, client, opening(era));
        }
        for (const Request& request : conversation()) {
            const auto bytes = encoded(request, era);
            if (!bytes) continue;
            std::string alone;
            say(alone, 0, opening(era) + *bytes);
            add(alone);
            for (std::size_t client = 0; client < clients; ++client) say(together, client, *bytes);
        }
        add(together);
    }
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const auto target = static_cast<Target>(input.byte() % targets);
    std::optional<Front> front;
    if (target != Target::data) front.emplace(target);
    Server server;
    while (!input.is_empty()) {
        const std::size_t number = input.byte();
        const std::size_t low = input.byte();
        const std::string_view bytes = input.text(low | std::size_t{input.byte()} << 8);
        if (front) {
            front->turn(number, bytes);
        } else {
            server.hear(number % clients, bytes);
        }
    }
    for (std::size_t client = 0; client < clients; ++client) server.close(client);
    return 0;
}
