// The lookup is made from the other end's view: its address is the source, ours the destination.
// An IPv4 address inside an IPv6 one (::ffff:127.0.0.1) is looked for as IPv4, where the kernel
// finds sockets of both families.
#include "store/admission/socket_owner.hpp"

#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "base/net/address.hpp"

namespace ddp::store {
namespace {

struct Endpoint {
    int family = AF_UNSPEC;
    std::array<std::uint32_t, 4> address{};  // network order; IPv4 in the first
    std::uint16_t port = 0;                  // network order

    bool operator==(const Endpoint&) const = default;
};

Endpoint endpoint_of(const sockaddr_storage& from) {
    Endpoint result;
    if (from.ss_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(from);
        result = {AF_INET, {v4.sin_addr.s_addr, 0, 0, 0}, v4.sin_port};
    } else if (from.ss_family == AF_INET6) {
        const auto& v6 = reinterpret_cast<const sockaddr_in6&>(from);
        result.family = AF_INET6;
        std::memcpy(result.address.data(), &v6.sin6_addr, sizeof v6.sin6_addr);
        result.port = v6.sin6_port;
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
            result.family = AF_INET;
            result.address = {result.address[3], 0, 0, 0};
        }
    }
    return result;
}

bool is_loopback(const Endpoint& end) {
    if (end.family == AF_INET) return (ntohl(end.address[0]) >> 24) == IN_LOOPBACKNET;
    in6_addr address{};
    std::memcpy(&address, end.address.data(), sizeof address);
    return end.family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&address);
}

// A socket that some process has open, and that is connected. TIME_WAIT and sockets without a
// process show root's number and no inode.
bool is_connected_socket(unsigned state, std::uint64_t inode) {
    const bool connected = state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 ||
                           state == TCP_FIN_WAIT2 || state == TCP_CLOSE_WAIT ||
                           state == TCP_CLOSING || state == TCP_LAST_ACK;
    return connected && inode != 0;
}

// Netlink

struct DiagRequest {
    nlmsghdr header{};
    inet_diag_req_v2 query{};
};

// `device`: that the socket is bound to; 0: to none.
DiagRequest diag_request(const Endpoint& source, const Endpoint& destination,
                         std::uint32_t device = 0) {
    DiagRequest request;
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.query.sdiag_family = static_cast<std::uint8_t>(source.family);
    request.query.sdiag_protocol = IPPROTO_TCP;
    request.query.idiag_states = ~0U;
    auto& id = request.query.id;
    id.idiag_sport = source.port;
    id.idiag_dport = destination.port;
    std::memcpy(id.idiag_src, source.address.data(), sizeof id.idiag_src);
    std::memcpy(id.idiag_dst, destination.address.data(), sizeof id.idiag_dst);
    id.idiag_if = device;
    id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
    return request;
}

struct DiagAnswer {
    int error = 0;  // ENOENT: there is no such socket
    inet_diag_msg message{};
};

// The kernel answers while it handles send(): the answer is there when that returns.
DiagAnswer ask(int netlink, DiagRequest request) {
    static std::atomic<std::uint32_t> questions{0};
    request.header.nlmsg_seq = ++questions;
    if (::send(netlink, &request, sizeof request, 0) < 0) return {.error = errno};
    alignas(nlmsghdr) std::array<char, 1024> buffer;
    nlmsghdr header{};
    ssize_t got = 0;
    do {  // past a late answer to an earlier question
        got = ::recv(netlink, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0) return {.error = errno};
        if (static_cast<std::size_t>(got) < sizeof header) return {.error = EPROTO};
        std::memcpy(&header, buffer.data(), sizeof header);
    } while (header.nlmsg_seq != request.header.nlmsg_seq);
    const std::size_t body = static_cast<std::size_t>(got) - NLMSG_HDRLEN;
    if (header.nlmsg_type == NLMSG_ERROR) {
        nlmsgerr error{};
        if (body < sizeof error) return {.error = EPROTO};
        std::memcpy(&error, buffer.data() + NLMSG_HDRLEN, sizeof error);
        return {.error = error.error == 0 ? EPROTO : -error.error};
    }
    DiagAnswer answer;
    if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || body < sizeof answer.message) {
        return {.error = EPROTO};
    }
    std::memcpy(&answer.message, buffer.data() + NLMSG_HDRLEN, sizeof answer.message);
    return answer;
}

std::optional<SocketOwner> ask_netlink(int netlink, const Endpoint& there, const Endpoint& here,
                                       SocketOwners::Devices devices) {
    constexpr std::uint32_t loopback_device = 1;  // in every network namespace
    DiagAnswer answer = ask(netlink, diag_request(there, here));
    if (answer.error == ENOENT && devices == SocketOwners::Devices::loopback_too) {
        answer = ask(netlink, diag_request(there, here, loopback_device));
    }
    const inet_diag_msg& found = answer.message;
    // Where no connection matches the kernel looks for a listener on that port.
    if (answer.error != 0 || found.id.idiag_sport != there.port ||
        found.id.idiag_dport != here.port ||
        !is_connected_socket(found.idiag_state, found.idiag_inode)) {
        return std::nullopt;
    }
    return SocketOwner{found.idiag_uid, found.idiag_inode};
}

