#include "base/net/local_socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

namespace ddp::base {
namespace {

sockaddr_un file_address(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    return address;
}

}  // namespace

// The leading zero byte is what makes it abstract.
AbstractAddress abstract_address(const std::string& name) {
    AbstractAddress result;
    result.address.sun_family = AF_UNIX;
    const std::size_t bytes = std::min(name.size(), sizeof result.address.sun_path - 1);
    std::memcpy(result.address.sun_path + 1, name.data(), bytes);
    result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + bytes);
    return result;
}

UniqueFd listen_local(const std::string& name) {
    const AbstractAddress where = abstract_address(name);
    UniqueFd fd = make_local_socket();
    if (!fd || ::bind(fd.get(), where.generic(), where.size) != 0) return {};
    return ::listen(fd.get(), SOMAXCONN) == 0 ? std::move(fd) : UniqueFd();
}

UniqueFd try_connect_local(const std::string& name) {
    const AbstractAddress where = abstract_address(name);
    UniqueFd fd = make_local_socket();
    while (fd && ::connect(fd.get(), where.generic(), where.size) != 0) {
        if (errno != EINTR) return {};
    }
    return fd;
}

UniqueFd make_local_socket() {
    return UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

bool bind_to_file(int socket, const std::string& path) {
    const sockaddr_un address = file_address(path);
    return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

bool connect_to_file(int socket, const std::string& path) {
    const sockaddr_un address = file_address(path);
    return ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

std::optional<ucred> local_peer(int connection) {
    int domain = AF_UNSPEC;
    socklen_t size = sizeof domain;
    if (::getsockopt(connection, SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0) return std::nullopt;
    if (domain != AF_UNIX) return std::nullopt;
    ucred peer{};
    size = sizeof peer;
    if (::getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return peer;
}

}  // namespace ddp::base
