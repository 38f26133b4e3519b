// The server's memory under clients that take much and give nothing back, and those who keep on
// working beside them. The same with an agent and 200 connections: attacked_store_test.cpp.
#include <gtest/gtest.h>

#include <sys/socket.h>

#include <deque>
#include <fstream>
#include <regex>
#include <vector>

#include "base/sanitizers.hpp"
#include "raw_client.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace store_test;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t attackers = 60;

#ifdef DDP_SANITIZES_ADDRESSES
constexpr bool memory_is_measured = false;  // AddressSanitizer keeps what was freed
#else
constexpr bool memory_is_measured = true;
#endif

// Of this process, the most since the object was made.
class PeakMemory {
public:
    PeakMemory() {
        std::ofstream{"/proc/self/clear_refs"} << 5;
        before_ = peak();
    }
    std::size_t growth() const { return std::max(peak(), before_) - before_; }

private:
    static std::size_t peak() {
        std::ifstream status{"/proc/self/status"};
        for (std::string line; std::getline(status, line);) {
            if (line.starts_with("VmHWM:")) return std::stoul(line.substr(6)) * 1024;
        }
        return 0;
    }
    std::size_t before_ = 0;
};

class StoreMemory : public testing::Test {
protected:
    StoreMemory() : server({.limits = {.returns_memory = true}}) { friendly.send(hello + nothing); }

