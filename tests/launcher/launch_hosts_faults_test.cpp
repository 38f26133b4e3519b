// Jobs of several hosts to which harm is done, by seed: launchers killed, cables cut, hosts stopped,
// powered off and started again. Small counts for each change; large ones, which also hold the times
// that are promised, as tests named Soak.
#include "base/frame.hpp"
#include "base/net/address.hpp"
#include "base/net/socket.hpp"
#include "launcher/hosts/messages/hello.hpp"
#include "launcher/hosts/messages/messages.hpp"
#include "launcher/hosts_fixture.hpp"
#include "support/seed.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <poll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // hosts_fixture.hpp
using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

constexpr auto npos = std::string::npos;
constexpr int lost_host = 84;  // the launcher's exit code
constexpr int all_hosts = 3;
constexpr Milliseconds node_timeout{2000};
constexpr std::uint16_t hosts_port = 29500;
constexpr std::uint16_t other_port = 29600;

Milliseconds since(Clock::time_point start) {
    return std::chrono::duration_cast<Milliseconds>(Clock::now() - start);
}

// How long something took, each time: a test allows ten times what is promised, a soak test has
// nine of ten within it.
class Times {
public:
    Times(std::string what, Milliseconds promised) : what_(std::move(what)), promised_(promised) {}
    ~Times() {
        if (times_.empty()) return;
        std::ranges::sort(times_);
        const auto at = [&](int percent) {
            return static_cast<int>(
                times_[(times_.size() - 1) * static_cast<std::size_t>(percent) / 100].count());
        };
        std::printf(
            "%s: %zu times; median %d ms, 90 %% within %d ms, at most %d ms; promised %d ms\n",
            what_.c_str(), times_.size(), at(50), at(90), at(100),
            static_cast<int>(promised_.count()));
        EXPECT_LE(at(100), 10 * promised_.count()) << what_;
        if (times_.size() >= 50) {
            EXPECT_LE(at(90), promised_.count()) << what_;
        }
    }
    Times(const Times&) = delete;
    Times& operator=(const Times&) = delete;
    void add(Milliseconds time) { times_.push_back(time); }

private:
    std::string what_;
    Milliseconds promised_;
    std::vector<Milliseconds> times_;
};

// Polls. Whether it came true, and when, is added.
bool wait_for(const std::function<bool()>& condition, Times& times, Clock::time_point start,
              Milliseconds at_most = 30s) {
    while (!condition()) {
        if (since(start) > at_most) return false;
        std::this_thread::sleep_for(5ms);
    }
    times.add(since(start));
    return true;
}

class LaunchHostsFaults : public HostsTest {
protected:
    void SetUp() override {
        HostsTest::SetUp();
        random_.seed(ddp::store_test::random_seed());
    }

    int below(int number) { return static_cast<int>(random_() % static_cast<unsigned>(number)); }
    void sleep_up_to(Milliseconds most) {
        std::this_thread::sleep_for(Milliseconds(below(static_cast<int>(most.count()) + 1)));
    }

    HostProgram launch_static(HostWorld& world, int host, const Words& command,
                              const Words& more = {}, Words before = {}) {
        return HostsTest::launch_static(world, host, 2, command, more,
                                        {.before = std::move(before)});
    }
    static bool is_empty(const HostWorld& world, int host) { return world.pids_on(host).empty(); }
    static bool has_no_workers(const HostWorld& world, int host) {
        return std::ranges::all_of(world.pids_on(host), [](pid_t pid) {
            const std::string name = comm_of(pid);
            return name.empty() || name.starts_with("ddp-");
        });
    }

    enum class Victim : std::uint8_t { agent, front, both };
    void kill_launchers(std::vector<Victim> victims, int count);
    enum class Harm : std::uint8_t { cut, power_off, half_open };
    void cut_off(Harm harm, int count);
    void disturb(std::chrono::seconds time, int load_of_a_core);
    void lose_coordinators(Harm harm, int count);
    void find_root_causes(Milliseconds delay, int count);
    void come_and_go(int count);
    // Strangers come, and the last host: when the coordinator has taken them in, at once behind
    // them, or in their midst.
    enum class When : std::uint8_t { they_are_there, they_have_just_come, they_come };
    Clock::duration gather_among(int strangers, When start_last, std::uint16_t port = hosts_port);

    std::mt19937 random_;
};

// A launcher is killed --------------------------------------------------------------------------

