// What clients that are served can make the agent keep: five ways to fill its memory with many
// connections. Beside the map's content it stays within 64 MiB, and the job computes right.
#include "security/job.hpp"
#include "security/requests.hpp"
#include "store/wire_bytes.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <string_view>

namespace ddp::security_test {
namespace {

using launcher::testing::memory_is_measured;
using std::chrono::milliseconds;
using store_test::hello;
using store_test::str;
using store_test::u64;
using store_test::u8;

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t value_bytes = 8 * mib;
constexpr std::size_t allowance = 64 * mib;  // beside the map
const std::string known_client = hello + u8(13) + store_test::u32(1);
constexpr int connections = 20;
constexpr int soak_connections = 200;

std::size_t memory_of(pid_t pid, const std::string& line) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string word; status >> word;) {
        if (word != line + ":") continue;
        std::size_t kib = 0;
        status >> kib;
        return kib * 1024;
    }
    return 0;
}

// Clients that send and never read, all of them side by side.
class Senders {
public:
    Senders(std::uint16_t port, int count) {
        for (int i = 0; i < count; ++i) {
            const int fd = connect_to(port);
            if (fd < 0) continue;  // no more than the agent takes
            ::fcntl(fd, F_SETFL, O_NONBLOCK);
            clients_.push_back({base::UniqueFd(fd), 0, 0});
        }
    }

    // The texts, each client all of them, until they are taken, or the server closes, or takes
    // nothing more.
    void send(const std::vector<std::string_view>& texts) {
        const milliseconds nothing_taken{1000};
        auto stalled = base::Deadline::after(nothing_taken);
        const auto deadline = base::Deadline::after(patience);
        for (bool more = true; more && !stalled.passed() && !deadline.passed();) {
            more = false;
            for (Client& one : clients_) {
                if (!one.fd || one.texts == texts.size()) continue;
                more = true;
                if (send_some(one, texts[one.texts]))
                    stalled = base::Deadline::after(nothing_taken);
            }
            ::poll(nullptr, 0, 1);
        }
    }

private:
    struct Client {
        base::UniqueFd fd;
        std::size_t texts;  // sent
        std::size_t sent;   // of the next one
    };

    static bool send_some(Client& one, std::string_view text) {
        const ssize_t sent = ::send(one.fd.get(), text.data() + one.sent, text.size() - one.sent,
                                    MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN) one.fd.reset();
        if (sent <= 0) return false;
        one.sent += static_cast<std::size_t>(sent);
        if (one.sent == text.size()) {
            ++one.texts;
            one.sent = 0;
        }
        return true;
    }

    std::vector<Client> clients_;
};

class Memory : public ::testing::Test {
protected:
    using Fill = std::function<void(std::uint16_t port, int count)>;

    // A server that has no bound ends at this limit instead of taking the host with it.
    void fill(int count, std::size_t in_the_map, const Fill& act) {
        // AddressSanitizer reserves more than that.
        Job job({.address_space = memory_is_measured ? std::to_string(3072 * mib) : ""});
        const auto port = job.wait_until_ready();
        ASSERT_TRUE(port) << job.wait().err;
        const auto agent = job.launch().wait_for_agent();
        ASSERT_TRUE(agent);
        const std::size_t before = memory_of(*agent, "VmRSS");
        ASSERT_GT(before, 0U);
        // Of the same user, who is served.
        Shared<std::atomic<bool>> done;
        Stranger filler(::geteuid(), [&] {
            act(*port, count);
            *done = true;
            for (;;) ::pause();  // with all connections open
        });
        const auto deadline = base::Deadline::after(2 * patience);
        while (!*done && filler.runs() && !deadline.passed()) job.launch().wait(milliseconds{20});
        EXPECT_TRUE(*done);
        const std::size_t peak = memory_of(*agent, "VmHWM");
        std::printf("%d connections: %zu MiB before, %zu MiB at most\n", count, before / mib,
                    peak / mib);
        EXPECT_GT(peak, 0U) << "the agent is gone";
        if (memory_is_measured) {
            EXPECT_LE(peak, before + in_the_map + allowance);
        }
        job.let_join();
        job.let_end();
        expect_right(job.wait(), 2);
    }

