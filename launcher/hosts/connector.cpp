#include "launcher/hosts/connector.hpp"

#include "base/deadline.hpp"
#include "base/net/socket.hpp"
#include "launcher/process/forked_helper.hpp"

#include <ddp/error.hpp>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_of_a_try{10'000};
// An agent that waits for the coordinator to come is there soon after it.
constexpr milliseconds between_tries{50};
constexpr std::size_t most_words = 4096;

union Control {
    std::array<char, CMSG_SPACE(sizeof(int))> bytes;
    cmsghdr aligned;
};

// Borrows all of it.
msghdr message_of(iovec& data, Control& control) {
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.data();
    message.msg_controllen = control.bytes.size();
    return message;
}

void send_connection(int socket, int connection) {
    char byte = 0;
    iovec data{&byte, 1};
    Control control{};
    const msghdr message = message_of(data, control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof connection);
    std::memcpy(CMSG_DATA(header), &connection, sizeof connection);
    ::sendmsg(socket, &message, MSG_NOSIGNAL);
}

void connect_until_answered(int socket, const std::string& host, std::uint16_t port) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    std::string said;
    for (;;) {
        base::ConnectResult result;
        try {
            result = base::connect_tcp(host, port, base::Deadline::after(time_of_a_try));
        } catch (const std::exception& error) {
            result.trouble = error.what();
        }
        if (result.fd) {
            return send_connection(socket, result.fd.get());
        }
        if (result.trouble != said) {
            said = result.trouble;
            const std::string_view words = std::string_view(said).substr(0, most_words);
            if (::send(socket, words.data(), words.size(), MSG_NOSIGNAL) < 0) return;
        }
        std::this_thread::sleep_for(between_tries);
    }
}

}  // namespace

Connector::Connector(const std::string& host, std::uint16_t port) {
    ForkedHelper helper =
        fork_helper("ddp-connect", "the connecting process", SOCK_SEQPACKET,
                    [&](int socket) { connect_until_answered(socket, host, port); });
    socket_ = std::move(helper.socket);
    pid_ = helper.pid;
}

Connector::~Connector() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
}

std::optional<Connector::News> Connector::take() {
    std::string words(most_words, '\0');
    iovec data{words.data(), words.size()};
    Control control{};
    msghdr message = message_of(data, control);
    const ssize_t count = ::recvmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (count <= 0) return std::nullopt;
    News news;
    const cmsghdr* header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
        int connection = -1;
        std::memcpy(&connection, CMSG_DATA(header), sizeof connection);
        news.connection.reset(connection);
    } else {
        words.resize(static_cast<std::size_t>(count));
        news.trouble = std::move(words);
    }
    return news;
}

}  // namespace ddp::launcher
