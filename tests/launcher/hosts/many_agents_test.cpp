// The real coordinator behind the store's real server, in a process of its own, and a thousand
// agents' members in the test's: what the coordinator costs, and how soon all hear of it.
#include "base/net/socket.hpp"
#include "base/unique_fd.hpp"
#include "launcher/hosts/coordinator.hpp"
#include "launcher/hosts/member.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/process/poller.hpp"
#include "store/server/store_server.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
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

constexpr int many = 1000;
constexpr int slots = 8;
// A test allows ten times what is promised, for busy hosts and sanitizers.
constexpr int leniency = 10;

Milliseconds since(Clock::time_point start) {
    return std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
}

// The agent that coordinates, but without workers: each byte of `control` asks for the end of the
// job. Ends with `control`.
int coordinate(base::UniqueFd listener, int control, const MembershipRules& rules) {
    Poller events;
    std::optional<store::StoreServer> store;
    Coordinator coordinator(
        rules, {.name = "job", .run_id = "job", .run = "run"},
        [&](const RoundMessage& round) {
            store->start_attempt(round.round, round.table.world_size);
            std::vector<std::string> addresses;
            for (const HostRanks& host : round.table.hosts) addresses.push_back(host.address);
            store->serve_hosts(addresses);
        },
        Clock::now());
    std::vector<std::pair<base::UniqueFd, std::string>> arrived;
    store::StoreServerOptions options;
    options.take_agent = [&](base::UniqueFd connection, std::string received) {
        arrived.emplace_back(std::move(connection), std::move(received));
    };
    std::vector<base::UniqueFd> listeners;
    listeners.push_back(std::move(listener));
    store.emplace(std::move(listeners), std::move(options));
    events.add(store->fd(), EPOLLIN, 0);
    events.add(coordinator.fd(), EPOLLIN, 1);
    events.add(control, EPOLLIN, 2);
    for (;;) {
        for (const Poller::Tag tag : events.wait(coordinator.next())) {
            char byte = 0;
            if (tag == 0) store->run_ready();
            if (tag != 2) continue;
            if (::read(control, &byte, 1) != 1) return 0;
            coordinator.stop(SIGTERM, Clock::now());
        }
        const auto now = Clock::now();
        for (auto& [connection, received] : std::exchange(arrived, {})) {
            coordinator.take(std::move(connection), received, now);
        }
        coordinator.run_ready(now);
        coordinator.look_at_time(now);
    }
}

class CoordinatingProcess {
public:
    explicit CoordinatingProcess(const MembershipRules& rules) {
        std::array<int, 2> ends{};
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) std::abort();
        control_.reset(ends[0]);
        base::UniqueFd other(ends[1]);
        base::UniqueFd listener = base::listen_tcp("127.0.0.1", 0);
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
    Members(std::uint16_t port, const MembershipRules& rules, Hosts hosts) {
        for (int i = 0; i < many; ++i) {
            JoinMessage join{.job = "job",
                             .size = {.host = hosts == Hosts::one_each ? "h" + std::to_string(i)
                                                                       : std::string("h"),
                                      .slots = slots},
                             .min_hosts = rules.min_hosts,
                             .max_hosts = rules.max_hosts};
            auto connected =
                base::connect_tcp("127.0.0.1", port, base::Deadline::after(Milliseconds(60s)));
            if (!connected.fd) throw std::runtime_error(connected.trouble);
            Member& member = *members_.emplace_back(
                std::make_unique<Member>(std::move(join), rules.node_timeout));
            member.begin(std::move(connected.fd), Clock::now());
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

TEST_P(ManyAgents, AThousandJoinRestAndStopAtLittleCost) {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_cur < many + 100) GTEST_SKIP() << "too few descriptors";

    const MembershipRules rules{
        .min_hosts = many, .max_hosts = GetParam().max_hosts, .last_call = 0ms};
    const CoordinatingProcess coordinator(rules);
    const auto start = Clock::now();
    Members members(coordinator.port(), rules, GetParam().hosts);
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

}  // namespace
}  // namespace ddp::launcher
