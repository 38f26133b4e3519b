// A message from a client: "HOST\0COMMAND" with three descriptors. The answer: the exit code, one
// byte.
#include "support/rsh_server.hpp"

#include "base/unique_fd.hpp"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

namespace ddp::testing {
namespace {

constexpr int not_connected = 255;

struct RshRequest {
    std::string host;
    std::string command;
    std::array<int, 3> streams{-1, -1, -1};
};

std::optional<RshRequest> receive_request(int connection) {
    std::array<char, 65536> bytes;
    iovec part{bytes.data(), bytes.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(3 * sizeof(int))> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(connection, &message, MSG_CMSG_CLOEXEC);
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (got <= 0 || header == nullptr) return std::nullopt;
    RshRequest request;
    std::memcpy(request.streams.data(), CMSG_DATA(header), 3 * sizeof(int));
    const std::string text(bytes.data(), static_cast<std::size_t>(got));
    const std::size_t end = text.find('\0');
    request.host = text.substr(0, end);
    request.command = text.substr(end + 1);
    return request;
}

void write_text_to(int fd, const std::string& text) {
    if (::write(fd, text.data(), text.size()) < 0) return;
}

[[noreturn]] void become_command(const RshRequest& request) {
    ::prctl(PR_SET_PDEATHSIG, 0);
    for (int fd = 0; fd < 3; ++fd) ::dup2(request.streams[static_cast<std::size_t>(fd)], fd);
    ::setsid();
    if (::chdir("/") != 0) ::_exit(not_connected);
    write_text_to(STDERR_FILENO, "Authorised use only\n");
    write_text_to(STDOUT_FILENO, "Last login: today\nno newline: ");
    ::execl("/usr/bin/env", "env", "-i", "PATH=/usr/bin:/bin", "HOME=/", "/bin/sh", "-c",
            request.command.c_str(), nullptr);
    ::_exit(not_connected);
}

int run_request(const RshRequest& request, const FindHost& find_host) {
    const auto enter = find_host(request.host);
    if (!enter) {
        write_text_to(request.streams[2], "rsh: Could not resolve hostname " + request.host + "\n");
        return not_connected;
    }
    if (!(*enter)()) {
        write_text_to(request.streams[2],
                      "rsh: connect to host " + request.host + ": No route to host\n");
        return not_connected;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // another user namespace forgets it
    const pid_t child = ::fork();
    if (child == 0) become_command(request);
    for (const int fd : request.streams) ::close(fd);
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return not_connected;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int serve_rsh(const std::string& socket, const FindHost& find_host) {
    const base::UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, socket.c_str(), sizeof address.sun_path - 1);
    const auto* const where = reinterpret_cast<const sockaddr*>(&address);
    constexpr int backlog = 128;
    if (::bind(listener.get(), where, sizeof address) != 0 ||
        ::listen(listener.get(), backlog) != 0) {
        std::perror("rsh server");
        return 1;
    }
    std::puts("serves");
    std::fflush(stdout);
    std::signal(SIGCHLD, SIG_IGN);
    for (;;) {
        const base::UniqueFd connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!connection) continue;
        if (::fork() != 0) continue;
        std::signal(SIGCHLD, SIG_DFL);
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        const auto request = receive_request(connection.get());
        if (!request) ::_exit(1);
        const auto code = static_cast<std::uint8_t>(run_request(*request, find_host));
        ::send(connection.get(), &code, sizeof code, MSG_NOSIGNAL);
        ::_exit(0);
    }
}

}  // namespace ddp::testing
