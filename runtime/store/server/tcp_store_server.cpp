// A StoreServer on a thread of its own: ddp::TcpStoreServer for everybody, JobStoreServer for rank
// 0. Invariant: the thread ends before the server does.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/net/socket.hpp"
#include "base/process/background_thread.hpp"
#include "store/client/job_store.hpp"
#include "store/server/listener.hpp"
#include "store/server/store_server.hpp"

namespace ddp {
namespace {

constexpr const char* peers_variable = "DDP_STORE_PEERS";

base::UniqueFd make_stop_signal() {
    base::UniqueFd fd{::eventfd(0, EFD_CLOEXEC)};
    if (!fd) throw SystemError{"store: eventfd", errno};
    return fd;
}

// A server and the thread that runs it.
class ServerThread {
public:
    ServerThread(std::vector<base::UniqueFd> listeners, store::StoreServerOptions options)
        : server(std::move(listeners), std::move(options)),
          stop(make_stop_signal()),
          port(server.port()),
          thread(base::start_background_thread([this] { serve(); })) {}

    ServerThread(const ServerThread&) = delete;
    ServerThread& operator=(const ServerThread&) = delete;

    // In a forked child there is no thread, and the descriptors are the parent's as well.
    ~ServerThread() {
        if (owner != ::getpid()) {
            thread.detach();
            return;
        }
        ::eventfd_write(stop.get(), 1);
        thread.join();
    }

    void serve() {
        // Without a timeout: the destructor's eventfd always ends it.
        std::array<pollfd, 2> ready{{{server.fd(), POLLIN, 0}, {stop.get(), POLLIN, 0}}};
        while (true) {
            const int count = ::poll(ready.data(), ready.size(), -1);
            if (count < 0 && errno != EINTR) return;
            if (count > 0 && ready[1].revents != 0) return;
            if (count > 0) server.run_ready();
        }
    }

    store::StoreServer server;
    base::UniqueFd stop;
    std::uint16_t port;
    pid_t owner = ::getpid();
    std::thread thread;  // last: it uses the others
};

// Who else is in the way says so when it is asked for rank 0's place.
[[noreturn]] void throw_in_use(const MasterAddress& master, const store::RankClaim& rank_0,
                               store::StorePeers peers, const SystemError& error) {
    constexpr std::chrono::seconds patience{2};
    try {
        store::connect_job_store(master, rank_0, store::ServedBy::rank_0, peers, patience);
    } catch (const UsageError& other) {
        throw UsageError{"store: port " + std::to_string(master.port) + " of " + master.host +
                         " is in use (" + other.what() + ")"};
    } catch (const Error&) {  // NOLINT(bugprone-empty-catch): whoever it is, it is no job of ddp's
    }
    throw SystemError{error};
}

bool is_on_loopback(int fd) {
    sockaddr_in bound{};
    socklen_t size = sizeof bound;
    return ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) == 0 &&
           bound.sin_family == AF_INET && bound.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
}

// The socket that the launcher holds the port with (DDP_STORE_FD=<fd>:<port>), if that is this one
// and reaches as far as the job does, no less and no more: nobody can have come between.
base::UniqueFd take_held_socket(std::uint16_t port, bool on_one_host) {
    const char* const given = std::getenv("DDP_STORE_FD");
    int fd = -1;
    unsigned held_port = 0;
    if (given == nullptr || std::sscanf(given, "%d:%u", &fd, &held_port) != 2) return {};
    int type = 0;
    socklen_t size = sizeof type;
    const bool is_socket = fd > STDERR_FILENO && held_port == port &&
                           ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
                           type == SOCK_STREAM && base::local_port(fd) == port &&
                           is_on_loopback(fd) == on_one_host;
    if (!is_socket) return {};
    ::unsetenv("DDP_STORE_FD");  // it is used up
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    return base::UniqueFd{fd};
}

// On one host nobody comes from elsewhere, whatever the master's name stands for.
std::vector<base::UniqueFd> bind_and_listen(const MasterAddress& master, bool on_one_host) {
    std::vector<base::UniqueFd> sockets;
    if (base::UniqueFd held = take_held_socket(master.port, on_one_host)) {
        if (::listen(held.get(), SOMAXCONN) != 0) {
            throw SystemError{
                "listen on port " + std::to_string(master.port) + ", which the launcher held",
                errno};
        }
        sockets.push_back(std::move(held));
    } else if (on_one_host) {
        sockets = base::listen_tcp_all(master.host, master.port);
    } else {
        sockets = store::listen_as_master(master);
    }
    return sockets;
}

std::vector<base::UniqueFd> listen_as_rank_0(const MasterAddress& master,
                                             const store::RankClaim& rank_0, bool on_one_host,
                                             store::StorePeers peers) {
    try {
        return bind_and_listen(master, on_one_host);
    } catch (const SystemError& error) {
        if (error.code() == EADDRINUSE) throw_in_use(master, rank_0, peers, error);
        throw;
    }
}

}  // namespace

struct __attribute__((visibility("hidden"))) TcpStoreServer::Impl : ServerThread {
    using ServerThread::ServerThread;
};

TcpStoreServer::TcpStoreServer(const MasterAddress& listen_on)
    : impl_(std::make_unique<Impl>(
          store::listen_as_master(listen_on),
          store::StoreServerOptions{.peers = {store::store_peers(std::getenv(peers_variable))}})) {}
TcpStoreServer::~TcpStoreServer() = default;
TcpStoreServer::TcpStoreServer(TcpStoreServer&&) noexcept = default;
TcpStoreServer& TcpStoreServer::operator=(TcpStoreServer&&) noexcept = default;
std::uint16_t TcpStoreServer::port() const noexcept { return impl_->port; }

namespace store {

StorePeers store_peers(const char* value) {
    const std::string_view text = value != nullptr ? value : "";
    if (text.empty() || text == "same-user") return StorePeers::same_user;
    if (text == "any") return StorePeers::any;
    throw UsageError{std::string("environment: ") + peers_variable + "=" + std::string(text) +
                     " is neither same-user nor any"};
}

class JobStoreServer::Impl : public ServerThread {
    using ServerThread::ServerThread;
};

JobStoreServer::JobStoreServer(const MasterAddress& master, const RankClaim& rank_0,
                               bool on_one_host, StorePeers peers)
    : impl_(std::make_unique<Impl>(
          listen_as_rank_0(master, rank_0, on_one_host, peers),
          StoreServerOptions{.peers = {peers, !on_one_host}, .job = rank_0})) {}
JobStoreServer::~JobStoreServer() = default;
JobStoreServer::JobStoreServer(JobStoreServer&&) noexcept = default;

}  // namespace store
}  // namespace ddp