// While the hosts gather, at work, while workers are stopped, and around the pause before another
// round.
void LaunchHostsFaults::kill_launchers(std::vector<Victim> victims, int count) {
    struct Phase {
        const char* name;
        const char* worker;
        Milliseconds until_kill;
        bool waits_for_workers;
    };
    const std::vector<Phase> phases{
        {"joining", "echo up; exec sleep 60", 300ms, false},
        {"running", "echo up; exec sleep 60", 300ms, true},
        {"stopping",
         "echo up; trap 'sleep 0.3; exit 1' TERM; [ $RANK = 3 ] && { sleep 0.2; exit 7; }; "
         "for i in $(seq 600); do sleep 0.1; done",
         900ms, true},
        {"between rounds", "echo up; [ $RANK = 0 ] && exit 7; exec sleep 60", 1500ms, true}};
    HostWorld world(all_hosts);
    Times there("all gone on its host", 1s);
    Times elsewhere("all gone elsewhere", node_timeout + 1s);
    int late = 0;
    for (int i = 0; i < count; ++i) {
        const Phase& phase = phases[static_cast<std::size_t>(i) % phases.size()];
        const Victim victim = victims[static_cast<std::size_t>(i) % victims.size()];
        const int host = 1 + below(all_hosts);
        const bool restarts = std::string(phase.name) == "between rounds";
        const Words options{"--node-timeout=2", "--rdzv-conf=timeout=2",
                            restarts ? "--max-restarts=100" : "--max-restarts=0"};
        std::vector<HostProgram> launchers = launch_all(world, bash(phase.worker), options);
        if (phase.waits_for_workers) {
            for (HostProgram& one : launchers)
                ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
        }
        sleep_up_to(phase.until_kill);
        const auto dies = [&](pid_t pid) {
            const std::string name = comm_of(pid);
            return (name == "ddp-agent" && victim != Victim::front) ||
                   (name == "ddp-launch" && victim != Victim::agent);
        };
        std::vector<pid_t> dying;
        HostProgram& harmed = launchers[static_cast<std::size_t>(host - 1)];
        for (; dying.empty() && !harmed.ended(); harmed.wait(1ms)) {  // it may be being started
            for (const pid_t pid : world.pids_on(host)) {
                if (dies(pid)) dying.push_back(pid);
            }
        }
        const std::string about = std::string(phase.name) + ", host " + std::to_string(host);
        if (dying.empty()) {  // the job has ended by itself, too early for this
            ASSERT_LT(++late, 5 + count) << about << ": " << harmed.err();
            for (HostProgram& one : launchers) ASSERT_GE(one.wait(10s).exit_code, 0) << about;
            --i;
            continue;
        }
        kill_at_once(dying);
        const auto killed = Clock::now();
        EXPECT_TRUE(wait_for([&] { return is_empty(world, host); }, there, killed)) << about;
        for (int other = 1; other <= all_hosts; ++other) {
            if (other == host) continue;
            HostProgram& one = launchers[static_cast<std::size_t>(other - 1)];
            const int code = one.wait(10s).exit_code;
            const bool gathers = code == 1 && (one.err().find("hosts came within") != npos ||
                                               one.err().find("no coordinator at") != npos);
            EXPECT_TRUE(code == lost_host || code == 7 || gathers)
                << about << ", exit code " << code << ": " << one.err();
            EXPECT_TRUE(is_empty(world, other)) << about;
            // Who gathers does so for a while more.
            if (!gathers) elsewhere.add(since(killed));
        }
        if (HasFailure()) return;
    }
}

TEST_F(LaunchHostsFaults, AKilledLauncherLeavesNothing) {
    kill_launchers({Victim::agent, Victim::front, Victim::both}, 5);
}
TEST_F(LaunchHostsFaults, SoakKilledAgents) { kill_launchers({Victim::agent}, 200); }
TEST_F(LaunchHostsFaults, SoakKilledFronts) { kill_launchers({Victim::front}, 200); }
TEST_F(LaunchHostsFaults, SoakKilledLaunchers) { kill_launchers({Victim::both}, 200); }

// A host is cut off -----------------------------------------------------------------------------

void LaunchHostsFaults::cut_off(Harm harm, int count) {
    HostWorld world(all_hosts);
    Times named("named", 1s);
    Times stopped("all stopped", node_timeout + 1s);
    for (int i = 0; i < count; ++i) {
        const int host = 1 + below(all_hosts);
        std::vector<HostProgram> launchers =
            launch_all(world, bash("echo up; exec sleep 60"), {"--node-timeout=2"});
        for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
        sleep_up_to(300ms);
        const auto harmed = Clock::now();
        auto stopping = harmed;
        if (harm == Harm::power_off) {
            world.power_off(host);
        } else {
            world.cut(host);
        }
        const std::string ranks = std::to_string(2 * host - 2) + "-" + std::to_string(2 * host - 1);
        const std::string name = host == 1 ? "no answer from the coordinator at h1:29500"
                                           : "no answer from " + HostWorld::name(host) + " (" +
                                                 HostWorld::address(host) + "), ranks " + ranks;
        for (int other = 1; other <= all_hosts; ++other) {
            if (other == host) continue;
            HostProgram& one = launchers[static_cast<std::size_t>(other - 1)];
            EXPECT_TRUE(one.wait_for_error(name)) << one.err();
            named.add(since(harmed));
        }
        if (harm == Harm::half_open) {
            for (const pid_t pid : world.pids_on(host)) {
                if (comm_of(pid).starts_with("ddp-")) ::kill(pid, SIGKILL);
            }
            sleep_up_to(500ms);
            world.mend(host);
            stopping = Clock::now();  // beats that come only now count
        }
        for (int one = 1; one <= all_hosts; ++one) {
            EXPECT_TRUE(wait_for([&] { return is_empty(world, one); }, stopped, stopping))
                << launchers[static_cast<std::size_t>(one - 1)].err();
        }
        for (int other = 1; other <= all_hosts; ++other) {
            HostProgram& one = launchers[static_cast<std::size_t>(other - 1)];
            if (other == host && harm != Harm::cut) continue;
            EXPECT_EQ(one.wait(10s).exit_code, lost_host) << one.err();
        }
        if (harm == Harm::cut) world.mend(host);
        if (harm == Harm::power_off) world.power_on(host);
        if (HasFailure()) return;
    }
}

