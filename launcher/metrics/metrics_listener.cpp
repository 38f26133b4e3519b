#include "launcher/metrics/metrics_listener.hpp"

#include "base/net/address.hpp"
#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"

#include <ddp/error.hpp>

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddp::launcher {
namespace {

constexpr int backlog = 16;

// Left by one that was killed.
bool is_abandoned(const std::string& path) {
    struct stat seen {};
    if (::lstat(path.c_str(), &seen) != 0 || !S_ISSOCK(seen.st_mode)) return false;
    const base::UniqueFd asking = base::make_local_socket();
    return asking && !base::connect_to_file(asking.get(), path) && errno == ECONNREFUSED;
}

base::UniqueFd listen_at(const std::string& path) {
    base::UniqueFd made = base::make_local_socket();
    if (!made) throw SystemError("a socket for --metrics", errno);
    if (is_abandoned(path)) ::unlink(path.c_str());
    ::fchmod(made.get(), S_IRUSR | S_IWUSR);  // the file's mode, from its first moment on
    if (!base::bind_to_file(made.get(), path) || ::listen(made.get(), backlog) != 0) {
        throw UsageError(
            "--metrics: unix:" + path + ": " + std::strerror(errno) +
            (errno == EADDRINUSE ? "; somebody serves there, or it is another file" : ""));
    }
    return made;
}

}  // namespace

MetricsListener::MetricsListener(const MetricsAddress& address) : address_(address) {
    if (!address_.path.empty()) {
        fd_ = listen_at(address_.path);
        struct stat file {};
        if (::lstat(address_.path.c_str(), &file) != 0) return;
        device_ = file.st_dev;
        inode_ = file.st_ino;
        return;
    }
    try {
        fd_ = base::listen_tcp(address_.host, address_.port);
        has_chosen_port_ = address_.port == 0;
        address_.port = base::local_port(fd_.get());
    } catch (const SystemError& error) {
        throw UsageError(std::string("--metrics: ") + error.what() +
                         (error.code() == EADDRINUSE ? "; ss -ltnp shows who has it" : ""));
    }
}

std::string MetricsListener::where() const {
    if (!address_.path.empty()) return "unix:" + address_.path;
    return "http://" + base::host_and_port(address_.host, address_.port) + "/metrics";
}

void MetricsListener::remove_file() const noexcept {
    struct stat file {};
    const bool is_own = !address_.path.empty() && ::lstat(address_.path.c_str(), &file) == 0 &&
                        file.st_dev == device_ && file.st_ino == inode_;
    if (is_own) ::unlink(address_.path.c_str());
}

}  // namespace ddp::launcher
