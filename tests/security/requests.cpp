#include "security/requests.hpp"

#include "base/net/local_socket.hpp"
#include "base/unique_fd.hpp"
#include "store/admission/job_claims.hpp"
#include "store/wire_bytes.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <stdexcept>

namespace ddp::security_test {
namespace {

using store_test::hello;
using store_test::i64;
using store_test::Opcodes;
using store_test::str;
using store_test::u32;
using store_test::u64;
using store_test::u8;

constexpr std::size_t at_once = 32;
constexpr int list_keys = 17;

sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

std::vector<std::string> requests_of(const Opcodes& numbering) {
    const std::string key = str(stranger_key + numbering.name);
    const std::string known = str(known_key);
    const std::string two_keys = u64(2) + known + known;
    return {
        u8(numbering.set) + key + str("x"),
        u8(numbering.set) + known + str("x"),
        u8(numbering.compare_set) + known + str(known_value) + str("x"),
        u8(numbering.get) + known,
        u8(numbering.add) + known + i64(1),
        u8(numbering.add) + key + i64(1),
        u8(numbering.check) + two_keys,
        u8(numbering.wait) + two_keys,
        u8(numbering.num_keys),
        u8(numbering.append) + known + str("x"),
        u8(numbering.multi_get) + two_keys,
        u8(numbering.multi_set) + u64(1) + key + str("x"),
        u8(numbering.delete_key) + key,
        u8(numbering.cancel),
    };
}

std::vector<std::string> only_in_the_newer() {
    const std::string queue = str(stranger_key + "queue");
    const int push = 14;
    const int pop = 15;
    const int length = 16;
    const int barrier = 18;
    const int join = 65;
    const std::string claim = store::encode_claim({.process = 1, .pid = 1});
    return {u8(push) + queue + str("x"),  u8(pop) + queue,      u8(length) + queue, u8(list_keys),
            u8(barrier) + queue + i64(1), u8(join) + str(claim)};
}

struct Conversation {
    base::UniqueFd fd;
    std::string unsent;
};

// Whether it goes on.
bool advance(Conversation& one, short events, Tally& tally) {
    if ((events & POLLOUT) != 0 && !one.unsent.empty()) {
        const ssize_t sent =
            ::send(one.fd.get(), one.unsent.data(), one.unsent.size(), MSG_NOSIGNAL);
        if (sent > 0) one.unsent.erase(0, static_cast<std::size_t>(sent));
        if (sent < 0 && errno == ECONNREFUSED) {
            ++tally.failed;
            return false;
        }
        if (sent < 0 && errno != EAGAIN) {
            ++tally.closed;
            return false;
        }
    }
    if ((events & (POLLIN | POLLERR | POLLHUP)) == 0) return true;
    char byte = 0;
    const ssize_t got = ::recv(one.fd.get(), &byte, 1, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return true;
    if (got < 0 && errno == ECONNREFUSED) {
        ++tally.failed;
    } else {
        ++(got > 0 ? tally.answered : tally.closed);
    }
    return false;
}

base::UniqueFd begin_to_connect(const StorePlace& place) {
    if (!place.name.empty()) return base::try_connect_local(place.name);
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    const linger at_once_gone{1, 0};  // 10,000 closed connections would use up the ports
    ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &at_once_gone, sizeof at_once_gone);
    const sockaddr_in address = loopback(place.port);
    const int rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
    if (rc != 0 && errno != EINPROGRESS) fd.reset();
    return fd;
}

}  // namespace

std::vector<std::string> conversations() {
    const std::string ping = u8(13) + u32(99);
    const std::string check_nothing = u8(store_test::legacy.check) + u64(0);
    std::vector<std::string> all;
    for (const std::string& request : requests_of(store_test::modern)) {
        all.push_back(hello + request + ping);
    }
    for (const std::string& request : only_in_the_newer()) all.push_back(hello + request + ping);
    for (const std::string& request : requests_of(store_test::legacy)) {
        all.push_back(request + check_nothing);
    }
    const int watch = 7;
    all.push_back(u8(watch) + str(known_key) + check_nothing);
    return all;
}

void send_requests(const StorePlace& place, std::size_t count, const base::Deadline& deadline,
                   Tally& tally) {
    const std::vector<std::string> texts = conversations();
    std::vector<Conversation> open;
    std::size_t begun = 0;
    while ((begun < count || !open.empty()) && !deadline.passed()) {
        while (begun < count && open.size() < at_once) {
            Conversation one{begin_to_connect(place), texts[begun % texts.size()]};
            ++begun;
            if (one.fd) {
                open.push_back(std::move(one));
            } else {
                ++tally.failed;
            }
        }
        std::vector<pollfd> entries;
        for (const Conversation& one : open) {
            const int wanted = POLLIN | (one.unsent.empty() ? 0 : POLLOUT);
            entries.push_back({one.fd.get(), static_cast<short>(wanted), 0});
        }
        ::poll(entries.data(), entries.size(), deadline.poll_timeout(std::chrono::seconds{1}));
        for (std::size_t i = open.size(); i-- > 0;) {
            if (entries[i].revents == 0 || advance(open[i], entries[i].revents, tally)) continue;
            std::swap(open[i], open.back());
            open.pop_back();
        }
    }
}

int connect_to(std::uint16_t port) {
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    const sockaddr_in address = loopback(port);
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        return -1;
    }
    return fd.release();
}

Friend::Friend(std::uint16_t port) : fd_(connect_to(port)) {
    if (fd_ < 0) throw std::runtime_error("friend: nobody listens at " + std::to_string(port));
    send(hello);
    ping();  // as clients do: who has not yet asked anything may not say much
}

Friend::~Friend() { ::close(fd_); }

void Friend::set(const std::string& key, const std::string& value) {
    send(u8(store_test::modern.set) + str(key) + str(value));
    ping();  // so that it is there when this returns
}

void Friend::ping() {
    const std::string nonce = u32(7);
    send(u8(13) + nonce);
    if (receive(nonce.size()) != nonce) throw std::runtime_error("friend: another echo");
}

std::string Friend::get(const std::string& key) {
    send(u8(store_test::modern.get) + str(key));
    return receive(receive_number());
}

std::vector<std::string> Friend::keys() {
    send(u8(list_keys));
    std::vector<std::string> found(receive_number());
    for (std::string& key : found) key = receive(receive_number());
    return found;
}

void Friend::send(const std::string& bytes) {
    if (::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
        throw std::runtime_error("friend: send");
    }
}

std::string Friend::receive(std::size_t count) {
    std::string bytes(count, '\0');
    for (std::size_t filled = 0; filled < count;) {
        const ssize_t got = ::recv(fd_, bytes.data() + filled, count - filled, 0);
        if (got <= 0) throw std::runtime_error("friend: the server closed");
        filled += static_cast<std::size_t>(got);
    }
    return bytes;
}

std::uint64_t Friend::receive_number() {
    const std::string bytes = receive(8);
    std::uint64_t number = 0;
    for (std::size_t i = 8; i-- > 0;) {
        number = number << 8 | static_cast<unsigned char>(bytes[i]);
    }
    return number;
}

}  // namespace ddp::security_test