TEST_F(LaunchHostsFaults, AHostThatIsCutOffIsNamedAndLost) { cut_off(Harm::cut, 2); }
TEST_F(LaunchHostsFaults, AHostWithoutPowerIsNamedAndLost) { cut_off(Harm::power_off, 2); }
TEST_F(LaunchHostsFaults, AConnectionThatIsHalfOpenIsNamedAndLost) { cut_off(Harm::half_open, 2); }
TEST_F(LaunchHostsFaults, SoakCutCables) { cut_off(Harm::cut, 100); }
TEST_F(LaunchHostsFaults, SoakPowerFailures) { cut_off(Harm::power_off, 100); }
TEST_F(LaunchHostsFaults, SoakHalfOpenConnections) { cut_off(Harm::half_open, 100); }

// The coordinator's host is lost -----------------------------------------------------------------

// The numbers of the checkpoints that are committed in a folder, in the order in which they are.
class Commits {
public:
    explicit Commits(const std::string& folder)
        : inotify_(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {
        std::filesystem::create_directory(folder);
        EXPECT_GE(::inotify_add_watch(inotify_.get(), folder.c_str(), IN_CREATE | IN_MOVED_TO), 0);
    }
    // In the order in which they came.
    std::vector<int> take() {
        std::vector<int> numbers;
        alignas(inotify_event) std::array<char, 64 * 1024> buffer;
        for (ssize_t got = 0; (got = ::read(inotify_.get(), buffer.data(), buffer.size())) > 0;) {
            for (const char* at = buffer.data(); at < buffer.data() + got;) {
                inotify_event event{};
                std::memcpy(&event, at, sizeof event);
                int number = 0;
                int length = 0;
                const char* const name = at + sizeof event;
                std::sscanf(name, "checkpoint-%d.manifest%n", &number, &length);
                if ((event.mask & IN_MOVED_TO) != 0 && length > 0 && name[length] == '\0') {
                    numbers.push_back(number);
                }
                if (number > 0) begun_.insert(number);
                at += sizeof event + event.len;
            }
        }
        return numbers;
    }
    // Those of which a file came; after take().
    const std::set<int>& begun() const { return begun_; }

private:
    base::UniqueFd inotify_;
    std::set<int> begun_;
};

// At any moment of a training that saves its state: the weights at the end are those of a run that
// nobody disturbed, and each checkpoint is the successor of the last, so that none of an older round
// came after one of a newer; but for one that the loss met while it was saved, whose number is not
// used again. Four ranks on three hosts, and then two.
void LaunchHostsFaults::lose_coordinators(Harm harm, int count) {
    HostWorld world(all_hosts);
    HostProgram quiet = launch(world, 1, {"--nproc-per-node=4"}, {DDP_SURVIVE_A_CRASH});
    const auto began = Clock::now();
    ASSERT_EQ(quiet.wait().exit_code, 0) << quiet.err();
    const auto lasts = since(began);
    int taken_over = 0;
    Times pause("from the loss to the round without it", 6s);
    for (int i = 0; i < count; ++i) {
        const std::string checkpoints = files_.path() + "/run" + std::to_string(i);
        Commits commits(checkpoints);
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= all_hosts; ++host) {
            const Words options{"--nnodes=2:3", "--rdzv-backend=c10d",
                                "--rdzv-endpoint=h1:29400,h2:29400,h3:29400", "--node-timeout=2",
                                host == 1 ? "--nproc-per-node=2" : "--nproc-per-node=1"};
            launchers.push_back(launch(world, host, options, {DDP_SURVIVE_A_CRASH, checkpoints}));
        }
        ASSERT_TRUE(launchers[0].wait_for_error("begins at epoch 0")) << launchers[0].err();
        sleep_up_to(lasts);
        harm == Harm::cut ? world.cut(1) : world.power_off(1);
        const auto lost = Clock::now();
        const bool is_over = launchers[1].wait(0ms).exit_code == 0;
        if (!is_over && launchers[1].wait_for_error("begins at epoch")) pause.add(since(lost));
        for (const int host : {2, 3}) {
            HostProgram& one = launchers[static_cast<std::size_t>(host - 1)];
            EXPECT_EQ(one.wait().exit_code, 0) << one.err();
            EXPECT_EQ(weights_in(one.out()), weights_in(quiet.out())) << one.err();
        }
        EXPECT_TRUE(harm != Harm::cut || launchers[0].wait().exit_code >= 0);
        const std::vector<int> numbers = commits.take();
        EXPECT_GT(numbers.size(), 10U);
        int cut_short = 0;
        for (std::size_t at = 1; at < numbers.size(); ++at) {
            const int expected = numbers[at - 1] + 1;
            const bool skips = numbers[at] == expected + 1 && commits.begun().contains(expected);
            cut_short += skips ? 1 : 0;
            EXPECT_EQ(numbers[at], skips ? expected + 1 : expected) << launchers[1].err();
        }
        EXPECT_LE(cut_short, 1);
        taken_over += launchers[1].err().find("takes over") != npos ? 1 : 0;
        harm == Harm::cut ? world.mend(1) : world.power_on(1);
        if (HasFailure()) return;
    }
    std::printf("%d of %d coordinators were succeeded\n", taken_over, count);
    EXPECT_GE(2 * taken_over, count) << "the others were lost too late";
}

