#include "launcher/hosts/connector.hpp"

#include "base/deadline.hpp"
#include "base/net/pass_descriptor.hpp"
#include "base/net/socket.hpp"
#include "launcher/process/forked_helper.hpp"

#include <ddp/error.hpp>

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>
#include <utility>

namespace ddp::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds time_of_a_try{10'000};
// Between two tries: hosts that are started together are ready at nearly the same time, and an
// agent that waits for the coordinator to come is there soon after it.
constexpr milliseconds first_pause{2};
constexpr milliseconds longest_pause{50};
constexpr milliseconds time_of_an_answer{500};
constexpr milliseconds after_an_answer{1'000};
constexpr std::size_t most_words = 4096;

struct Answer {
    bool has_come = false;  // soon; if nothing but the end, `bytes` is empty
    std::string bytes = {};
};
Answer answer_to(const std::string& host, std::uint16_t port, std::string_view question) {
    const auto deadline = base::Deadline::after(time_of_an_answer);
    const base::ConnectResult result = base::connect_tcp(host, port, deadline);
    if (!result.fd) return {};
    const int fd = result.fd.get();
    if (::send(fd, question.data(), question.size(), MSG_NOSIGNAL) < 0) return {};
    if (!base::wait_readable(fd, deadline)) return {};
    std::array<char, 64> bytes{};
    const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    return {true, std::string(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)))};
}

// By what each numbering of its protocol has and answers at once (runtime/store/protocol.md): PING
// of the newer one, GETNUMKEYS of 1.13's. A ddp-launch answers the same, and does not end the
// connection of an agent that has yet to say more.
bool is_torch_store(const std::string& host, std::uint16_t port) {
    constexpr std::string_view nonce = "ddp?";
    const std::string ping = std::string("\0\xCE\xF7\x85\x3C\x0D", 6).append(nonce);
    const bool is_store = answer_to(host, port, ping).bytes == nonce ||
                          answer_to(host, port, "\x06").bytes.size() == sizeof(std::int64_t);
    if (!is_store) return false;
    const Answer to_agent = answer_to(host, port, "\xDD");
    return to_agent.has_come && to_agent.bytes.empty();
}

void connect_until_answered(int socket, const std::string& host, std::uint16_t port,
                            bool asks_first) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    std::string said;
    if (asks_first) {
        try {
            if (is_torch_store(host, port)) {
                said = Connector::torch_is_there;
                if (::send(socket, said.data(), said.size(), MSG_NOSIGNAL) < 0) return;
            }
        } catch (const std::exception&) {  // it is gone
        }
        std::this_thread::sleep_for(after_an_answer);
    }
    for (milliseconds pause = first_pause;; pause = std::min(2 * pause, longest_pause)) {
        base::ConnectResult result;
        try {
            result = base::connect_tcp(host, port, base::Deadline::after(time_of_a_try));
        } catch (const std::exception& error) {
            result.trouble = error.what();
        }
        if (result.fd) {
            base::send_descriptor(socket, result.fd.get());
            return;
        }
        if (result.trouble != said) {
            said = result.trouble;
            const std::string_view words = std::string_view(said).substr(0, most_words);
            if (::send(socket, words.data(), words.size(), MSG_NOSIGNAL) < 0) return;
        }
        std::this_thread::sleep_for(pause);
    }
}

}  // namespace

Connector::Connector(const std::string& host, std::uint16_t port, bool asks_first) {
    ForkedHelper helper =
        fork_helper("ddp-connect", "the connecting process", SOCK_SEQPACKET,
                    [&](int socket) { connect_until_answered(socket, host, port, asks_first); });
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
    base::Received received = base::receive_with_descriptor(socket_.get(), words);
    if (received.bytes <= 0) return std::nullopt;
    News news;
    news.connection = std::move(received.descriptor);
    if (!news.connection) {
        words.resize(static_cast<std::size_t>(received.bytes));
        news.trouble = std::move(words);
    }
    return news;
}

}  // namespace ddp::launcher