    // Connections that will read nothing, or not much.
    RawClient& attacker() {
        auto& client = clients.emplace_back(server);
        const int small = 16 * 1024;
        ::setsockopt(client.fd(), SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        return client;
    }
    // What the server takes of it now; the rest is returned.
    std::string_view send_some(const RawClient& client, std::string_view bytes) {
        int refusals = 0;
        while (!bytes.empty() && refusals < 3) {
            const auto count = ::send(client.fd(), bytes.data(), std::min(bytes.size(), 4 * mib),
                                      MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
            if (count < 0 && errno != EAGAIN) break;
            refusals = count > 0 ? 0 : refusals + 1;
            server.settle();
        }
        return bytes;
    }
    void expect_growth_below(const PeakMemory& memory, std::size_t bytes) {
        if (memory_is_measured) {
            EXPECT_LT(memory.growth(), bytes) << "in MiB: " << bytes / mib;
        }
    }
    void expect_friendly_is_served() {
        friendly.send(u8(1) + str("friend") + str("v") + u8(3) + str("friend"));
        EXPECT_EQ(friendly.receive(9), str("v"));
    }

    DrivenServer server;
    RawClient friendly{server};
    std::deque<RawClient> clients;
};

TEST_F(StoreMemory, RepliesThatNobodyReadsAreNotCopied) {
    friendly.send(u8(1) + str("k") + str(std::string(8 * mib, 'v')));
    const PeakMemory memory;
    std::string request = hello + nothing + u8(10) + u64(7);
    for (int i = 0; i < 7; ++i) request += str("k");
    for (std::size_t i = 0; i < attackers; ++i) attacker().send(request);
    expect_friendly_is_served();
    expect_growth_below(memory, 8 * mib);
}

TEST_F(StoreMemory, ValuesThatWereReplacedMeanwhileAreKeptForAFewReadersOnly) {
    const std::string set = u8(1) + str("k") + str(std::string(8 * mib, 'v'));
    const PeakMemory memory;
    for (std::size_t i = 0; i < attackers; ++i) {
        friendly.send(set);
        attacker().send(hello + u8(3) + str("k"));
    }
    expect_friendly_is_served();
    expect_growth_below(memory, 64 * mib);
    EXPECT_TRUE(clients.front().closed_by_server());
    EXPECT_GE(clients.back().receive(8), u64(8 * mib));
}

TEST_F(StoreMemory, RequestsThatNeverEndGetNoMoreThanTheirPart) {
    const std::string value(8 * mib, 'x');
    const PeakMemory memory;
    const auto begin = hello + nothing + u8(11) + u64(8);
    for (std::size_t i = 0; i < attackers; ++i) {
        auto& client = attacker();
        send_some(client, begin + str("k") + u64(value.size()));
        for (int part = 0; part < 7; ++part) send_some(client, value);
    }
    expect_friendly_is_served();
    expect_growth_below(memory, 64 * mib);
}

TEST_F(StoreMemory, AllWatchersShareOneEvent) {
    for (std::size_t i = 0; i < attackers; ++i) attacker().send(u8(7) + str("w"));
    const std::string value(8 * mib, 'v');
    const PeakMemory memory;
    for (int i = 0; i < 3; ++i) friendly.send(u8(1) + str("w") + str(value));
    expect_friendly_is_served();
    expect_growth_below(memory, 48 * mib);
    const auto told = u8(3) + u8(1) + str("w") + str("") + str(value);
    EXPECT_TRUE(clients.front().receive(told.size()) == told);
}

TEST_F(StoreMemory, WaitsForLongKeysHaveNoMoreThanTheirPart) {
    const PeakMemory memory;
    for (std::size_t i = 0; i < attackers; ++i) {
        std::string request = hello + nothing + u8(6) + u64(1000);
        for (int key = 0; key < 1000; ++key) {
            std::string name = std::to_string(i) + "-" + std::to_string(key);
            name.resize(4000, 'z');
            request += str(name);
        }
        send_some(attacker(), request);
    }
    expect_friendly_is_served();
    expect_growth_below(memory, 64 * mib);
    EXPECT_FALSE(clients.front().closed_now());
}

TEST_F(StoreMemory, ListsOfKeysAreMadeForAFewAtATimeAndForAllInTheEnd) {
    for (int i = 0; i < 700; ++i) {
        std::string key = std::to_string(i);
        key.resize(8000, 'k');
        friendly.send(u8(1) + str(key) + str(""));
    }
    const PeakMemory memory;
    for (std::size_t i = 0; i < attackers; ++i) attacker().send(hello + nothing + u8(17));
    expect_friendly_is_served();
    expect_growth_below(memory, 64 * mib);
    for (auto& client : clients) {
        const auto count = client.receive(8);
        EXPECT_TRUE(count == i64(700) || count == i64(701));
        client.close();
    }
}

TEST_F(StoreMemory, LargeRequestsOfManyClientsTakeTurnsAndAllAreCarriedOut) {
    constexpr std::size_t senders = 25;
    const std::string value(8 * mib, 'v');
    for (std::size_t i = 0; i < senders; ++i) {
        const auto begin = hello + nothing + (i % 2 == 0 ? u8(1) : u8(11) + u64(1)) +
                           str(std::to_string(i)) + u64(value.size());
        send_some(attacker(), begin + value.substr(0, mib));
    }
    const PeakMemory memory;
    std::vector<std::size_t> sent(senders, mib);
    const auto deadline = base::Deadline::after(std::chrono::seconds{20});
    std::size_t done = 0;
    while (done < senders && !deadline.passed()) {
        done = 0;
        for (std::size_t i = 0; i < senders; ++i) {
            const auto count = ::send(clients[i].fd(), value.data(), value.size() - sent[i],
                                      MSG_NOSIGNAL | MSG_DONTWAIT);
            if (count > 0) sent[i] += static_cast<std::size_t>(count);
            if (sent[i] == value.size()) ++done;
        }
        server.settle();
    }
    for (std::size_t i = 0; i < senders; ++i) {
        clients[i].send(u8(3) + str(std::to_string(i)));
        EXPECT_EQ(clients[i].receive(8), u64(value.size())) << i;
        clients[i].close();
    }
}

TEST_F(StoreMemory, ARankOvertakesOthersThatWaitForMemory) {
    const std::string value(8 * mib, 'v');
    bool waits = false;
    for (std::size_t i = 0; i < attackers && !waits; ++i) {
        const auto begin = hello + nothing + u8(1) + str(std::to_string(i)) + u64(value.size());
        waits = !send_some(attacker(), begin + value.substr(1)).empty();
    }
    ASSERT_TRUE(waits);
    friendly.send(u8(65) + str("world_size 2\nrank 1\nprocess 7\npid 4711\n"));
    EXPECT_EQ(friendly.receive(9), u8(0) + str(""));
    friendly.send(u8(1) + str("rank") + str(value) + u8(3) + str("rank"));
    EXPECT_EQ(friendly.receive_now().substr(0, 8), u64(value.size()));
    char byte = 0;
    for (const RawClient& other : clients) {
        EXPECT_EQ(::recv(other.fd(), &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1)
            << "its memory was taken from another";
    }
}

TEST_F(StoreMemory, AListOfUnforeseenLengthWaitsForTheOneBeforeIt) {
    const std::string value(8 * mib, 'v');
    const auto begin = hello + nothing + u8(11) + u64(2) + str("a") + str(value) + str("b");
    auto& first = attacker();
    auto& second = attacker();
    EXPECT_EQ(send_some(first, begin), "");
    const std::string rest{send_some(second, begin)};
    EXPECT_NE(rest, "");
    first.send(str("1") + u8(3) + str("b"));
    EXPECT_EQ(first.receive(9), str("1"));
    second.send(rest + str("2") + u8(3) + str("b"));
    EXPECT_EQ(second.receive(9), str("2"));
}

TEST_F(StoreMemory, AFirstRequestHas4KiBAtMost) {
    const auto set = [](std::size_t bytes) {  // in all, with the hello
        return hello + u8(1) + str("k") + str(std::string(bytes - hello.size() - 18, 'v'));
    };
    RawClient within{server};
    within.send(set(4096 + hello.size()) + u8(3) + str("k"));
    EXPECT_EQ(within.receive(8), u64(4096 - 18));
    RawClient beyond{server};
    beyond.send(set(4097 + hello.size()));
    EXPECT_TRUE(beyond.closed_by_server());
    RawClient legacy{server};
    legacy.send(u8(0) + str("k") + u64(5000));
    EXPECT_TRUE(legacy.closed_by_server());
}

TEST_F(StoreMemory, MemoryGoesBackToTheKernel) {
    const auto resident = [] {
        std::ifstream statm{"/proc/self/statm"};
        std::size_t pages = 0;
        statm >> pages >> pages;
        return pages * 4096;
    };
    for (int i = 0; i < 8000; ++i) {
        friendly.send(u8(1) + str("k" + std::to_string(i)) + str(std::string(4000, 'v')));
    }
    const auto full = resident();
    for (int i = 0; i < 8000; ++i) friendly.send(u8(8) + str("k" + std::to_string(i)));
    if (memory_is_measured) {
        EXPECT_LT(resident() + 20 * mib, full);
    }
}

TEST(StoreServer, ManyClosingsAreOneLineASecond) {
    DrivenServer server;
    testing::internal::CaptureStderr();
    const auto start = base::Deadline::Clock::now();
    for (int i = 0; i < 1000; ++i) {
        RawClient client{server};
        client.send(hello + nothing + u8(99));
        ASSERT_TRUE(client.closed_by_server());
    }
    // The rest is said without any further client.
    const auto deadline = base::Deadline::after(std::chrono::seconds{20});
    std::string lines = testing::internal::GetCapturedStderr();
    std::size_t counted = 0;
    const std::regex line{"closing connection [0-9]+: unknown operation( .and ([0-9]+) more)?"};
    std::string text;
    testing::internal::CaptureStderr();
    const auto count = [&] {
        counted = 0;
        for (std::sregex_iterator found{text.begin(), text.end(), line}, end; found != end;
             ++found) {
            counted += 1 + ((*found)[2].matched ? std::stoul((*found)[2]) : 0);
        }
        return counted;
    };
    text = lines;
    while (count() < 1000 && !deadline.passed()) {
        server.pump(200);
        text += testing::internal::GetCapturedStderr();
        testing::internal::CaptureStderr();
    }
    testing::internal::GetCapturedStderr();
    EXPECT_EQ(counted, 1000U) << text;
    const auto seconds =
        std::chrono::duration_cast<std::chrono::seconds>(base::Deadline::Clock::now() - start);
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 2 + seconds.count());
}

}  // namespace
}  // namespace ddp::store