// /proc/net/tcp: "sl local remote st tx:rx tr:when retrnsmt uid timeout inode ...", addresses as
// hexadecimal words of this machine's byte order.

std::string in_proc(const Endpoint& end, bool as_v6) {
    std::array<char, 64> text{};
    int size = 0;
    const unsigned port = ntohs(end.port);
    const auto& a = end.address;
    if (!as_v6) {
        size = std::snprintf(text.data(), text.size(), "%08X:%04X", a[0], port);
    } else if (end.family == AF_INET) {
        size = std::snprintf(text.data(), text.size(), "0000000000000000%08X%08X:%04X",
                             htonl(0xffff), a[0], port);
    } else {
        size = std::snprintf(text.data(), text.size(), "%08X%08X%08X%08X:%04X", a[0], a[1], a[2],
                             a[3], port);
    }
    return {text.data(), static_cast<std::size_t>(size)};
}

std::string_view next_word(std::string_view& line) {
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(word.size());
    return word;
}

template <class Number>
Number as_number(std::string_view word, int base = 10) {
    Number number = 0;
    std::from_chars(word.data(), word.data() + word.size(), number, base);
    return number;
}

struct Listening {
    Endpoint at;
    SocketOwner owner;
};

struct ProcLine {
    std::string_view local;
    std::string_view remote;
    unsigned state;
    SocketOwner owner;
};

ProcLine parse(std::string_view line) {
    ProcLine result{};
    next_word(line);
    result.local = next_word(line);
    result.remote = next_word(line);
    result.state = as_number<unsigned>(next_word(line), 16);
    for (int i = 0; i < 3; ++i) next_word(line);
    result.owner.user = as_number<uid_t>(next_word(line));
    next_word(line);
    result.owner.inode = as_number<ino_t>(next_word(line));
    return result;
}

// Calls `look` for each line after the first until it returns true. Returns 0 or an errno.
template <class Look>
int for_each_line(const char* path, Look look) {
    const base::UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
    if (!file) return errno;
    std::string text;
    std::array<char, 16 * 1024> part;
    bool header = true;
    for (;;) {
        const ssize_t got = ::read(file.get(), part.data(), part.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno;
        if (got == 0) return 0;
        text.append(part.data(), static_cast<std::size_t>(got));
        std::size_t begin = 0;
        for (std::size_t end; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
            if (std::exchange(header, false)) continue;
            if (look(parse(std::string_view(text).substr(begin, end - begin)))) return 0;
        }
        text.erase(0, begin);
    }
}

constexpr const char* proc_v4 = "/proc/net/tcp";
constexpr const char* proc_v6 = "/proc/net/tcp6";

std::optional<SocketOwner> search_proc(const Endpoint& there, const Endpoint& here) {
    std::optional<SocketOwner> found;
    for (const bool v6 : {false, true}) {
        if (!v6 && there.family == AF_INET6) continue;
        const std::string local = in_proc(there, v6);
        const std::string remote = in_proc(here, v6);
        for_each_line(v6 ? proc_v6 : proc_v4, [&](const ProcLine& line) {
            if (line.local != local || line.remote != remote) return false;
            if (is_connected_socket(line.state, line.owner.inode)) found = line.owner;
            return true;
        });
        if (found) return found;
    }
    return std::nullopt;
}

base::SocketAddress address_of(const Endpoint& end) {
    base::SocketAddress address;
    address.bytes.ss_family = static_cast<sa_family_t>(end.family);
    if (end.family == AF_INET) {
        address.size = sizeof(sockaddr_in);
        reinterpret_cast<sockaddr_in&>(address.bytes).sin_addr.s_addr = end.address[0];
    } else {
        address.size = sizeof(sockaddr_in6);
        std::memcpy(&reinterpret_cast<sockaddr_in6&>(address.bytes).sin6_addr, end.address.data(),
                    sizeof(in6_addr));
    }
    return address;
}

// Whether somebody who listens there is found at 127.0.0.1 or ::1.
bool hears_loopback(const Endpoint& end) {
    const auto& a = end.address;
    if (end.family == AF_INET) return a[0] == 0 || a[0] == htonl(INADDR_LOOPBACK);
    if (a[0] != 0 || a[1] != 0) return false;
    const bool holds_v4 = a[2] == htonl(0xffff);
    return (holds_v4 && (a[3] == 0 || a[3] == htonl(INADDR_LOOPBACK))) ||
           (a[2] == 0 && (a[3] == 0 || a[3] == htonl(1)));
}

// All that listen on this port, of one family. False when the kernel does not answer.
bool dump_listeners(int netlink, int family, std::uint16_t port, std::vector<Listening>& found) {
    Endpoint any{family, {}, htons(port)};
    DiagRequest request = diag_request(any, {});
    request.header.nlmsg_flags |= NLM_F_DUMP;
    request.query.idiag_states = 1U << TCP_LISTEN;
    if (::send(netlink, &request, sizeof request, 0) < 0) return false;
    alignas(nlmsghdr) std::array<char, 16 * 1024> buffer;
    for (;;) {
        const ssize_t got = ::recv(netlink, buffer.data(), buffer.size(), MSG_DONTWAIT);
        if (got < 0) return false;
        auto left = static_cast<unsigned>(got);
        for (auto* header = reinterpret_cast<nlmsghdr*>(buffer.data()); NLMSG_OK(header, left);
             header = NLMSG_NEXT(header, left)) {
            if (header->nlmsg_type == NLMSG_DONE) return true;
            inet_diag_msg message{};
            if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
                header->nlmsg_len < NLMSG_LENGTH(sizeof message)) {
                return false;
            }
            std::memcpy(&message, NLMSG_DATA(header), sizeof message);
            Listening one{{family, {}, message.id.idiag_sport},
                          {message.idiag_uid, message.idiag_inode}};
            std::memcpy(one.at.address.data(), message.id.idiag_src, sizeof message.id.idiag_src);
            if (message.id.idiag_sport == htons(port)) found.push_back(one);
        }
    }
}

