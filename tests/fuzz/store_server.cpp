// What any client may send to a store: three connections at once, cut into requests and carried out
// on one store's data, which has little memory. Input: turns of a client's number, a length of two
// bytes, and what it says.
#include "fuzz/seeds.hpp"
#include "store/admission/job_claims.hpp"
#include "store/server/store_data.hpp"
#include "store/wire.hpp"

#include <ddp/error.hpp>

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

void say(std::string& seed, std::size_t client, const std::string& bytes) {
    for (std::size_t done = 0; done < bytes.size(); done += 0xffff) {
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
            all.push_back(alone);
            for (std::size_t client = 0; client < clients; ++client) say(together, client, *bytes);
        }
        all.push_back(together);
    }
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    Server server;
    while (!input.is_empty()) {
        const std::size_t client = input.byte() % clients;
        const std::size_t low = input.byte();
        server.hear(client, input.text(low | std::size_t{input.byte()} << 8));
    }
    for (std::size_t client = 0; client < clients; ++client) server.close(client);
    return 0;
}