TEST_F(LaunchHostsFaults, TheWeightsAreTheSameWithoutTheCoordinator) {
    lose_coordinators(Harm::power_off, 2);
}
TEST_F(LaunchHostsFaults, NoCheckpointOfAnOlderRoundComesAfterOneOfANewer) {
    lose_coordinators(Harm::cut, 2);
}
TEST_F(LaunchHostsFaults, SoakLostCoordinators) { lose_coordinators(Harm::power_off, 50); }
TEST_F(LaunchHostsFaults, SoakFencing) { lose_coordinators(Harm::cut, 100); }

// Nobody is lost --------------------------------------------------------------------------------

// Stopped agents, short cuts, and cores with so many times the load that they can carry.
void LaunchHostsFaults::disturb(std::chrono::seconds time, int load_of_a_core) {
    HostWorld world(all_hosts);
    HostProgram load =
        world.run(1, bash("for i in $(seq $((" + std::to_string(load_of_a_core) +
                          " * $(nproc)))); do while :; do :; done & done; echo busy; wait"));
    ASSERT_TRUE(load.wait_for_output("busy"));
    std::vector<HostProgram> launchers =
        launch_all(world, bash("echo up; exec sleep " + std::to_string(time.count())));
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
    const auto start = Clock::now();
    while (since(start) < time - 4s) {
        const int host = 1 + below(all_hosts);
        if (below(2) == 0) {
            const std::vector<pid_t> pids = world.pids_on(host);
            for (const pid_t pid : pids) {
                if (comm_of(pid).starts_with("ddp-")) ::kill(pid, SIGSTOP);
            }
            std::this_thread::sleep_for(3s);
            for (const pid_t pid : pids) {
                if (comm_of(pid).starts_with("ddp-")) ::kill(pid, SIGCONT);
            }
        } else {
            world.cut(host);
            std::this_thread::sleep_for(500ms);
            world.mend(host);
        }
        std::this_thread::sleep_for(1s);
    }
    for (HostProgram& one : launchers) {
        EXPECT_EQ(one.wait(60s).exit_code, 0) << one.err();
        EXPECT_THAT(one.err(), Not(HasSubstr("lost h"))) << one.err();
    }
}

TEST_F(LaunchHostsFaults, NobodyIsLostByShortStopsCutsAndLoad) { disturb(20s, 4); }
TEST_F(LaunchHostsFaults, SoakNobodyIsLost) { disturb(60min, 8); }

// Whose fault -----------------------------------------------------------------------------------

// A worker in Python: all hold a connection to one rank, which fails; the others fail a moment after
// they notice, so that only the order of all ends tells who was first.
const char* const linked_workers = R"(
import os, socket, sys, time
rank, size, first, after = int(os.environ['RANK']), int(os.environ['WORLD_SIZE']), int(sys.argv[1]), float(sys.argv[2])
if rank == first:
    server = socket.create_server(('', 6000))
    others = [server.accept()[0] for _ in range(size - 1)]
    print('up', flush=True)
    time.sleep(after)
    os._exit(7)
