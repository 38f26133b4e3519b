// What bare sockets do between two hosts: the floor of an all_reduce between them. Each of the
// RANKS processes of a host has one connection to its twin on the other, over which it exchanges
// its slice of a sum: half of it goes each way at once, is added, and goes back. Nothing moves
// between the processes of a host, and nobody checks anything. With 4 bytes and one rank it is a
// ping-pong. Started once on each host by hosts.sh; prints microseconds a round, of the slowest
// process, on host 0.
//
//   duplex HOST ADDRESS_OF_HOST_0 PORT RANKS BYTES ROUNDS
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const char* what) {
    std::perror(what);
    std::_Exit(1);
}

struct Options {
    bool is_first;
    const char* address;
    int port;
    int ranks;
    std::size_t bytes;
    int rounds;
};

sockaddr_in address_of(const Options& options, int rank) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(options.port + rank));
    if (::inet_pton(AF_INET, options.address, &address.sin_addr) != 1) fail("address");
    return address;
}

int connect_twin(const Options& options, int rank) {
    const sockaddr_in address = address_of(options, rank);
    const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
    const int on = 1;
    int twin = -1;
    if (options.is_first) {
        const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (::bind(listener, generic, sizeof address) != 0) fail("bind");
        if (::listen(listener, 1) != 0) fail("listen");
        twin = ::accept(listener, nullptr, nullptr);
        ::close(listener);
    } else {
        const auto end = Clock::now() + std::chrono::seconds(10);
        for (;;) {
            twin = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
            if (::connect(twin, generic, sizeof address) == 0) break;
            ::close(twin);
            twin = -1;
            if (Clock::now() > end) break;
            ::usleep(10'000);
        }
    }
    if (twin < 0) fail("connect");
    ::setsockopt(twin, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return twin;
}

// Sends one while it receives the other.
void exchange(int twin, std::span<const std::byte> out, std::span<std::byte> in) {
    while (!out.empty() || !in.empty()) {
        pollfd entry{
            twin, static_cast<short>((out.empty() ? 0 : POLLOUT) | (in.empty() ? 0 : POLLIN)), 0};
        if (::poll(&entry, 1, 10'000) <= 0) fail("poll");
        if ((entry.revents & POLLOUT) != 0) {
            const ssize_t sent = ::send(twin, out.data(), out.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent > 0) out = out.subspan(static_cast<std::size_t>(sent));
            if (sent < 0 && errno != EAGAIN) fail("send");
        }
        if ((entry.revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            const ssize_t got = ::recv(twin, in.data(), in.size(), MSG_DONTWAIT);
            if (got > 0) in = in.subspan(static_cast<std::size_t>(got));
            if (got == 0 || (got < 0 && errno != EAGAIN)) fail("recv");
        }
    }
}

void ping_pong(const Options& options, int twin) {
    std::byte word[4]{};
    for (int turn = 0; turn < 2; ++turn) {
        if ((turn == 0) == options.is_first) {
            exchange(twin, word, {});
        } else {
            exchange(twin, {}, word);
        }
    }
}

double run(const Options& options, int rank) {
    const int twin = connect_twin(options, rank);
    const std::size_t elements =
        options.bytes / sizeof(float) / static_cast<std::size_t>(options.ranks);
    std::vector<float> slice(elements, 1.0F);
    std::vector<float> theirs(elements);
    const std::span<float> all(slice);
    const std::span<float> own =
        options.is_first ? all.first(elements / 2) : all.subspan(elements / 2);
    const std::span<float> other =
        options.is_first ? all.subspan(elements / 2) : all.first(elements / 2);
    const auto received = std::span(theirs).first(own.size());
    std::vector<double> times;
    for (int round = -1; round < options.rounds; ++round) {
        const auto start = Clock::now();
        if (elements < 2) {
            ping_pong(options, twin);
        } else {
            exchange(twin, std::as_bytes(other), std::as_writable_bytes(received));
            for (std::size_t i = 0; i < own.size(); ++i) own[i] += received[i];
            exchange(twin, std::as_bytes(own), std::as_writable_bytes(other));
        }
        const std::chrono::duration<double, std::micro> took = Clock::now() - start;
        if (round >= 0) times.push_back(took.count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 7) {
        std::fprintf(stderr, "usage: duplex HOST ADDRESS PORT RANKS BYTES ROUNDS\n");
        return 2;
    }
    const Options options{std::atoi(argv[1]) == 0,
                          argv[2],
                          std::atoi(argv[3]),
                          std::atoi(argv[4]),
                          std::strtoull(argv[5], nullptr, 10),
                          std::atoi(argv[6])};
    auto* const times = static_cast<double*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    for (int rank = 0; rank < options.ranks; ++rank) {
        if (::fork() == 0) {
            times[rank] = run(options, rank);
            std::_Exit(0);
        }
    }
    int failed = 0;
    for (int rank = 0; rank < options.ranks; ++rank) {
        int status = 0;
        ::wait(&status);
        failed |= status;
    }
    if (failed != 0) return 1;
    if (options.is_first) std::printf("%.2f\n", *std::max_element(times, times + options.ranks));
    return 0;
}
