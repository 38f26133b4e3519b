// ddp::TcpStoreServer: a StoreServer on a thread of its own, for rank 0 and for tests. Invariant:
// the thread ends before the server does.
#include <ddp/error.hpp>
#include <ddp/store.hpp>

#include <poll.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>
#include <thread>

#include "base/background_thread.hpp"
#include "base/socket.hpp"
#include "store/store_server.hpp"

namespace ddp {
namespace {

base::UniqueFd make_stop_signal() {
    base::UniqueFd fd{::eventfd(0, EFD_CLOEXEC)};
    if (!fd) throw SystemError{"store: eventfd", errno};
    return fd;
}

}  // namespace

struct TcpStoreServer::Impl {
    explicit Impl(const MasterAddress& listen_on)
        : server(base::listen_tcp(listen_on.host, listen_on.port)),
          stop(make_stop_signal()),
          port(server.port()),
          thread(base::start_background_thread([this] { serve(); })) {}

    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    ~Impl() {
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
    std::thread thread;  // last: it uses the others
};

TcpStoreServer::TcpStoreServer(const MasterAddress& listen_on)
    : impl_(std::make_unique<Impl>(listen_on)) {}
TcpStoreServer::~TcpStoreServer() = default;
TcpStoreServer::TcpStoreServer(TcpStoreServer&&) noexcept = default;
TcpStoreServer& TcpStoreServer::operator=(TcpStoreServer&&) noexcept = default;
std::uint16_t TcpStoreServer::port() const noexcept { return impl_->port; }

}  // namespace ddp