while True:
    try:
        link = socket.create_connection(('10.77.0.%d' % (1 + first // 2), 6000))
        break
    except OSError:
        time.sleep(0.05)
try:
    link.recv(1)
except OSError:
    pass
time.sleep(0.001)
os._exit(1)
)";

// Its steady clock shows as many thousand seconds more as the host has as its number. Where the kernel
// has no such namespaces: what all show.
Words with_own_clock(int host) {
    static const bool is_there = std::system("unshare --time --fork true 2>/dev/null") == 0;
    if (!is_there) return {};
    return {"unshare", "--time",      "--monotonic", std::to_string(1000 * host),
            "--fork",  "--kill-child"};
}

void LaunchHostsFaults::find_root_causes(Milliseconds delay, int count) {
    HostWorld world(all_hosts);
    for (int host = 1; host <= all_hosts; ++host) world.delay(host, delay);
    int misjudged = 0;
    for (int i = 0; i < count; ++i) {
        const int first = below(2 * all_hosts);
        const std::string after = std::to_string(0.001 * below(700));
        std::vector<HostProgram> launchers;
        for (int host = 1; host <= all_hosts; ++host) {
            launchers.push_back(launch_static(
                world, host, {"python3", "-c", linked_workers, std::to_string(first), after}, {},
                with_own_clock(host)));
        }
        const std::string headline = "rank " + std::to_string(first) + " (local rank " +
                                     std::to_string(first % 2) + ", pid ";
        bool is_right = true;
        for (HostProgram& one : launchers) {
            const int code = one.wait(60s).exit_code;
            is_right = is_right && code == 7 && one.err().find(headline) != std::string::npos;
        }
        if (!is_right) {
            ++misjudged;
            std::printf("rank %d after %s s:\n%s\n", first, after.c_str(),
                        launchers.front().err().c_str());
        }
        for (int host = 1; host <= all_hosts; ++host) EXPECT_TRUE(is_empty(world, host));
    }
    EXPECT_EQ(misjudged, 0) << "of " << count;
}

TEST_F(LaunchHostsFaults, TheRankThatFailedFirstIsNamedOverSlowLinks) { find_root_causes(25ms, 5); }
TEST_F(LaunchHostsFaults, SoakRootCausesOverSlowLinks) { find_root_causes(25ms, 200); }
TEST_F(LaunchHostsFaults, SoakRootCausesOverFastLinks) { find_root_causes(0ms, 200); }

// Comings and goings ----------------------------------------------------------------------------

// Host 1 stays; the others come and go, one change after the other. A host that was lost once goes
// by itself from then on: the second time it would have to wait.
void LaunchHostsFaults::come_and_go(int count) {
    const Words options{"--nnodes=1:3",
                        "--rdzv-backend=c10d",
                        "--rdzv-endpoint=h1:29400",
                        "--rdzv-conf=last_call_timeout=0.3",
                        "--node-timeout=2",
                        "--nproc-per-node=2"};
    const Words worker = bash(
        "echo round $DDP_ROUND: $RANK of $WORLD_SIZE, host $GROUP_RANK, restarts "
        "$TORCHELASTIC_RESTART_COUNT.; exec sleep 600");
    Times growth("from a host's start to the round with it", 2s + 300ms);
    Times shrinking("from a host's leave to the round without it", 2s);
    Times loss("from a host's loss to the round without it", 2s + node_timeout + 540ms);
    for (int i = 0; i < count; ++i) {
        HostWorld world(all_hosts);
        std::vector<std::optional<HostProgram>> launchers(all_hosts + 1);
        std::vector<int> table{1};
        std::vector<bool> was_lost(all_hosts + 1);
        int round = 1;
        launchers[1].emplace(launch(world, 1, options, worker));
        // Of all of the table, in its order.
        const auto runs_round = [&](Clock::time_point start, Times* times) {
            for (std::size_t place = 0; place < table.size(); ++place) {
                HostProgram& one = *launchers[static_cast<std::size_t>(table[place])];
                for (int local = 0; local < 2; ++local) {
                    std::ostringstream line;
                    line << "round " << round << ": " << 2 * place + static_cast<std::size_t>(local)
                         << " of " << 2 * table.size() << ", host " << place << ", restarts 0.";
                    if (!one.wait_for_output(line.str())) {
                        ADD_FAILURE() << "no " << line.str() << " on h" << table[place] << ":\n"
                                      << one.out() << one.err();
                        return false;
                    }
                }
            }
            if (times != nullptr) times->add(since(start));
            return true;
        };
        if (!runs_round(Clock::now(), nullptr)) return;
        for (int change = 0; change < 6; ++change) {
            const int host = 2 + below(all_hosts - 1);
            auto& launcher = launchers[static_cast<std::size_t>(host)];
            ++round;
            auto start = Clock::now();
            if (!launcher) {
                if (!world.is_on(host)) world.power_on(host);
                start = Clock::now();
                launcher.emplace(launch(world, host, options, worker));
                table.push_back(host);
                if (!runs_round(start, &growth)) return;
                continue;
            }
            std::erase(table, host);
            const int way = was_lost[static_cast<std::size_t>(host)] ? 0 : below(3);
            was_lost[static_cast<std::size_t>(host)] = way != 0;
            if (way == 0) {
                launcher->signal(SIGTERM);
                EXPECT_EQ(launcher->wait().exit_code, 128 + SIGTERM) << launcher->err();
            } else if (way == 1) {
                for (const pid_t pid : world.pids_on(host)) {
                    if (comm_of(pid).starts_with("ddp-")) ::kill(pid, SIGKILL);
                }
                launcher->wait();
            } else {
                world.power_off(host);
            }
            launcher.reset();
            if (!runs_round(start, way == 0 ? &shrinking : &loss)) return;
        }
        launchers[1]->signal(SIGTERM);
        for (const int host : table) {
            HostProgram& one = *launchers[static_cast<std::size_t>(host)];
            EXPECT_EQ(one.wait().exit_code, 128 + SIGTERM) << one.err();
        }
        if (HasFailure()) return;
    }
}

TEST_F(LaunchHostsFaults, HostsComeAndGo) { come_and_go(2); }
TEST_F(LaunchHostsFaults, SoakHostsComeAndGo) { come_and_go(50); }

// Strangers -------------------------------------------------------------------------------------

// Bytes that come to the port of the hosts: not an agent's, half of a frame, the join of another
// host's agent once more, none at all, and a join of which a byte comes now and then.
std::vector<std::string> hostile_bytes() {
    JoinMessage join{.job = "", .size = {.host = "h2", .slots = 2, .node_rank = 1}};
    join.min_hosts = join.max_hosts = all_hosts;
    std::string whole = encode_hello();
    base::append_frame(whole, encode(FromMember(join)));
    const std::string half = whole.substr(0, whole.size() / 2);
    return {"\xdd garbage, and more of it than a hello has", half, whole, "", "\xdd"};
}

enum class Pace : std::uint8_t { as_fast_as_they_can, five_a_millisecond };

int be_hostile(int count, Pace pace, std::uint16_t port) {
    const auto bytes = hostile_bytes();
    std::vector<base::UniqueFd> links;
    const auto address = base::resolve(HostWorld::address(1), port).addresses;
    const auto begin = Clock::now();
    for (int i = 0; i < count; ++i) {
        if (pace == Pace::five_a_millisecond) {
            std::this_thread::sleep_until(begin + Milliseconds(i / 5));
        }
        if (i == count / 2) {
            std::puts("half there");
            std::fflush(stdout);
        }
        auto connected = base::connect_tcp(address, base::Deadline::after(Milliseconds(30s)));
        if (!connected.fd) {
            std::fprintf(stderr, "connection %d: %s\n", i, connected.trouble.c_str());
            return 1;
        }
        const std::string& said = bytes[static_cast<std::size_t>(i) % bytes.size()];
        ::send(connected.fd.get(), said.data(), said.size(), MSG_NOSIGNAL);
        links.push_back(std::move(connected.fd));
    }
    std::puts("all there");
    std::fflush(stdout);
    const std::string& join = bytes[2];
    for (std::size_t at = 1;; ++at) {
        std::this_thread::sleep_for(1s);
        for (std::size_t i = 4; i < links.size(); i += 5) {
            ::send(links[i].get(), &join[at % join.size()], 1, MSG_NOSIGNAL);
        }
    }
}

// Takes connections in and reads nothing: what strangers cost the machine, and not the job.
int take_connections() {
    const base::UniqueFd listener = base::listen_tcp(HostWorld::address(1), other_port);
    std::puts("listens");
    std::fflush(stdout);
    std::vector<base::UniqueFd> taken;
    for (;;) {
        pollfd event{listener.get(), POLLIN, 0};
        ::poll(&event, 1, -1);
        base::UniqueFd one(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (one) taken.push_back(std::move(one));
    }
}

double agent_mib(const HostWorld& world, int host) {
    for (const pid_t pid : world.pids_on(host)) {
        if (comm_of(pid) != "ddp-agent") continue;
        std::ifstream file("/proc/" + std::to_string(pid) + "/status");
        for (std::string word; file >> word;) {
            double kib = 0;
            if (word == "VmRSS:" && file >> kib) return kib / 1024;
        }
    }
    return -1;
}

// From the start of the last host to its workers'.
Clock::duration LaunchHostsFaults::gather_among(int strangers, When start_last,
                                                std::uint16_t port) {
    HostWorld world(all_hosts);
    std::vector<HostProgram> launchers;
    const auto start_on = [&](int host) {
        launchers.push_back(
            launch_static(world, host, bash("echo up $RANK of $WORLD_SIZE; sleep 2")));
    };
    start_on(1);
    start_on(2);
    std::this_thread::sleep_for(500ms);  // both are there
    const double before = agent_mib(world, 1);
    std::optional<HostProgram> other, hostile;
    if (port == other_port) {
        other.emplace(world.run(1, take_connections));
        EXPECT_TRUE(other->wait_for_output("listens"));
    }
    const auto wait_for_strangers = [&](const char* how_many) {
        if (!hostile) return;
        EXPECT_TRUE(hostile->wait_for_output(how_many)) << hostile->err();
    };
    const Pace pace =
        start_last == When::they_come ? Pace::five_a_millisecond : Pace::as_fast_as_they_can;
    if (strangers > 0)
        hostile.emplace(world.run(3, [=] { return be_hostile(strangers, pace, port); }));
    wait_for_strangers(start_last == When::they_come ? "half there" : "all there");
    // The kernel takes connections in before the coordinator does.
    if (start_last == When::they_are_there) std::this_thread::sleep_for(300ms);
    const auto start = Clock::now();
    start_on(3);
    for (HostProgram& one : launchers) EXPECT_TRUE(one.wait_for_output("of 6", 2)) << one.err();
    const auto took = Clock::now() - start;
    wait_for_strangers("all there");
    const double more = agent_mib(world, 1) - before;
    if (testing::memory_is_measured) {
        EXPECT_LE(more, 16) << "MiB for " << strangers;
    }
    for (HostProgram& one : launchers) {
        EXPECT_EQ(one.wait().exit_code, 0) << one.err();
        EXPECT_THAT(one.err(), Not(HasSubstr("lost h")));
    }
    return took;
}

void allow_many_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST_F(LaunchHostsFaults, StrangersDoNotDisturbAJobThatGathers) {
    allow_many_descriptors();
    const auto alone = gather_among(0, When::they_are_there);
    for (const When when : {When::they_are_there, When::they_have_just_come, When::they_come}) {
        EXPECT_LE(gather_among(500, when), 10 * alone);
    }
}

// Beside each: what the same strangers cost at a port where nobody does anything with them. Those
// that come meanwhile take the machine's time there, too.
TEST_F(LaunchHostsFaults, SoakTenThousandStrangers) {
    allow_many_descriptors();
    const std::array<std::pair<When, const char*>, 3> moments{
        {{When::they_are_there, "are there"},
         {When::they_have_just_come, "have just come, all at once"},
         {When::they_come, "come, five a millisecond"}}};
    std::vector<Clock::duration> alone;
    std::array<std::vector<Clock::duration>, moments.size()> among, elsewhere;
    for (int i = 0; i < 11; ++i) {
        alone.push_back(gather_among(0, When::they_are_there));
        for (std::size_t at = 0; at < moments.size(); ++at) {
            among[at].push_back(gather_among(10'000, moments[at].first));
            elsewhere[at].push_back(gather_among(10'000, moments[at].first, other_port));
        }
    }
    const auto median = [](std::vector<Clock::duration>& times) {
        std::ranges::sort(times);
        return std::chrono::duration<double, std::milli>(times[times.size() / 2]).count();
    };
    const double undisturbed = median(alone);
    std::printf("gathered in %.1f ms\n", undisturbed);
    for (std::size_t at = 0; at < moments.size(); ++at) {
        const double took = median(among[at]);
        const double at_another_port = median(elsewhere[at]);
        std::printf("strangers %s: %.1f ms; at another port: %.1f ms\n", moments[at].second, took,
                    at_another_port);
        const bool they_come = moments[at].first == When::they_come;
        EXPECT_LE(took, 1.1 * (they_come ? at_another_port : undisturbed)) << moments[at].second;
    }
}

// One by one ------------------------------------------------------------------------------------

TEST_F(LaunchHostsFaults, AHostThatStartsAgainAtOnceTakesItsPlace) {
    HostWorld world(2);
    const Words options{"--max-restarts=1", "--node-timeout=2"};
    const Words worker = bash(
        "echo up $TORCHELASTIC_RESTART_COUNT $RANK; [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exec "
        "sleep 60");
    std::vector<HostProgram> launchers = launch_all(world, worker, options);
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up 0", 2)) << one.err();
    world.power_off(2);
    world.power_on(2);
    HostProgram again = launch_static(world, 2, worker, options);
    EXPECT_EQ(again.wait(30s).exit_code, 0) << again.err();
    EXPECT_THAT(again.out(), HasSubstr("up 1 3"));
    EXPECT_EQ(launchers[0].wait(30s).exit_code, 0) << launchers[0].err();
}

TEST_F(LaunchHostsFaults, HostsWaitForACoordinatorThatIsStoppedWhileTheyGather) {
    HostWorld world(all_hosts);
    const Words worker = bash("echo up");
    std::vector<HostProgram> launchers;
    launchers.push_back(launch_static(world, 1, worker));
    std::this_thread::sleep_for(300ms);
    std::vector<pid_t> agents;
    for (const pid_t pid : world.pids_on(1)) {
        if (comm_of(pid) == "ddp-agent") agents.push_back(pid);
    }
    ASSERT_EQ(agents.size(), 1U);
    ::kill(agents[0], SIGSTOP);
    launchers.push_back(launch_static(world, 2, worker));
    launchers.push_back(launch_static(world, 3, worker));
    std::this_thread::sleep_for(6s);  // longer than an agent waits for an answer
    ::kill(agents[0], SIGCONT);
    for (HostProgram& one : launchers) {
        EXPECT_EQ(one.wait(20s).exit_code, 0) << one.err();
        EXPECT_THAT(one.err(), Not(HasSubstr("lost h"))) << one.err();
    }
}

TEST_F(LaunchHostsFaults, ACoordinatorThatIsStoppedForTooLongLosesTheJob) {
    HostWorld world(all_hosts);
    std::vector<HostProgram> launchers =
        launch_all(world, bash("echo up; exec sleep 60"), {"--node-timeout=2"});
    for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
    std::vector<pid_t> agents;
    for (const pid_t pid : world.pids_on(1)) {
        if (comm_of(pid) == "ddp-agent") agents.push_back(pid);
    }
    ::kill(agents.at(0), SIGSTOP);
    EXPECT_EQ(launchers[1].wait(10s).exit_code, lost_host);
    EXPECT_EQ(launchers[2].wait(10s).exit_code, lost_host);
    ::kill(agents.at(0), SIGCONT);
    EXPECT_EQ(launchers[0].wait(10s).exit_code, lost_host) << launchers[0].err();
    EXPECT_TRUE(is_empty(world, 1));
}

TEST_F(LaunchHostsFaults, WorkersThatIgnoreSigtermAreKilledOnAllHosts) {
    HostWorld world(all_hosts);
    std::vector<HostProgram> launchers =
        launch_all(world,
                   bash("trap '' TERM; echo up; [ $RANK = 4 ] && { sleep 0.5; exit 9; }; "
                        "for i in $(seq 600); do sleep 0.1; done"),
                   {"--shutdown-timeout=1"});
    for (HostProgram& one : launchers) {
        EXPECT_EQ(one.wait(20s).exit_code, 9) << one.err();
        EXPECT_THAT(one.err(), HasSubstr("rank 4"));
    }
    for (int host = 1; host <= all_hosts; ++host) EXPECT_TRUE(is_empty(world, host));
}

TEST_F(LaunchHostsFaults, WhoAsksTwiceOnAnyHostKillsTheWorkersOfAll) {
    for (const std::size_t told : {0U, 1U}) {
        HostWorld world(2);
        std::vector<HostProgram> launchers = launch_all(
            world, bash("trap '' TERM INT; echo up; for i in $(seq 600); do sleep 0.1; done"));
        for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
        launchers[told].signal(SIGINT);
        std::this_thread::sleep_for(700ms);
        launchers[told].signal(SIGINT);
        for (HostProgram& one : launchers) {
            EXPECT_EQ(one.wait(10s).exit_code, 128 + SIGINT) << one.err();
        }
    }
}

TEST_F(LaunchHostsFaults, AHostWhosePartIsDoneMayGoButHearsHowTheJobEnds) {
    for (const bool is_killed : {false, true}) {
        HostWorld world(all_hosts);
        std::vector<HostProgram> launchers =
            launch_all(world, bash("echo up; [ $RANK -ge 2 ] || { sleep 1.5; exit " +
                                   std::string(is_killed ? "0" : "6") + "; }"));
        for (HostProgram& one : launchers) ASSERT_TRUE(one.wait_for_output("up", 2)) << one.err();
        std::this_thread::sleep_for(500ms);
        EXPECT_FALSE(launchers[1].wait(0ms).exit_code >= 0) << "it waits for the others";
        if (is_killed) {
            for (const pid_t pid : world.pids_on(3)) ::kill(pid, SIGKILL);
        }
        EXPECT_EQ(launchers[0].wait(20s).exit_code, is_killed ? 0 : 6) << launchers[0].err();
        EXPECT_EQ(launchers[1].wait(20s).exit_code, is_killed ? 0 : 6) << launchers[1].err();
    }
}

TEST_F(LaunchHostsFaults, AHostThatCannotStartItsWorkersEndsTheJobWithItsReason) {
    HostWorld world(2);
    HostProgram first = launch_static(world, 1, bash("exec sleep 60"));
    HostProgram second = launch_static(world, 2, bash("exec sleep 60"), {},
                                       {"bash", "-c", "ulimit -n 24; exec \"$@\"", "--"});
    const int code = second.wait(20s).exit_code;
    EXPECT_EQ(first.wait(20s).exit_code, code) << first.err() << second.err();
    EXPECT_NE(code, 0);
    EXPECT_THAT(first.err(), HasSubstr("h2: "));
}

TEST_F(LaunchHostsFaults, AHostWithoutRoomForLogsGoesOnAndSaysSo) {
    HostWorld world(2);
    const std::string logs = files_.path() + "/logs";
    const Words options{"--log-dir=" + logs};
    const Words worker = bash("head -c 1000000 /dev/zero | tr '\\0' x; echo; echo done");
    HostProgram first = launch_static(world, 1, worker, options);
    HostProgram second = launch_static(
        world, 2, worker, options,
        {"bash", "-c",
         "mkdir -p " + logs + " && mount -t tmpfs -o size=64k none " + logs + " && exec \"$@\"",
         "--"});
    EXPECT_TRUE(first.wait_for_output("done", 2)) << first.err();  // its pipe holds less
    EXPECT_EQ(second.wait(30s).exit_code, 0) << second.err();
    EXPECT_EQ(first.wait(30s).exit_code, 0) << first.err();
    EXPECT_THAT(second.err(), HasSubstr("No space left on device"));
    EXPECT_THAT(first.err(), Not(HasSubstr("No space left")));
}

TEST_F(LaunchHostsFaults, LongNamesAreTaken) {
    HostWorld world(2);
    const Words id{"--rdzv-id=" + std::string(200, 'j')};
    HostProgram first = launch_static(world, 1, bash("true"), id);
    HostProgram second =
        launch_static(world, 2, bash("true"), id,
                      {"bash", "-c", "hostname $(printf '%064d' 7); exec \"$@\"", "--"});
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    EXPECT_EQ(second.wait(20s).exit_code, 0) << second.err();
}

}  // namespace
}  // namespace ddp::launcher
