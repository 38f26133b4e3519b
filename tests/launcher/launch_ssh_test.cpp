// Jobs that one command starts over a real sshd on each host, by the default --rsh.
#include "launcher/daemons_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using namespace testing;  // daemons_fixture.hpp

class LaunchSsh : public DaemonsTest {
protected:
    void SetUp() override {
        DaemonsTest::SetUp();
        if (IsSkipped() || HasFatalFailure()) return;
        write_home();
        for (int host = 1; host <= hosts; ++host) start_sshd(host);
    }
    HostProgram start(const Words& options, const std::string& script) {
        return launch(world(), 1, options, bash(script));
    }
    std::string home() const { return folder() + "/home"; }

private:
    // Root's, for ssh and sshd: they look it up in a list of users that the hosts alone see.
    void write_home() {
        std::filesystem::create_directories(home() + "/.ssh");
        ::chmod((home() + "/.ssh").c_str(), S_IRWXU);
        std::ofstream(folder() + "/passwd") << "root:x:0:0::" << home() << ":/bin/bash\n"
                                            << "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\n";
        for (const char* key : {"/.ssh/id_ed25519", "/.ssh/host_key"}) {
            HostProgram keygen =
                world().run(1, {"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home() + key});
            ASSERT_EQ(keygen.wait(20s).exit_code, 0) << keygen.err();
        }
        std::filesystem::copy(home() + "/.ssh/id_ed25519.pub", home() + "/.ssh/authorized_keys");
        std::ifstream host_key(home() + "/.ssh/host_key.pub");
        std::string kind, key;
        host_key >> kind >> key;
        std::ofstream known(home() + "/.ssh/known_hosts");
        for (int host = 1; host <= hosts; ++host) {
            known << HostWorld::name(host) << ' ' << kind << ' ' << key << '\n';
        }
        std::ofstream(folder() + "/sshd_config")
            << "HostKey " << home() << "/.ssh/host_key\nPidFile none\nUsePAM no\nStrictModes no\n"
            << "PasswordAuthentication no\nPermitRootLogin prohibit-password\nMaxStartups 100\n";
    }
    void start_sshd(int host) {
        run_daemon(host,
                   bash("mount --bind " + folder() +
                        "/passwd /etc/passwd && "
                        "mount -t tmpfs none /run && mkdir /run/sshd && exec " +
                        daemons + "/usr/sbin/sshd -D -e -f " + folder() + "/sshd_config"),
                   {"LD_LIBRARY_PATH=" + daemon_libraries});
        ASSERT_TRUE(wait_until([&] {
            HostProgram probe = world().run(host, bash("exec 3<>/dev/tcp/127.0.0.1/22"));
            return probe.wait(20s).exit_code == 0;
        }));
    }
};

TEST_F(LaunchSsh, OneCommandStartsTheJobOnAllHosts) {
    HostProgram job = start({"--hosts=h1:1,h2:2,h3:1"},
                            "echo $(hostname) $RANK/$WORLD_SIZE; echo err$RANK >&2; cat");
    EXPECT_EQ(job.wait(60s).exit_code, 0) << job.err();
    std::vector<std::string> lines = lines_of(job.out());
    std::ranges::sort(lines);
    EXPECT_THAT(lines, ElementsAre("h1 0/4", "h2 1/4", "h2 2/4", "h3 3/4"));
    EXPECT_EQ(count_of(job.err(), "err"), 4) << job.err();
}

TEST_F(LaunchSsh, AFailureIsTheJobsExitCode) {
    HostProgram job = start({"--hosts=h1,h2,h3"}, "[ $RANK = 1 ] && exit 7; exec sleep 300");
    EXPECT_EQ(job.wait(60s).exit_code, 7) << job.err();
    EXPECT_TRUE(nothing_runs("sleep"));
}

TEST_F(LaunchSsh, NothingOutlivesTheCommand) {
    for (const int signal : {SIGTERM, SIGKILL}) {
        HostProgram job =
            start({"--hosts=h1,h2,h3", "--shutdown-timeout=1"},
                  "trap '' TERM HUP; setsid sleep 300 & echo up; while :; do sleep 300; done");
        ASSERT_TRUE(job.wait_for_output("up", hosts)) << job.err();
        job.signal(signal);
        EXPECT_EQ(job.wait(60s).exit_code, 128 + signal) << job.err();
        EXPECT_TRUE(nothing_runs("sleep")) << signal;
        EXPECT_TRUE(nothing_runs("ddp-launch")) << signal;
        EXPECT_TRUE(nothing_runs("ddp-agent")) << signal;
    }
}

TEST_F(LaunchSsh, AHostThatSshDoesNotKnowIsNamedWithItsWords) {
    HostProgram forget = world().run(1, bash("sed -i /^h3/d " + home() + "/.ssh/known_hosts"));
    ASSERT_EQ(forget.wait(20s).exit_code, 0);
    HostProgram job = start({"--hosts=h1,h2,h3"}, "exec sleep 300");
    EXPECT_EQ(job.wait(60s).exit_code, 1) << job.err();
    EXPECT_THAT(job.err(), HasSubstr("h3: Host key verification failed"));
    EXPECT_TRUE(nothing_runs("sleep"));
    EXPECT_TRUE(nothing_runs("ddp-launch"));
}

}  // namespace
}  // namespace ddp::launcher