    // One large value, and many who ask for it seven times over and read nothing.
    static void ask_for_much(std::uint16_t port, int count) {
        Friend(port).set("/k", std::string(value_bytes, 'x'));
        std::string ask = known_client + u8(10) + u64(7);
        for (int i = 0; i < 7; ++i) ask += str("/k");
        kept_open(port, count).send({ask});
        Friend(port).keys();  // comes to its turn after them
    }

    // A first request that never ends: of eight items, seven.
    static void never_finish(std::uint16_t port, int count) {
        send_all_but_the_end(port, count, hello);
    }
    // The same of clients that have asked something before.
    static void never_finish_the_second(std::uint16_t port, int count) {
        send_all_but_the_end(port, count, known_client);
    }
    static void send_all_but_the_end(std::uint16_t port, int count, const std::string& before) {
        const std::string begin = before + u8(11) + u64(8);
        const std::string item = str("/k") + str(std::string(value_bytes, 'x'));
        std::vector<std::string_view> texts(7, item);
        texts.insert(texts.begin(), begin);
        kept_open(port, count).send(texts);
    }

    // A key that many watch, in the older numbering, and do not read; then it changes.
    static void watch(std::uint16_t port, int count) {
        const std::string watch_key = u8(7) + str("/w");
        kept_open(port, count).send({watch_key});
        Friend setter(port);
        setter.set("/w", std::string(value_bytes, 'x'));
        setter.set("/w", std::string(value_bytes, 'y'));
    }

    // Waits for thousands of long keys.
    static void wait_for_much(std::uint16_t port, int count) {
        constexpr int parts = 80;
        constexpr int keys_a_part = 100;
        constexpr std::size_t key_bytes = 7900;
        std::vector<std::string> parts_of_it{known_client + u8(6) + u64(parts * keys_a_part)};
        for (int part = 0; part < parts; ++part) {
            std::string& text = parts_of_it.emplace_back();
            for (int i = 0; i < keys_a_part; ++i) {
                std::string key = std::to_string(part * keys_a_part + i) + "z";
                text += str(key.append(key_bytes - key.size(), 'z'));
            }
        }
        kept_open(port, count).send({parts_of_it.begin(), parts_of_it.end()});
    }

    // Until the process ends.
    static Senders& kept_open(std::uint16_t port, int count) { return *new Senders(port, count); }
};

TEST_F(Memory, IsBoundedWhereRepliesAreNotRead) { fill(connections, value_bytes, ask_for_much); }
TEST_F(Memory, IsBoundedWhereRequestsDoNotEnd) { fill(connections, 0, never_finish); }
TEST_F(Memory, IsBoundedWhereSecondRequestsDoNotEnd) {
    fill(connections, 0, never_finish_the_second);
}
TEST_F(Memory, IsBoundedWhereManyWatchALargeKey) { fill(connections, value_bytes, watch); }
TEST_F(Memory, IsBoundedWhereManyWaitForManyKeys) { fill(connections, 0, wait_for_much); }

TEST_F(Memory, SoakIsBoundedWhereRepliesAreNotRead) {
    fill(soak_connections, value_bytes, ask_for_much);
}
TEST_F(Memory, SoakIsBoundedWhereRequestsDoNotEnd) { fill(soak_connections, 0, never_finish); }
TEST_F(Memory, SoakIsBoundedWhereSecondRequestsDoNotEnd) {
    fill(soak_connections, 0, never_finish_the_second);
}
TEST_F(Memory, SoakIsBoundedWhereManyWatchALargeKey) { fill(soak_connections, value_bytes, watch); }
TEST_F(Memory, SoakIsBoundedWhereManyWaitForManyKeys) { fill(soak_connections, 0, wait_for_much); }

}  // namespace
}  // namespace ddp::security_test
