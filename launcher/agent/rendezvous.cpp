// Binds before anything is forked. Only a listening or a held socket leaves this file.
#include "launcher/agent/rendezvous.hpp"

#include "base/net/address.hpp"
#include "base/net/socket.hpp"
#include "store/server/listener.hpp"

#include <ddp/error.hpp>

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

namespace ddp::launcher {
namespace {

constexpr const char* loopback = "127.0.0.1";

[[noreturn]] void fail_in_use(const std::string& address, std::uint16_t port) {
    throw UsageError(
        "port " + std::to_string(port) + " on " + address +
        " is in use (ss -ltnp shows by whom); leave out --master-port to get a free one");
}

base::UniqueFd listen_on(const std::string& address, std::uint16_t port) {
    try {
        return base::listen_tcp(address, port);
    } catch (const SystemError& error) {
        if (error.code() == EADDRINUSE) fail_in_use(address, port);
        throw;
    }
}

base::UniqueFd bound_socket(in_addr_t address, std::uint16_t port) {
    base::UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) throw SystemError("socket to hold a port", errno);
    const int on = 1;
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(port);
    name.sin_addr.s_addr = htonl(address);
    if (::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
        throw SystemError("bind a free port", errno);
    }
    return fd;
}

// A socket that does not listen yet. The port is free on all addresses, for programs that bind
// there; the socket is on loopback, since ddp's rank 0 listens on it.
base::UniqueFd hold_free_port() {
    const base::UniqueFd everywhere = bound_socket(INADDR_ANY, 0);
    return bound_socket(INADDR_LOOPBACK, base::local_port(everywhere.get()));
}

// 127.0.0.1 or ::1, however it is spelled. Names are not looked up.
bool is_local(const std::string& address) {
    if (address == loopback || address == "localhost") return true;
    const auto digits = base::numeric_address(address);
    return digits && (digits->is_same_host(*base::numeric_address(loopback)) ||
                      digits->is_same_host(*base::numeric_address("::1")));
}

// Closed at once: only to know that the port is free where rank 0 may serve.
void require_free(const std::string& address, std::uint16_t port) {
    listen_on(loopback, port);
    if (address != loopback && base::numeric_address(address)) listen_on(address, port);
}

// A head whose name is not known yet, or is that of something before this host, does for the other
// hosts all the same.
std::vector<base::UniqueFd> listen_for_hosts(const MeetingPlace& place) {
    try {
        return store::listen_as_master({place.host, place.port});
    } catch (const SystemError& error) {
        if (error.code() != EADDRNOTAVAIL) throw;
    }
    std::vector<base::UniqueFd> everywhere;
    everywhere.push_back(base::listen_tcp_everywhere(place.port));
    return everywhere;
}

}  // namespace

std::string listen_at(const MeetingPlace& place, Rendezvous& rendezvous) {
    try {
        rendezvous.listeners.push_back(base::listen_tcp(place.host, place.port));
        rendezvous.address = place.host;
        rendezvous.port = place.port;
        return {};
    } catch (const SystemError& error) {
        return error.what();
    }
}

Rendezvous make_rendezvous(HostsJob& hosts) {
    Rendezvous result{hosts.env.head, hosts.env.port, {}, {}, false, false};
    if (!hosts.coordinates) return result;
    try {
        result.listeners = listen_for_hosts({hosts.env.head, hosts.env.port});
    } catch (const SystemError& error) {
        if (error.code() != EADDRINUSE) throw;
        if (hosts.env.node_rank || hosts.serves_only) {
            throw UsageError("port " + std::to_string(hosts.env.port) + " on " + hosts.env.head +
                             ", where the hosts are to meet, is in use (ss -ltnp shows by whom); "
                             "give all of them another port");
        }
        hosts.coordinates = false;
        hosts.own_place.reset();
    }
    hosts.at_loopback = std::ranges::all_of(result.listeners, [](const base::UniqueFd& listener) {
        return base::local_address(listener.get()).is_loopback();
    });
    return result;
}

Rendezvous make_rendezvous(const Options& options) {
    Rendezvous result{
        options.rendezvous.master_addr,          options.rendezvous.master_port, {}, {}, false,
        is_local(options.rendezvous.master_addr)};
    if (options.rendezvous.agent_store == AgentStore::on) {
        result.listeners.push_back(listen_on(loopback, options.rendezvous.master_port));
        result.port = base::local_port(result.listeners.front().get());
    } else if (options.rendezvous.master_port == 0) {
        result.holder = hold_free_port();
        result.port = base::local_port(result.holder.get());
        result.rank_0_serves_here = true;
    } else if (is_local(options.rendezvous.master_addr)) {
        result.rank_0_serves_here = true;
        require_free(options.rendezvous.master_addr, options.rendezvous.master_port);
    }
    return result;
}

store::StoreServerOptions store_options(const Options& options, int workers) {
    // What torchrun calls each job is a name of none (worker_env.hpp).
    const std::string& id = options.run_id;
    return {.limits = {.map_bytes = options.rendezvous.store_bytes, .returns_memory = true},
            .peers = {options.rendezvous.store_peers},
            .job = store::RankClaim{.job = id == "none" ? "" : id, .world_size = workers},
            .is_local_too = true};
}

}  // namespace ddp::launcher
