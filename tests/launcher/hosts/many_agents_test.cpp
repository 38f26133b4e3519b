// The real coordinator behind the store's real server, in a process of its own, and a thousand
// agents' members in the test's, in TLS: what the coordinator costs, how soon all hear of it, and
// how soon their workers are clients of the store.
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "launcher/agent/coordinator_role.hpp"
#include "launcher/hosts/job_token.hpp"
#include "launcher/hosts/member.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/process/poller.hpp"
#include "store/other_host.hpp"
#include "store/server/store_server.hpp"
#include "store/wire_bytes.hpp"
#include "support/own_network.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

// A quarter under AddressSanitizer, with which a thousand on a busy host outlast their own leases.
constexpr int many = testing::memory_is_measured ? 1000 : 250;
constexpr int slots = 8;
// A test allows ten times what is promised, for busy hosts and sanitizers.
constexpr int leniency = 10;

Milliseconds since(Clock::time_point start) {
    return std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
}

// Of the jobs here; in TLS.
const char* const token = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

// The agent that coordinates, but without workers: each byte of `control` asks for the end of the
// job. Ends with `control`.
int coordinate(base::UniqueFd listener, int control, const MembershipRules& rules) {
    constexpr Poller::Tag of_store = 0, of_role = 1, of_control = 2;
    const TlsContext tls(*JobToken::parse(token));
    Poller events;
    std::optional<store::StoreServer> store;
    CoordinatorRole::Settings settings;
    settings.rules = rules;
    settings.job = {.name = "job", .run_id = "job", .run = "run", .proof = {.tls = tls}};
    settings.store = [&]() -> store::StoreServer& { return *store; };
    settings.publish = [](Outcome&) {};
    settings.report_file = [] { return std::string(); };
    CoordinatorRole role(std::move(settings), events, of_role);
    store::StoreServerOptions options;
    options.needs_vouchers = true;
    options.take_agent = [&](base::UniqueFd connection, std::string received) {
        role.take_agent(std::move(connection), std::move(received));
    };
    std::vector<base::UniqueFd> listeners;
    listeners.push_back(std::move(listener));
    store.emplace(std::move(listeners), std::move(options));
    const base::UniqueFd own_link = role.begin(Clock::now());  // nobody joins by it
    events.add(store->fd(), EPOLLIN, of_store);
    events.add(control, EPOLLIN, of_control);
    for (;;) {
        for (const Poller::Tag tag : events.wait(role.coordinator()->next())) {
            char byte = 0;
            if (tag == of_store) store->run_ready();
            if (tag != of_control) continue;
            if (::read(control, &byte, 1) != 1) return 0;
            role.coordinator()->stop(SIGTERM, Clock::now());
        }
        role.run(Clock::now());
    }
}

class CoordinatingProcess {
public:
    explicit CoordinatingProcess(const MembershipRules& rules,
                                 base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0)) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
        control_.reset(ends[0]);
        base::UniqueFd other(ends[1]);
        port_ = base::local_port(listener.get());
        pid_ = ::fork();
        if (pid_ != 0) return;
        control_.reset();
        ::_exit(coordinate(std::move(listener), other.get(), rules));
    }
    ~CoordinatingProcess() {
        control_.reset();
        ::waitpid(pid_, nullptr, 0);
    }
    CoordinatingProcess(const CoordinatingProcess&) = delete;
    CoordinatingProcess& operator=(const CoordinatingProcess&) = delete;

    std::uint16_t port() const { return port_; }
    void stop_job() const { EXPECT_EQ(::write(control_.get(), "x", 1), 1); }

    Milliseconds cpu_time() const {
        std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        std::istringstream after_name(text.substr(text.rfind(')') + 2));
        std::vector<std::string> words{std::istream_iterator<std::string>(after_name), {}};
        const long ticks = std::stol(words.at(11)) + std::stol(words.at(12));
        return Milliseconds(1000 * ticks / ::sysconf(_SC_CLK_TCK));
    }
    double memory_mib(const std::string& name = "VmRSS:") const {
        std::ifstream file("/proc/" + std::to_string(pid_) + "/status");
        for (std::string word; file >> word;) {
            double kib = 0;
            if (word == name && file >> kib) return kib / 1024;
        }
        return -1;
    }

private:
    base::UniqueFd control_;
    std::uint16_t port_ = 0;
    pid_t pid_ = -1;
};

