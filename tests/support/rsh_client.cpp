// rsh_client SOCKET HOST WORDS...: has the words run on a host of a HostWorld, as ssh would:
// joined, by a shell, with this program's streams. Its exit code, or 255. See rsh_server.hpp.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>

int main(int argc, char** argv) {
    constexpr int not_connected = 255;
    if (argc < 4) return not_connected;
    std::string text = argv[2];
    text += '\0';
    for (int i = 3; i < argc; ++i) text += std::string(i > 3 ? " " : "") + argv[i];
    const int fd = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, argv[1], sizeof address.sun_path - 1);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        std::perror("rsh");
        return not_connected;
    }
    const std::array<int, 3> streams{0, 1, 2};
    iovec part{text.data(), text.size()};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof streams)> control{};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof streams);
    std::memcpy(CMSG_DATA(header), streams.data(), sizeof streams);
    if (::sendmsg(fd, &message, MSG_NOSIGNAL) < 0) return not_connected;
    for (const int stream : streams) ::close(stream);  // the command has them now
    std::uint8_t code = 0;
    return ::recv(fd, &code, sizeof code, 0) == sizeof code ? code : not_connected;
}
