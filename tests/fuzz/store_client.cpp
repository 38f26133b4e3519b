// What a store's client makes of a server's replies: a real connection to a server that answers the
// hello and then says what the input says. Input: which call, and whether as a rank of a job, then
// the server's bytes.
#include "base/net/socket.hpp"
#include "fuzz/seeds.hpp"
#include "store/client/job_store.hpp"
#include "store/server/store_data.hpp"
#include "store/wire.hpp"

#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using namespace ddp::store;
using namespace std::chrono_literals;

// Says the same to everybody, after the hello, and ends what it says. It never closes first, which
// would take back what the client has not read yet.
class Server {
public:
    Server() : listener_(ddp::base::listen_tcp("127.0.0.1", 0)) {
        std::thread([this] { serve(); }).detach();
    }
    std::uint16_t port() const { return ddp::base::local_port(listener_.get()); }
    void say(std::string_view words) {
        const std::lock_guard lock(mutex_);
        words_ = words;
    }

private:
    struct Client {
        ddp::base::UniqueFd socket;
        RequestParser parser{};
        bool is_greeted = false;
    };

    void serve() {
        for (;;) {
            std::vector<pollfd> ready{{listener_.get(), POLLIN, 0}};
            for (const auto& client : clients_) ready.push_back({client->socket.get(), POLLIN, 0});
            ::poll(ready.data(), ready.size(), -1);
            for (std::size_t i = clients_.size(); i > 0; --i) {
                if (ready[i].revents == 0 || hear(*clients_[i - 1])) continue;
                clients_.erase(clients_.begin() + static_cast<std::ptrdiff_t>(i - 1));
            }
            if (ready[0].revents == 0) continue;
            ddp::base::UniqueFd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
            if (!socket) continue;
            clients_.push_back(std::make_unique<Client>());
            clients_.back()->socket = std::move(socket);
        }
    }
    // False: the client has left.
    bool hear(Client& client) {
        std::array<char, 4096> bytes;
        const ssize_t got = ::recv(client.socket.get(), bytes.data(), bytes.size(), 0);
        if (got <= 0) return false;
        if (client.is_greeted) return true;
        client.parser.feed({bytes.data(), static_cast<std::size_t>(got)});
        Request request;
        while (client.parser.next(request) == RequestParser::Status::request) {
            if (request.op == Opcode::ping) return greet(client, request.number);
        }
        return true;
    }
    bool greet(Client& client, std::int64_t nonce) {
        std::string words;
        append_u32(words, static_cast<std::uint32_t>(nonce));
        {
            const std::lock_guard lock(mutex_);
            words += words_;
        }
        static_cast<void>(::send(client.socket.get(), words.data(), words.size(), MSG_NOSIGNAL));
        ::shutdown(client.socket.get(), SHUT_WR);
        client.is_greeted = true;
        return true;
    }

    ddp::base::UniqueFd listener_;
    std::vector<std::unique_ptr<Client>> clients_;  // the thread's
    std::mutex mutex_;
    std::string words_;
};

Server& server() {
    static Server* const the_one = new Server;  // its threads outlive main's objects
    return *the_one;
}

const std::array<std::function<void(ddp::Store&)>, 12> calls{
    [](ddp::Store& store) { store.get("a"); },
    [](ddp::Store& store) { store.try_get("a"); },
    [](ddp::Store& store) { store.add("a", 3); },
    [](ddp::Store& store) {
        store.check({"a", "b"});
    },
    [](ddp::Store& store) { store.wait({"a"}, 5ms); },
    [](ddp::Store& store) { store.compare_set("a", "x", "y"); },
    [](ddp::Store& store) { store.delete_key("a"); },
    [](ddp::Store& store) {
        store.multi_get({"a", "b", "c"}, 5ms);
    },
    [](ddp::Store& store) { store.num_keys(); },
    [](ddp::Store& store) { store.set("a", "b"), store.append("a", "c"); },
    [](ddp::Store& store) {
        store.multi_set({"a", "b"}, {"1", "2"});
    },
    [](ddp::Store& store) { store.get("a", 0ms), store.add("a", 1), store.check({"a"}); },
};

// What a real server says to these requests of a client, after the hello.
std::string recorded(std::vector<Request> requests) {
    StoreData data;
    Replies replies;
    data.execute(2, Era::modern,
                 {.op = Opcode::multi_set, .keys = {"/a", "/b", "/c"}, .values = {"17", "", "xyz"}},
                 replies);
    replies.clear();
    for (Request& request : requests) data.execute(1, Era::modern, std::move(request), replies);
    std::string words;
    for (const Reply& reply : replies) {
        std::size_t done = 0;
        for (const Reply::Shared& piece : reply.shared) {
            words += reply.bytes.substr(done, piece.at - done) + piece.value->bytes;
            done = piece.at;
        }
        words += reply.bytes.substr(done);
    }
    return words;
}

std::shared_ptr<ddp::Store> connect(bool is_jobs) {
    const ddp::MasterAddress where{"127.0.0.1", server().port()};
    if (!is_jobs) return ddp::connect_tcp_store(where, 2s);
    const RankClaim claim{.job = "7", .world_size = 2, .rank = 1};
    return connect_job_store(where, claim, ServedBy::launcher, StorePeers::any, 2s).store;
}

}  // namespace

std::vector<std::string> ddp::fuzz::seeds() {
    const StoreKeys a{"/a"};
    const Request hello{.op = Opcode::add, .keys = {"init/"}, .number = 1};
    const Request check{.op = Opcode::check, .keys = a};
    const Request get{.op = Opcode::get, .keys = a};
    const StoreKeys three{"/a", "/b", "/c"};
    const std::vector<std::vector<Request>> conversations{
        {hello, check, get},
        {hello, check, get},
        {hello, {.op = Opcode::add, .keys = a, .number = 3}},
        {hello, {.op = Opcode::check, .keys = {"/a", "/b"}}},
        {hello, check, {.op = Opcode::wait, .keys = a}},
        {hello, {.op = Opcode::compare_set, .keys = a, .values = {"x", "y"}}},
        {hello, {.op = Opcode::delete_key, .keys = a}},
        {hello, {.op = Opcode::check, .keys = three}, {.op = Opcode::multi_get, .keys = three}},
        {hello, {.op = Opcode::get_num_keys}},
        {hello},
        {hello},
        {hello, check, get, {.op = Opcode::add, .keys = a, .number = 1}, check},
    };
    std::vector<std::string> all;
    for (std::size_t call = 0; call < conversations.size(); ++call) {
        all.push_back(std::string(1, static_cast<char>(call)) + recorded(conversations[call]));
    }
    // A rank's hello, which is answered in the same way as a key is.
    const auto joined = [](JoinReply reply, std::string_view why) {
        std::string words;
        append_u8(words, static_cast<std::uint8_t>(reply));
        append_bytes(words, why);
        return words;
    };
    all.push_back("\x80" + joined(JoinReply::joined, "") + recorded({check, get}));
    all.push_back("\x80" + joined(JoinReply::joined, "1") + recorded({check, get}));
    all.push_back("\x80" + joined(JoinReply::refused, "rank 1 is taken"));
    return all;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    ddp::fuzz::Input input(data, size);
    const std::uint8_t choice = input.byte();
    const auto& call = calls[choice % 128 % calls.size()];
    server().say(input.rest());
    try {
        call(*connect(choice >= 128));
    } catch (const ddp::SystemError&) {
    } catch (const ddp::TimeoutError&) {
    } catch (const ddp::UsageError&) {
    }
    return 0;
}
