// flood PORT SECONDS [RATE]: connections with garbage to 127.0.0.1:PORT, one after the other, as
// fast as they go or RATE a second. Prints a line once the first hundred are through, and their
// number at the end.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>

namespace {

using Clock = std::chrono::steady_clock;

sockaddr_in loopback(std::uint32_t offset, std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + offset);
    address.sin_port = htons(port);
    return address;
}

// Ends at once, so that none of them keeps a port; from many addresses, to be safe.
bool connect_and_close(std::uint16_t port, std::mt19937& random) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int on = 1;
    const linger at_once{1, 0};
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    const sockaddr_in from = loopback(random() % 64, 0);
    const sockaddr_in to = loopback(0, port);
    ::bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof from);
    const bool connected = ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
    if (connected) {
        // Half of them begin as a client of the store does.
        std::string bytes = random() % 2 == 0 ? std::string("\0\xCE\xF7\x85\x3C\xFF", 6) : "";
        for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<char>(random()));
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    ::close(fd);
    return connected;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) return 2;
    const auto port = static_cast<std::uint16_t>(std::atoi(argv[1]));
    const auto begin = Clock::now();
    const auto end = begin + std::chrono::seconds(std::atoi(argv[2]));
    const double rate = argc > 3 ? std::atof(argv[3]) : 0;
    std::mt19937 random(17);
    long connections = 0;
    while (Clock::now() < end) {
        if (connect_and_close(port, random) && ++connections == 100) {
            std::printf("flooding\n");
            std::fflush(stdout);
        }
        if (rate <= 0) continue;
        const std::chrono::duration<double> due(static_cast<double>(connections) / rate);
        std::this_thread::sleep_until(begin + std::chrono::duration_cast<Clock::duration>(due));
    }
    std::printf("%ld\n", connections);
}
