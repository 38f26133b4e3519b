// Garbage in great numbers: the job that it is sent to computes right, and its log stays readable.
#include "security/job.hpp"
#include "security/requests.hpp"
#include "store/wire_bytes.hpp"
#include "support/seed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <fstream>
#include <random>

namespace ddp::security_test {
namespace {

using launcher::testing::LaunchSettings;
using launcher::testing::lines_of;
using std::chrono::duration_cast;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr std::uint64_t connections = 3'000;
constexpr std::uint64_t soak_connections = 100'000;
constexpr seconds time_to_flood{100};
constexpr long lines_a_second = 10;

struct Flooded {
    std::atomic<std::uint64_t> connections;
    std::atomic<std::uint64_t> failed;  // nobody listened, or nobody accepted for long
    std::atomic<bool> enough;           // set by the test: no more than the number asked for
};

std::string garbage(std::mt19937& random) {
    using store_test::hello;
    std::string bytes(random() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    switch (random() % 8) {
        case 0:
            return "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
        case 1:
            return std::string("\x16\x03\x01\x02", 4) + bytes;
        case 2:
            return hello + bytes;
        case 3:
            return hello + store_test::u8(1) + store_test::u64(1ULL << 40);
        case 4:
            return hello + store_test::u8(13) + store_test::u32(1) +
                   store_test::u8(255);  // a known one's
        case 5:
            return hello;
        case 6:
            return "";
        default:
            return bytes;
    }
}

// From many addresses of this host, as one has not ports enough.
int connect_from(std::uint32_t source, std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK + source);
    const int on = 1;
    ::setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    ::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const timeval limit{5, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return fd;
    ::close(fd);
    return -1;
}

void flood(std::uint16_t port, std::uint64_t count, unsigned seed, Flooded& seen) {
    std::mt19937 random(seed);
    const auto deadline = base::Deadline::after(time_to_flood);
    while ((seen.connections < count || !seen.enough) && !deadline.passed()) {
        const int fd = connect_from(random() % 64, port);
        if (fd < 0) {
            ++seen.failed;
            continue;
        }
        const std::string bytes = garbage(random);
        ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        const linger at_once{random() % 2 == 0 ? 1 : 0, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        ::close(fd);
        ++seen.connections;
    }
}

const std::string expected_of_rank_0 =
    "rank 0 of 2: sum [3, 30, 300]\n"
    "rank 0 of 2: average [1.5, 15, 150]\n"
    "rank 0 of 2: from rank 0 [1, 10, 100]\n"
    "rank 0 of 2: gathered [1, 10, 100, 2, 20, 200]\n"
    "rank 0 of 2: largest rank 1\n";

class Flood : public ::testing::Test {
protected:
    // The workers wait in a shell, run the example while the flood comes, and wait for its end.
    Launch::Words words() const {
        const std::string script =
            "echo port $MASTER_PORT; echo ready; "
            "until [ -e " +
            gates_.path() +
            "/join ]; do sleep 0.01; done; " DDP_EXAMPLE_ALL_REDUCE
            "; code=$?; echo reduced; "
            "until [ -e " +
            gates_.path() + "/end ]; do sleep 0.01; done; exit $code";
        return {"--nproc-per-node=2", "sh", "-c", script};
    }
    void open_gate(const std::string& name) const { std::ofstream(gates_.path() + "/" + name); }

    void expect_right_beside(std::uint64_t count, uid_t user) {
        const unsigned seed = store_test::random_seed();
        Launch job(folder_, words());
        ASSERT_TRUE(job.wait_for_output("ready", 2));
        const std::string& out = job.out();
        const auto port = static_cast<std::uint16_t>(std::stoi(out.substr(out.find("port ") + 5)));
        const Shared<Flooded> seen;
        const auto begin = base::Deadline::Clock::now();
        Stranger stranger(user, [&] { flood(port, count, seed, *seen); });
        const auto deadline = base::Deadline::after(patience);
        while (seen->connections < count / 20 && !deadline.passed()) ::poll(nullptr, 0, 1);
        open_gate("join");
        EXPECT_TRUE(job.wait_for_output("reduced", 2));
        seen->enough = true;
        EXPECT_TRUE(stranger.wait(time_to_flood + seconds{10}));
        EXPECT_GE(seen->connections, count);
        const auto took = duration_cast<seconds>(base::Deadline::Clock::now() - begin).count() + 1;
        open_gate("end");
        const LaunchResult result = job.wait();
        std::printf("%lu connections and %ld s: %zu lines\n",
                    static_cast<unsigned long>(seen->connections), static_cast<long>(took),
                    lines_of(result.err).size());
        EXPECT_EQ(result.exit_code, 0) << result.err.substr(0, 2000);
        EXPECT_THAT(of_rank_0(result.out), HasSubstr(expected_of_rank_0));
        EXPECT_LE(lines_of(result.err).size(), lines_a_second * (took + 1))
            << result.err.substr(0, 2000);
    }

    // The ranks' lines come in any order.
    static std::string of_rank_0(const std::string& out) {
        std::string text;
        for (const std::string& line : lines_of(out)) {
            const std::size_t found = line.find("rank 0 of 2: ");
            if (found != line.npos) text += line.substr(found) + "\n";
        }
        return text;
    }

    TemporaryFolder folder_;
    TemporaryFolder gates_;
};

TEST_F(Flood, OfAnotherUserDisturbsNobody) {
    DDP_NEEDS_ROOT();
    expect_right_beside(connections, nobody);
}

TEST_F(Flood, OfTheSameUserDisturbsNobody) { expect_right_beside(connections, ::geteuid()); }

TEST_F(Flood, SoakOfAnotherUserDisturbsNobody) {
    DDP_NEEDS_ROOT();
    expect_right_beside(soak_connections, nobody);
}

TEST_F(Flood, SoakOfTheSameUserDisturbsNobody) {
    expect_right_beside(soak_connections, ::geteuid());
}

}  // namespace
}  // namespace ddp::security_test
