// HostWorld: its hosts are apart and reach each other, its faults are what they say, and nothing of
// it is left.
#include "support/host_world.hpp"

#include "base/deadline.hpp"
#include "base/process/process_tree.hpp"
#include "base/unique_fd.hpp"

#include <gtest/gtest.h>

#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp::testing {
namespace {

using std::chrono::milliseconds;
using Clock = base::Deadline::Clock;

constexpr milliseconds long_enough_to_be_seen{1000};

void say(const std::string& line) {
    std::puts(line.c_str());
    std::fflush(stdout);
}

// Gives back what it gets, to one client after the other.
int echo() {
    const int family = HostWorld::has_ipv6() ? AF_INET6 : AF_INET;  // the former takes both
    const base::UniqueFd listener(::socket(family, SOCK_STREAM, 0));
    sockaddr_storage any{};
    any.ss_family = static_cast<sa_family_t>(family);
    reinterpret_cast<sockaddr_in&>(any).sin_port = htons(5000);  // at the same place in both
    const int yes = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) != 0 ||
        ::listen(listener.get(), 10) != 0) {
        return 1;
    }
    say("listening");
    for (;;) {
        const base::UniqueFd client(::accept(listener.get(), nullptr, nullptr));
        std::array<char, 65536> bytes;
        for (ssize_t got = 0; (got = ::recv(client.get(), bytes.data(), bytes.size(), 0)) > 0;) {
            for (ssize_t sent = 0; sent < got;) {
                const ssize_t now = ::send(client.get(), bytes.data() + sent,
                                           static_cast<std::size_t>(got - sent), MSG_NOSIGNAL);
                if (now <= 0) break;
                sent += now;
            }
        }
    }
}

base::UniqueFd connect_to(const std::string& name) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(name.c_str(), "5000", &hints, &found) != 0) return {};
    base::UniqueFd fd(::socket(found->ai_family, SOCK_STREAM, 0));
    if (::connect(fd.get(), found->ai_addr, found->ai_addrlen) != 0) {
        std::perror("connect");
        fd.reset();
    }
    ::freeaddrinfo(found);
    return fd;
}

// Sends its stdin, and writes what comes back; at last why nothing more comes.
std::function<int()> client_of(const std::string& name) {
    return [name] {
        const base::UniqueFd server = connect_to(name);
        say(server ? "[connected]" : "[cannot connect]");
        if (!server) return 1;
        std::array<pollfd, 2> entries{{{STDIN_FILENO, POLLIN, 0}, {server.get(), POLLIN, 0}}};
        std::array<char, 65536> bytes;
        while (::poll(entries.data(), entries.size(), -1) > 0) {
            for (pollfd& entry : entries) {
                if (entry.revents == 0) continue;
                const ssize_t got = ::read(entry.fd, bytes.data(), bytes.size());
                const bool from_server = entry.fd == server.get();
                if (got <= 0 && from_server) {
                    say(got == 0 ? "[end]" : "[reset]");
                    return 0;
                }
                if (got <= 0) entry.fd = -1;
                const int to = from_server ? STDOUT_FILENO : server.get();
                if (got > 0 && ::write(to, bytes.data(), static_cast<std::size_t>(got)) != got) {
                    return 2;
                }
            }
        }
        return 3;
    };
}

// Whether the host's device comes to show that, which is the kernel's to find out in its own time.
bool eth0_shows(HostWorld& world, int host, const std::string& flag) {
    const auto deadline = base::Deadline::after(HostProgram::patience);
    while (!deadline.passed()) {
        const auto line = world.run(host, {"ip", "-o", "link", "show", "eth0"}).wait().out;
        if (line.find(flag) != std::string::npos) return true;
    }
    return false;
}