// Members without workers, in one loop.
class Members {
public:
    enum class Hosts : std::uint8_t { one_each, all_on_one };
    using Connect = std::function<base::UniqueFd(int member)>;
    Members(const Connect& connect, const MembershipRules& rules, Hosts hosts) {
        const TlsContext tls(*JobToken::parse(token));
        for (int i = 0; i < many; ++i) {
            JoinMessage join{.job = "job",
                             .size = {.host = hosts == Hosts::one_each ? "h" + std::to_string(i)
                                                                       : std::string("h"),
                                      .slots = slots},
                             .min_hosts = rules.min_hosts,
                             .max_hosts = rules.max_hosts};
            Member& member = *members_.emplace_back(std::make_unique<Member>(
                std::move(join), rules.node_timeout, JobProof{.tls = tls}));
            member.begin(connect(i), Clock::now());
            events_.add(member.fd(), EPOLLIN, static_cast<Poller::Tag>(i));
            run_for(0ms);
        }
    }

    void run_for(Milliseconds time) {
        const auto end = Clock::now() + time;
        run_until([end] { return Clock::now() >= end; }, end);
    }
    bool wait_for_rounds(int count, Milliseconds at_most) { return wait(rounds_, count, at_most); }
    bool wait_for_stops(int count, Milliseconds at_most) { return wait(stops_, count, at_most); }
    int lost() const {
        return static_cast<int>(std::ranges::count_if(
            members_, [](const auto& member) { return !member->lost().empty(); }));
    }
    int rounds() const { return rounds_; }

private:
    bool wait(const int& number, int count, Milliseconds at_most) {
        const auto end = Clock::now() + at_most;
        run_until([&] { return number >= count || Clock::now() >= end; }, end);
        return number >= count;
    }
    void run_until(const std::function<bool()>& done, Clock::time_point end) {
        do {
            for (const Poller::Tag tag : events_.wait(std::min(end, next_look_))) {
                run(*members_.at(tag));
            }
            const auto now = Clock::now();
            if (now < next_look_) continue;
            next_look_ = now + 1ms;
            for (const auto& member : members_) member->look_at_time(now);
        } while (!done());
    }
    void run(Member& member) {
        const auto now = Clock::now();
        member.run_ready();
        while (const auto order = member.take_order(now)) {
            if (const auto* round = std::get_if<RoundMessage>(&*order)) {
                ++rounds_;
                EXPECT_EQ(round->table.world_size, many * slots);
            }
            if (const auto* stop = std::get_if<StopRoundMessage>(&*order)) {
                ++stops_;
                member.drained({.round = stop->round, .end = PartEnd::failure});
            }
        }
    }

    Poller events_;
    std::vector<std::unique_ptr<Member>> members_;
    Clock::time_point next_look_{};
    int rounds_ = 0;
    int stops_ = 0;
};

struct Case {
    std::string name;
    int max_hosts;
    Members::Hosts hosts;
};
class ManyAgents : public ::testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(, ManyAgents,
                         ::testing::Values(Case{"OfAStaticJob", many, Members::Hosts::one_each},
                                           Case{"OfAnElasticJob", 2 * many,
                                                Members::Hosts::one_each},
                                           Case{"OnOneHost", many, Members::Hosts::all_on_one}),
                         [](const auto& tested) { return tested.param.name; });

// Whether so many descriptors can be had.
bool allow_descriptors(std::size_t count) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur >= count + 100;
}

TEST_P(ManyAgents, AThousandJoinRestAndStopAtLittleCost) {
    if (!allow_descriptors(many)) GTEST_SKIP() << "too few descriptors";
    const MembershipRules rules{
        .min_hosts = many, .max_hosts = GetParam().max_hosts, .last_call = 0ms};
    const CoordinatingProcess coordinator(rules);
    const auto start = Clock::now();
    const auto connect = [&](int) {
        auto connected = base::connect_tcp("127.0.0.1", coordinator.port(),
                                           base::Deadline::after(Milliseconds(60s)));
        if (!connected.fd) throw std::runtime_error(connected.trouble);
        return std::move(connected.fd);
    };
    Members members(connect, rules, GetParam().hosts);
    ASSERT_TRUE(members.wait_for_rounds(many, 60s)) << members.rounds();
    const auto joined = since(start);
    EXPECT_LE(joined, leniency * 2s);

    members.run_for(500ms);
    const auto rest = Clock::now();
    const auto before = coordinator.cpu_time();
    members.run_for(1s);
    const auto used = coordinator.cpu_time() - before;
    const double load =
        100.0 * static_cast<double>(used.count()) / static_cast<double>(since(rest).count());
    EXPECT_LE(load, leniency * 10) << "percent of a core";
    if (testing::memory_is_measured) {
        EXPECT_LE(coordinator.memory_mib(), 64);
    }
    EXPECT_EQ(members.lost(), 0);

    const auto asked = Clock::now();
    coordinator.stop_job();
    EXPECT_TRUE(members.wait_for_stops(many, 60s));
    const auto stopped = since(asked);
    EXPECT_LE(stopped, leniency * 100ms);
    std::printf(
        "joined in %d ms; at rest %.1f %% of a core, %.1f MiB (%.1f at most); stopped in %d ms\n",
        static_cast<int>(joined.count()), load, coordinator.memory_mib(),
        coordinator.memory_mib("VmHWM:"), static_cast<int>(stopped.count()));
}

