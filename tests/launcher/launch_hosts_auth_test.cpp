// Who may join a job of several hosts: those that have its token.
#include "launcher/hosts/messages/hello.hpp"
#include "launcher/hosts_fixture.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace testing;  // hosts_fixture.hpp

const std::string token = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
const std::string other_token = "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

std::string text_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

class LaunchHostsAuth : public HostsTest {
protected:
    std::string file(const std::string& text, unsigned mode = 0600) {
        const std::string path = files_.path() + "/token" + std::to_string(++last_file_);
        std::ofstream(path) << text << '\n';
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }
    // One worker of a job of two hosts; `token_file`: empty, no token.
    HostProgram launch(HostWorld& world, int host, const std::string& token_file,
                       const Words& command, Words more = {}, Words environment = {}) {
        more.insert(more.begin(), "--nnodes=2");  // whatever the world has
        if (!token_file.empty()) environment.push_back("DDP_JOB_TOKEN_FILE=" + token_file);
        return launch_static(world, host, 1, command, more,
                             {.environment = std::move(environment)});
    }

    int last_file_ = 0;
};

const Words rank{"bash", "-c", "echo $RANK/$WORLD_SIZE ${DDP_JOB_TOKEN_FILE-none}"};
const std::string no_token_warning = "no job token: anybody who can connect to port 29500";

TEST_F(LaunchHostsAuth, HostsWithOneTokenRunTheJobAndWorkersDoNotKnowIt) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, file(token), rank, {"--auth=required"});
    HostProgram second = launch(world, 2, file(token), rank, {"--auth=required"});
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    EXPECT_EQ(second.wait(20s).exit_code, 0) << second.err();
    EXPECT_EQ(first.out(), "0/2 none\n");
    EXPECT_EQ(second.out(), "1/2 none\n");
    EXPECT_THAT(first.err() + second.err(), Not(HasSubstr("no job token")));
}

TEST_F(LaunchHostsAuth, AnotherTokenIsRefusedAtBothEndsAndTheJobWaitsForTheRightOne) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, file(token), rank);
    HostProgram wrong = launch(world, 2, file(other_token), rank);
    EXPECT_EQ(wrong.wait(20s).exit_code, 2);
    EXPECT_THAT(wrong.err(), HasSubstr("the job tokens of the coordinator and this host differ"));
    EXPECT_TRUE(first.wait_for_error(
        "refused: the job tokens of the agent at 10.77.0.2 and this host differ"))
        << first.err();
    EXPECT_FALSE(first.ended());
    HostProgram right = launch(world, 2, file(token), rank);
    EXPECT_EQ(right.wait(20s).exit_code, 0) << right.err();
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    for (const HostProgram* one : {&first, &wrong, &right}) {
        EXPECT_THAT(one->err(), AllOf(Not(HasSubstr(token.substr(0, 16))),
                                      Not(HasSubstr(other_token.substr(0, 16)))));
    }
}

TEST_F(LaunchHostsAuth, AHostWithoutATokenIsRefusedWhereTheJobHasOne) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, file(token), rank);
    HostProgram second = launch(world, 2, "", rank);
    EXPECT_EQ(second.wait(20s).exit_code, 2);
    const std::string why = "the agent at 10.77.0.2 has no job token, and this job has one";
    EXPECT_THAT(second.err(), HasSubstr(why));
    EXPECT_TRUE(first.wait_for_error("refused: " + why)) << first.err();
    HostProgram right = launch(world, 2, file(token), rank);
    EXPECT_EQ(right.wait(20s).exit_code, 0) << right.err();
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
}