// For hosts without netlink; it walks all sockets of the host.
void scan_listeners(std::uint16_t port, std::vector<Listening>& found) {
    std::array<char, 8> end{};
    std::snprintf(end.data(), end.size(), ":%04X", port);
    for (const bool v6 : {false, true}) {
        for_each_line(v6 ? proc_v6 : proc_v4, [&](const ProcLine& line) {
            if (line.state != TCP_LISTEN) return true;  // those that listen come first
            if (!line.local.ends_with(end.data())) return false;
            Listening one{{v6 ? AF_INET6 : AF_INET, {}, htons(port)}, line.owner};
            for (std::size_t i = 0; i < (v6 ? 4U : 1U); ++i) {
                one.at.address[i] = as_number<std::uint32_t>(line.local.substr(8 * i, 8), 16);
            }
            found.push_back(one);
            return false;
        });
    }
}

std::string refusal(const char* what, int error) {
    return std::string(what) + ": " + std::strerror(error);
}

}  // namespace

SocketOwners::SocketOwners(Source first) {
    if (first == Source::netlink) {
        netlink_.reset(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
        // A question about a connection that cannot be: port 0.
        const Endpoint none{AF_INET, {htonl(INADDR_LOOPBACK), 0, 0, 0}, 0};
        const int error = netlink_ ? ask(netlink_.get(), diag_request(none, none)).error : errno;
        if (error == 0 || error == ENOENT) {
            source_ = Source::netlink;
            return;
        }
        refusals_ = refusal("NETLINK_SOCK_DIAG", error);
        netlink_.reset();
    }
    if (first != Source::nothing) {
        const int error = for_each_line(proc_v4, [](const ProcLine&) { return true; });
        if (error == 0) {
            source_ = Source::proc;
            return;
        }
        refusals_ += (refusals_.empty() ? "" : "; ") + refusal(proc_v4, error);
    }
}

std::optional<SocketOwner> SocketOwners::peer_of(int connection) const {
    return owner_of(base::address_of(connection, base::End::other),
                    base::address_of(connection, base::End::own));
}

std::optional<SocketOwner> SocketOwners::owner_of(const base::SocketAddress& own,
                                                  const base::SocketAddress& other,
                                                  Devices devices) const {
    const Endpoint here = endpoint_of(own.bytes);
    const Endpoint there = endpoint_of(other.bytes);
    if (here.family == AF_UNSPEC || here.family != there.family) return std::nullopt;
    switch (source_) {
        case Source::netlink:
            // Netlink finds the ends of a link-local connection only by their device.
            if (own.is_link_local()) return search_proc(here, there);
            return ask_netlink(netlink_.get(), here, there, devices);
        case Source::proc:
            return search_proc(here, there);
        case Source::nothing:
            break;
    }
    return std::nullopt;
}

std::vector<SocketOwner> SocketOwners::listeners_on(std::uint16_t port, At at) const {
    std::vector<Listening> found;
    const bool told = source_ == Source::netlink &&
                      dump_listeners(netlink_.get(), AF_INET, port, found) &&
                      dump_listeners(netlink_.get(), AF_INET6, port, found);
    if (!told) {
        found.clear();
        scan_listeners(port, found);
    }
    std::vector<SocketOwner> owners;
    for (const Listening& one : found) {
        if (at == At::any || hears_loopback(one.at)) owners.push_back(one.owner);
    }
    return owners;
}

bool is_on_this_host(const base::SocketAddress& there, const base::SocketAddress& here,
                     base::OwnAddresses& own) {
    Endpoint one = endpoint_of(there.bytes);
    Endpoint other = endpoint_of(here.bytes);
    one.port = other.port = 0;
    return is_loopback(one) || one == other || own.contains(address_of(one));
}

bool peer_is_on_this_host(int connection, base::OwnAddresses& own) {
    return is_on_this_host(base::address_of(connection, base::End::other),
                           base::address_of(connection, base::End::own), own);
}

std::string peer_address(int connection) {
    const base::SocketAddress end = base::address_of(connection, base::End::other);
    if (end.host().empty()) return "an address that is not known";
    return base::host_and_port(end.host(), end.port());
}

}  // namespace ddp::store