// Eight on each of a thousand hosts, which one cable joins to the coordinator's.
class StoreClients {
public:
    static constexpr int count = many * slots;
    using Connect = Members::Connect;

    // Each sets a key of its own, waits for another's, and for all.
    StoreClients(const Connect& connect, Members& members) {
        using namespace store_test;
        for (int i = 0; i < count; ++i) {
            const auto key = [](int of) { return str("/" + std::to_string(of % count)); };
            clients_.push_back(connect(i / slots));
            const int fd = clients_.back().get();
            say(fd, hello + u8(1) + key(i) + str("v") + u8(6) + u64(1) + key(i + 1));
            events_.add(fd, EPOLLIN, static_cast<Poller::Tag>(i));
            if (i % slots == 0) members.run_for(0ms);
        }
    }
    // Whether all have got both answers. No BARRIER is answered before all WAITs are.
    bool wait(Members& members, Milliseconds at_most) {
        const auto end = Clock::now() + at_most;
        while (answers_ < 2 * count && refused_ == 0 && Clock::now() < end) {
            members.run_for(0ms);
            for (const Poller::Tag tag : events_.wait(Clock::now() + 1ms)) read(tag);
        }
        return answers_ == 2 * count;
    }
    int refused() const { return refused_; }
    int answers() const { return answers_; }

private:
    static void say(int fd, const std::string& bytes) {
        EXPECT_EQ(::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(bytes.size()));
    }
    // The first byte answers its WAIT, the second its BARRIER.
    void read(Poller::Tag tag) {
        using namespace store_test;
        const int fd = clients_.at(tag).get();
        char byte = 0;
        const auto got = ::recv(fd, &byte, 1, MSG_DONTWAIT);
        if (got <= 0) {
            refused_ += got < 0 && errno == EAGAIN ? 0 : 1;
        } else if (++answers_ <= count) {
            say(fd, u8(18) + str("/all") + i64(count));
        }
    }

    std::vector<base::UniqueFd> clients_;
    Poller events_;
    int answers_ = 0;
    int refused_ = 0;
};

std::vector<std::string> many_addresses() {
    std::vector<std::string> all;
    for (int i = 0; i < many; ++i) {
        std::ostringstream text;
        text << "fd88::1:" << std::hex << i + 1;
        all.push_back(text.str());
    }
    return all;
}

TEST(ManyClients, OfTheStoreAreVouchedForSoon) {
    if (!allow_descriptors(many * (slots + 1))) GTEST_SKIP() << "too few descriptors";
    const auto addresses = many_addresses();
    const bool allowed = ddp::testing::in_own_network({}, [&] {
        const store_test::OtherHost other({"fd88::1"}, addresses);
        if (!other.is_there()) ::_exit(77);
        const MembershipRules rules{.min_hosts = many, .max_hosts = many, .last_call = 0ms};
        const CoordinatingProcess coordinator(rules, base::listen_tcp_everywhere(0));
        other.go_there();
        const auto connect = [&](int host) {
            const auto from = *base::numeric_address(addresses.at(static_cast<std::size_t>(host)));
            const auto to = *base::numeric_address("fd88::1", coordinator.port());
            base::UniqueFd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
            if (::bind(fd.get(), from.generic(), from.size) != 0 ||
                ::connect(fd.get(), to.generic(), to.size) != 0) {
                throw std::runtime_error(std::string("connect: ") + std::strerror(errno));
            }
            ::fcntl(fd.get(), F_SETFL, O_NONBLOCK);
            return fd;
        };
        Members members(connect, rules, Members::Hosts::one_each);
        ASSERT_TRUE(members.wait_for_rounds(many, 60s)) << members.rounds();
        const auto start = Clock::now();
        StoreClients clients(connect, members);
        EXPECT_TRUE(clients.wait(members, leniency * 5s))
            << clients.refused() << " refused, " << clients.answers() << " answers";
        std::printf("%d clients vouched for, with set, wait and barrier, in %d ms; %.1f MiB\n",
                    StoreClients::count, static_cast<int>(since(start).count()),
                    coordinator.memory_mib("VmHWM:"));
        EXPECT_EQ(members.lost(), 0);
    });
    if (!allowed) GTEST_SKIP() << "this host allows no namespaces, or has no veth or no IPv6";
}

}  // namespace
}  // namespace ddp::launcher