TEST_F(LaunchHostsAuth, AHostWithATokenJoinsNoJobWithoutOne) {
    HostWorld world(2);
    HostProgram first = launch(world, 1, "", rank);
    HostProgram second = launch(world, 2, file(token), rank);
    EXPECT_EQ(second.wait(20s).exit_code, 2);
    EXPECT_THAT(second.err(), HasSubstr("the coordinator has no job token, and this host has one"));
    EXPECT_TRUE(first.wait_for_error(
        "refused: the agent at 10.77.0.2 has a job token, and this job has none"))
        << first.err();
    HostProgram without = launch(world, 2, "", rank);
    EXPECT_EQ(without.wait(20s).exit_code, 0) << without.err();
    EXPECT_EQ(first.wait(20s).exit_code, 0) << first.err();
    EXPECT_EQ(count_of(first.err(), no_token_warning), 1) << first.err();
    EXPECT_THAT(without.err(), Not(HasSubstr("no job token")));
}

TEST_F(LaunchHostsAuth, WhatIsNoTokenIsSaidBeforeAnythingStarts) {
    HostWorld world(1);
    const auto trouble = [&](const std::string& token_file, const Words& more = {},
                             const Words& environment = {}) {
        HostProgram launcher = launch(world, 1, token_file, rank, more, environment);
        const HostProgramResult end = launcher.wait(20s);
        EXPECT_EQ(end.exit_code, 2) << end.err;
        EXPECT_EQ(end.out, "");
        EXPECT_THAT(end.err, Not(HasSubstr(token.substr(0, 16))));
        EXPECT_EQ(count_of(end.err, "\n"), 1) << end.err;
        return end.err;
    };
    const std::string open = file(token, 0640);
    EXPECT_THAT(trouble(open), AllOf(HasSubstr(open), HasSubstr("chmod 600")));
    EXPECT_THAT(trouble(file(token.substr(2))), HasSubstr("64 hex digits"));
    EXPECT_THAT(trouble(files_.path() + "/none"), HasSubstr("No such file"));
    EXPECT_THAT(trouble("", {"--auth=required"}), HasSubstr("--auth=required: there is no job"));
    EXPECT_THAT(trouble("", {"--auth=yes"}), HasSubstr("auto or required"));
    std::filesystem::create_directory(files_.path() + "/lib");
    std::ofstream(files_.path() + "/lib/libssl.so.3") << "no library";
    EXPECT_THAT(trouble(file(token), {}, {"LD_LIBRARY_PATH=" + files_.path() + "/lib"}),
                AllOf(HasSubstr("there is a job token, which takes TLS"), HasSubstr("libssl")));
}

TEST_F(LaunchHostsAuth, AJobOnLoopbackAloneIsNotWarnedOf) {
    HostWorld world(1);
    std::vector<HostProgram> launchers;
    for (int node = 0; node < 2; ++node) {
        launchers.push_back(
            launch(world, 1, "", rank,
                   {"--master-addr=127.0.0.1", "--node-rank=" + std::to_string(node)}));
    }
    for (HostProgram& launcher : launchers) {
        EXPECT_EQ(launcher.wait(20s).exit_code, 0) << launcher.err();
        EXPECT_THAT(launcher.err(), Not(HasSubstr("no job token")));
    }
}

TEST_F(LaunchHostsAuth, TheTokenIsInNoCommandLineAndNoEnvironment) {
    HostWorld world(2);
    const Words wait{"bash", "-c", "echo up; sleep 60; true"};
    const std::string path = file(token);
    HostProgram first = launch(world, 1, path, wait);
    HostProgram second = launch(world, 2, path, wait, {}, {"DDP_LOG_LEVEL=debug"});
    ASSERT_TRUE(first.wait_for_output("up")) << first.err();
    ASSERT_TRUE(second.wait_for_output("up")) << second.err();
    int workers = 0;
    for (const int host : {1, 2}) {
        for (const pid_t pid : world.pids_on(host)) {
            const std::string process = "/proc/" + std::to_string(pid);
            for (const char* what : {"/cmdline", "/environ"}) {
                EXPECT_THAT(text_of(process + what), Not(HasSubstr(token))) << process << what;
            }
            if (text_of(process + "/comm") != "bash\n") continue;
            ++workers;
            EXPECT_THAT(text_of(process + "/environ"),
                        AllOf(HasSubstr("RANK="), Not(HasSubstr("DDP_JOB_TOKEN_FILE"))));
        }
    }
    EXPECT_GE(workers, 2) << "with a child on its way to be sleep, more";
    second.signal(SIGTERM);
    EXPECT_EQ(first.wait(20s).exit_code, 128 + SIGTERM);
    EXPECT_EQ(second.wait(20s).exit_code, 128 + SIGTERM);
    EXPECT_THAT(first.err() + second.err(), Not(HasSubstr(token)));
}