class HostWorldTest : public ::testing::Test {
protected:
    void SetUp() override {
        if (const auto reason = HostWorld::unavailable()) GTEST_SKIP() << *reason;
    }
    // Echo servers, which are there when it returns.
    HostProgram& serve(HostWorld& world, int host) {
        servers_.push_back(world.run(host, echo));
        EXPECT_TRUE(servers_.back().wait_for_output("listening")) << servers_.back().wait().err;
        return servers_.back();
    }
    // What is left of a world's processes when it went.
    static void expect_end_of(const std::vector<pid_t>& pids) {
        const auto deadline = base::Deadline::after(HostProgram::patience);
        for (const pid_t pid : pids) {
            for (auto stat = base::stat_of(pid); stat && stat->state != 'Z';
                 stat = base::stat_of(pid)) {
                ASSERT_FALSE(deadline.passed()) << pid << " " << stat->name << " is left";
                ::poll(nullptr, 0, 1);
            }
        }
    }

    std::deque<HostProgram> servers_;
};

bool comes_back(HostProgram& client, const std::string& text) {
    client.write(text + "\n");
    return client.wait_for_output(text);
}

// Nothing for as long.
void expect_silence(HostProgram& client) {
    const std::string before = client.out();
    EXPECT_EQ(client.wait(long_enough_to_be_seen).out, before);
    EXPECT_FALSE(client.ended());
}

TEST_F(HostWorldTest, EachHostHasItsNameAndKnowsAll) {
    HostWorld world(3);
    for (int host = 1; host <= 3; ++host) {
        EXPECT_EQ(world.run(host, {"uname", "-n"}).wait().out, world.name(host) + "\n");
        for (int other = 1; other <= 3; ++other) {
            const auto found = world.run(host, {"getent", "ahosts", world.name(other)}).wait().out;
            EXPECT_NE(found.find(world.address(other) + " "), std::string::npos) << found;
        }
        const auto local = world.run(host, {"getent", "ahostsv4", "localhost"}).wait().out;
        EXPECT_NE(local.find("127.0.0.1"), std::string::npos) << local;
    }
}

TEST_F(HostWorldTest, HostsReachEachOther) {
    HostWorld world(3);
    for (int host = 1; host <= 3; ++host) serve(world, host);
    for (int host = 1; host <= 3; ++host) {
        for (int other = 1; other <= 3; ++other) {
            std::vector<std::string> names{world.name(other), world.address(other)};
            if (HostWorld::has_ipv6()) {
                names.push_back(world.name_v6(other));
                names.push_back(world.address6(other));
            }
            for (const std::string& name : names) {
                HostProgram client = world.run(host, client_of(name));
                EXPECT_TRUE(comes_back(client, "hello"))
                    << host << " to " << name << ": " << client.wait().err;
            }
        }
    }
}

TEST_F(HostWorldTest, TheMachineSeesNoDeviceOfIt) {
    HostWorld world(2);
    world.delay(2, milliseconds{1});
    for (const char* name : {"br0", "v1", "v2", "d2", "p2"}) EXPECT_EQ(::if_nametoindex(name), 0U);
    const auto routes = world.run(1, {"ip", "-o", "route"}).wait().out;
    EXPECT_EQ(std::count(routes.begin(), routes.end(), '\n'), 1) << routes;  // no way out
}

TEST_F(HostWorldTest, AProgramHasTheTestsFolderAndStreams) {
    HostWorld world(1);
    HostProgram shell = world.run(1,
                                  {"sh", "-c",
                                   "read word; echo $word $MORE; pwd; echo bad >&2; "
                                   "exit 7"},
                                  {"MORE=more"});
    shell.write("given\n");
    const HostProgramResult result = shell.wait();
    std::array<char, 4096> folder{};
    ASSERT_NE(::getcwd(folder.data(), folder.size()), nullptr);
    EXPECT_EQ(result.out, std::string("given more\n") + folder.data() + "\n");
    EXPECT_EQ(result.err, "bad\n");
    EXPECT_EQ(result.exit_code, 7);
    EXPECT_EQ(world.run(1, {"no-such-program"}).wait().exit_code, 127);
    HostProgram sleeper = world.run(1, {"sleep", "1000"});
    EXPECT_EQ(sleeper.wait(milliseconds{1}).exit_code, -1);
    sleeper.signal(SIGTERM);
    EXPECT_EQ(sleeper.wait().exit_code, 128 + SIGTERM);
    HostProgram cat = world.run(1, {"cat"});
    cat.write("all of it");
    cat.close_input();
    EXPECT_EQ(cat.wait().out, "all of it");
}