// PING to the job's store; "answered", or why not.
const char* const ping = R"(
import os, socket, time
store = socket.create_connection((os.environ.get('MASTER_ADDR', '10.77.0.1'), 29500))
try:
    store.sendall(bytes([0, 0xCE, 0xF7, 0x85, 0x3C, 13, 5, 0, 0, 0]))
    print('answered' if store.recv(4) == bytes([5, 0, 0, 0]) else 'closed', flush=True)
except ConnectionResetError:
    print('closed', flush=True)
if 'RANK' in os.environ:
    time.sleep(60)
)";

TEST_F(LaunchHostsAuth, TheStoreServesWorkersOfOtherHostsAndNobodyElseThere) {
    HostWorld world(3);
    const Words worker{"python3", "-c", ping};
    HostProgram first = launch(world, 1, file(token), {"bash", "-c", "sleep 60; true"});
    HostProgram second = launch(world, 2, file(token), worker);
    EXPECT_TRUE(second.wait_for_output("answered")) << second.err() << first.err();
    HostProgram of_no_host = world.run(3, worker);
    EXPECT_EQ(of_no_host.wait(20s).exit_code, 0) << of_no_host.err();
    EXPECT_EQ(of_no_host.out(), "closed\n");
    if (::geteuid() == 0) {  // else there is no other user in the world
        HostProgram other = world.run(
            2, {"setpriv", "--reuid=65533", "--clear-groups", "/usr/bin/python3", "-c", ping});
        EXPECT_EQ(other.wait(20s).exit_code, 0) << other.err();
        EXPECT_EQ(other.out(), "closed\n") << other.err();
        EXPECT_TRUE(first.wait_for_error("no launcher of this job there vouches for it"))
            << first.err();
    }
    second.signal(SIGTERM);
    EXPECT_EQ(first.wait(20s).exit_code, 128 + SIGTERM) << first.err();
}

// It may have any certificate, but does not know the token.
const char* const server_with_a_certificate = R"(
import socket, ssl, sys
listener = socket.create_server(('10.77.0.1', 29500))
print('up', flush=True)
tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
tls.load_cert_chain(sys.argv[1], sys.argv[2])
link, _ = listener.accept()
print('hello', link.recv(6).hex(), flush=True)
try:
    tls.wrap_socket(link, server_side=True)
    print('got', link.recv(100), flush=True)
except (ssl.SSLError, OSError) as error:
    print('refused', error, flush=True)
)";

TEST_F(LaunchHostsAuth, ACertificateIsNoToken) {
    HostWorld world(2);
    const std::string key = files_.path() + "/key.pem";
    const std::string certificate = files_.path() + "/certificate.pem";
    HostProgram openssl = world.run(
        1, {"openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-keyout", key, "-out", certificate, "-subj", "/CN=h1"});
    ASSERT_EQ(openssl.wait(20s).exit_code, 0) << openssl.err();
    HostProgram stranger =
        world.run(1, {"python3", "-c", server_with_a_certificate, certificate, key});
    ASSERT_TRUE(stranger.wait_for_output("up")) << stranger.err();
    HostProgram second = launch(world, 2, file(token), rank);
    EXPECT_EQ(second.wait(20s).exit_code, 2) << second.err();
    EXPECT_THAT(second.err(), HasSubstr("no TLS with the coordinator: certificate verify failed"));
    EXPECT_EQ(stranger.wait(20s).exit_code, 0) << stranger.err();
    const std::string hello = "hello dd4444500" + std::to_string(link_version) + "01";  // with TLS
    EXPECT_THAT(stranger.out(), AllOf(HasSubstr(hello), HasSubstr("refused")));
}

}  // namespace
}  // namespace ddp::launcher