TEST_F(HostWorldTest, PidsAreApart) {
    HostWorld world(2);
    HostProgram sleeper = world.run(1, {"sleep", "1000"});
    HostProgram nested = world.run(
        1, {"unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "echo started; sleep 999"});
    ASSERT_TRUE(nested.wait_for_output("started"));
    const auto pids = world.pids_on(1);
    EXPECT_NE(std::find(pids.begin(), pids.end(), sleeper.pid()), pids.end());
    const auto deadline = base::Deadline::after(HostProgram::patience);
    while (world.count_on(1, "sleep") < 2 && !deadline.passed()) ::poll(nullptr, 0, 1);
    EXPECT_EQ(world.count_on(1, "sleep"), 2) << "one of them in a namespace within";
    EXPECT_EQ(world.pids_on(2), std::vector<pid_t>{});
    const auto seen = world.run(2, {"sh", "-c", "cat /proc/[0-9]*/comm"}).wait().out;
    EXPECT_EQ(seen.find("sleep"), std::string::npos) << seen;
}

TEST_F(HostWorldTest, MemoryAndBootIdsAreApart) {
    HostWorld world(2);
    EXPECT_EQ(world.run(1, {"touch", "/dev/shm/ddp-of-h1"}).wait().exit_code, 0);
    EXPECT_NE(::access("/dev/shm/ddp-of-h1", F_OK), 0);
    std::set<std::string> ids{base::read_small_file("/proc/sys/kernel/random/boot_id")};
    for (int host = 1; host <= 2; ++host) {
        ids.insert(world.run(host, {"cat", "/proc/sys/kernel/random/boot_id"}).wait().out);
        EXPECT_EQ(world.run(host, {"ls", "/dev/shm"}).wait().out, host == 1 ? "ddp-of-h1\n" : "");
    }
    EXPECT_EQ(ids.size(), 3U);
}

TEST_F(HostWorldTest, ACutIsSilentAndMendedLosesNothingOfAConnection) {
    HostWorld world(2);
    serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    world.cut(2);
    client.write("meanwhile\n");
    expect_silence(client);
    for (int host = 1; host <= 2; ++host) {
        EXPECT_TRUE(eth0_shows(world, host, "LOWER_UP"));
    }
    world.mend(2);
    EXPECT_TRUE(client.wait_for_output("meanwhile"));
}

TEST_F(HostWorldTest, AnUnpluggedHostSeesIt) {
    HostWorld world(2);
    serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    world.unplug(2);
    EXPECT_TRUE(eth0_shows(world, 2, "NO-CARRIER"));
    EXPECT_TRUE(eth0_shows(world, 1, "LOWER_UP"));
    world.mend(2);
    EXPECT_TRUE(eth0_shows(world, 2, "LOWER_UP"));
    EXPECT_TRUE(comes_back(client, "after"));
}

TEST_F(HostWorldTest, APeerSeesTheEndOfAKilledServer) {
    HostWorld world(2);
    HostProgram& server = serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    server.signal(SIGKILL);
    EXPECT_TRUE(client.wait_for_output("[end]")) << client.out();
}

TEST_F(HostWorldTest, APeerOfAHostWithoutPowerHearsNothing) {
    HostWorld world(3);
    serve(world, 3);
    HostProgram& server = serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    HostProgram other = world.run(1, client_of("h3"));
    ASSERT_TRUE(comes_back(client, "before"));
    const auto pids = world.pids_on(2);
    EXPECT_FALSE(pids.empty());
    world.power_off(2);
    expect_end_of(pids);
    EXPECT_EQ(server.wait().exit_code, 128 + SIGKILL);
    EXPECT_FALSE(world.is_on(2));
    EXPECT_EQ(world.pids_on(2), std::vector<pid_t>{});
    EXPECT_THROW(world.run(2, {"true"}), std::runtime_error);
    expect_silence(client);
    EXPECT_TRUE(comes_back(other, "others go on"));
    world.power_on(2);
    client.write("who are you?\n");
    EXPECT_TRUE(client.wait_for_output("[reset]")) << client.out();
    serve(world, 2);
    HostProgram again = world.run(1, client_of("h2"));
    EXPECT_TRUE(comes_back(again, "again"));
}

TEST_F(HostWorldTest, AFrozenHostAnswersWhenItHasThawed) {
    HostWorld world(2);
    serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    world.freeze(2);
    for (const pid_t pid : world.pids_on(2)) EXPECT_EQ(base::stat_of(pid)->state, 'T');
    client.write("meanwhile\n");
    expect_silence(client);
    world.thaw(2);
    EXPECT_TRUE(client.wait_for_output("meanwhile"));
}

milliseconds round_trip(HostProgram& client, const std::string& text) {
    const auto start = Clock::now();
    EXPECT_TRUE(comes_back(client, text));
    return std::chrono::floor<milliseconds>(Clock::now() - start);
}

TEST_F(HostWorldTest, ADelayIsOfEachDirection) {
    HostWorld world(3);
    serve(world, 2);
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    world.delay(2, milliseconds{150});
    const milliseconds slow = round_trip(client, "slow");
    EXPECT_GE(slow, milliseconds{300});
    EXPECT_LT(slow, milliseconds{3000});
    world.delay(1, milliseconds{100});
    EXPECT_GE(round_trip(client, "slower"), milliseconds{500});
    world.delay(1, milliseconds{0});
    world.delay(2, milliseconds{20});
    EXPECT_GE(round_trip(client, "changed"), milliseconds{40});
    world.delay(2, milliseconds{0});
    milliseconds fastest{1000};
    for (int i = 0; i < 20; ++i) {
        fastest = std::min(fastest, round_trip(client, "fast" + std::to_string(i) + "."));
    }
    EXPECT_LT(fastest, milliseconds{40});
}

TEST_F(HostWorldTest, ManyBytesGoThroughADelayAsTheyWere) {
    HostWorld world(2);
    serve(world, 2);
    world.delay(2, milliseconds{5});
    std::string text;
    for (int i = 0; text.size() < 2'000'000; ++i) text += std::to_string(i) + " ";
    std::vector<std::string> names{"h2"};
    if (HostWorld::has_ipv6()) names.emplace_back("h2-v6");
    for (const std::string& name : names) {
        HostProgram client = world.run(1, client_of(name));
        client.write(text);
        EXPECT_TRUE(client.wait_for_output(text.substr(text.size() - 20)));
        EXPECT_EQ(client.out(), "[connected]\n" + text);
    }
}

TEST_F(HostWorldTest, ADelayedLinkCanBeCut) {
    HostWorld world(2);
    serve(world, 2);
    world.delay(2, milliseconds{10});
    HostProgram client = world.run(1, client_of("h2"));
    ASSERT_TRUE(comes_back(client, "before"));
    world.cut(2);
    world.delay(2, milliseconds{20});  // mends nothing
    client.write("meanwhile\n");
    expect_silence(client);
    world.mend(2);
    EXPECT_TRUE(client.wait_for_output("meanwhile"));
    world.unplug(2);
    world.mend(2);
    EXPECT_TRUE(comes_back(client, "after"));
    world.power_off(2);
    expect_silence(client);
    world.power_on(2);
    client.write("who are you?\n");
    EXPECT_TRUE(client.wait_for_output("[reset]")) << client.out();
}

TEST_F(HostWorldTest, WhatAProgramLeavesStaysUntilTheWorldGoes) {
    auto world = std::make_unique<HostWorld>(1);
    EXPECT_EQ(world->run(1, {"sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"}).wait().exit_code,
              0);
    const auto deadline = base::Deadline::after(HostProgram::patience);
    while (world->count_on(1, "sleep") == 0 && !deadline.passed()) ::poll(nullptr, 0, 1);
    const auto pids = world->pids_on(1);
    EXPECT_EQ(pids.size(), 1U);
    const HostProgram outlives = world->run(1, {"sleep", "1000"});
    world.reset();
    expect_end_of(pids);
    expect_end_of({outlives.pid()});
}

TEST_F(HostWorldTest, AKilledTestLeavesNoProcess) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t test = ::fork();
    if (test == 0) {
        HostWorld world(3);
        world.delay(2, milliseconds{1});
        HostProgram sleeper = world.run(1, {"sleep", "1000"});
        HostProgram shell = world.run(2, {"sh", "-c", "setsid sleep 1000 & sleep 1000; true"});
        HostProgram nested =
            world.run(3, {"unshare", "--pid", "--fork", "sh", "-c", "trap '' TERM HUP; sleep 999"});
        while (world.count_on(1, "sleep") + world.count_on(2, "sleep") +
                   world.count_on(3, "sleep") <
               4) {
            ::poll(nullptr, 0, 1);
        }
        world.freeze(2);
        [[maybe_unused]] const ssize_t told = ::write(ends[1], "x", 1);
        ::pause();
        ::_exit(0);
    }
    ::close(ends[1]);
    char byte = 0;
    ASSERT_EQ(::read(ends[0], &byte, 1), 1);
    ::close(ends[0]);
    std::vector<pid_t> pids;
    base::any_descendant(test, [&](pid_t pid) {
        pids.push_back(pid);
        return false;
    });
    // Three hosts, the delay and three programs, each with its process between, and the sleepers.
    EXPECT_GE(pids.size(), 14U + 4U);
    ASSERT_EQ(::kill(test, SIGKILL), 0);
    ASSERT_EQ(::waitpid(test, nullptr, 0), test);
    expect_end_of(pids);
}

TEST_F(HostWorldTest, TenWorldsAtOnceAreApart) {
    std::deque<HostWorld> worlds;
    for (int i = 0; i < 10; ++i) {
        worlds.emplace_back(2);
        serve(worlds.back(), 2);  // on one port, in all
    }
    worlds[3].cut(2);
    worlds[4].power_off(2);
    for (int i = 0; i < 10; ++i) {
        if (i == 3 || i == 4) continue;
        auto& world = worlds.at(static_cast<std::size_t>(i));
        HostProgram client = world.run(1, client_of("h2"));
        EXPECT_TRUE(comes_back(client, "hello")) << i;
    }
}

// Promised is half a second.
TEST_F(HostWorldTest, AWorldOfThreeIsThereSoon) {
    const auto start = Clock::now();
    HostWorld world(3);
    const auto time = std::chrono::ceil<milliseconds>(Clock::now() - start);
    EXPECT_LT(time, milliseconds{5000});
    RecordProperty("milliseconds", static_cast<int>(time.count()));
}

TEST_F(HostWorldTest, AHostRunsAJob) {
    HostWorld world(1);
    HostProgram job = world.run(1, {DDP_LAUNCH_PATH, "--nproc_per_node=2", "sh", "-c",
                                    "echo rank $RANK of $WORLD_SIZE on $(uname -n)"});
    const HostProgramResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    for (const char* text : {"rank 0 of 2 on h1", "rank 1 of 2 on h1"}) {
        EXPECT_NE(result.out.find(text), std::string::npos) << result.out << result.err;
    }
    EXPECT_EQ(world.pids_on(1), std::vector<pid_t>{});
}

}  // namespace
}  // namespace ddp::testing
