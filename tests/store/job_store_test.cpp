// The store of a job of ddp's: joining over a real connection, rank 0's server, and whose it may
// be.
#include "store/client/job_store.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/net/socket.hpp"
#include "raw_client.hpp"
#include "store/patient.hpp"
#include "wire_bytes.hpp"

namespace ddp::store {
namespace {

using namespace std::chrono_literals;
using namespace store_test;
using testing::AllOf;
using testing::HasSubstr;

std::uint16_t free_port() { return base::local_port(base::listen_tcp("127.0.0.1", 0).get()); }

RankClaim claim_of(int rank, const std::string& job = "j") {
    return claim_of_this_process({.job = job, .world_size = 2, .rank = rank});
}

std::shared_ptr<Store> connect(const MasterAddress& where, const RankClaim& claim) {
    return connect_job_store(where, claim, ServedBy::rank_0, StorePeers::same_user, patient).store;
}

template <class Body>
std::string usage_error_of(Body body) {
    try {
        body();
    } catch (const UsageError& error) {
        return error.what();
    }
    return "none was thrown";
}

TEST(JobStore, RanksOfOneJobMeet) {
    const MasterAddress where{"127.0.0.1", free_port()};
    const JobStoreServer server(where, claim_of(0), true, StorePeers::same_user);
    const auto zero = connect(where, claim_of(0));
    const auto one = connect(where, claim_of(1));
    zero->set("k", "v");
    EXPECT_EQ(one->get("k"), "v");
    EXPECT_EQ(one->get("k"), "v");
}

TEST(JobStore, AnotherJobIsToldWhoseStoreThatIs) {
    const MasterAddress where{"127.0.0.1", free_port()};
    const JobStoreServer server(where, claim_of(0, "first"), true, StorePeers::same_user);
    EXPECT_THAT(usage_error_of([&] { connect(where, claim_of(1, "second")); }),
                AllOf(HasSubstr("job first"), HasSubstr("job second"), HasSubstr("MASTER_PORT")));
}

TEST(JobStore, ASecondRankZeroIsToldWhoHasThePort) {
    const MasterAddress where{"127.0.0.1", free_port()};
    const JobStoreServer server(where, claim_of(0, "first"), true, StorePeers::same_user);
    EXPECT_THAT(usage_error_of([&] {
                    const JobStoreServer second(where, claim_of(0, "second"), true,
                                                StorePeers::same_user);
                }),
                AllOf(HasSubstr("port " + std::to_string(where.port)), HasSubstr("is in use"),
                      HasSubstr("job first"), HasSubstr("job second")));
}

TEST(JobStore, APortThatSomethingElseHasIsASystemError) {
    const base::UniqueFd other = base::listen_tcp("127.0.0.1", 0);
    const MasterAddress where{"127.0.0.1", base::local_port(other.get())};
    try {
        const JobStoreServer server(where, claim_of(0), true, StorePeers::same_user);
        FAIL() << "bound a port in use";
    } catch (const SystemError& error) {
        EXPECT_EQ(error.code(), EADDRINUSE);
    }
}

// Bound to a free port, and not yet listening.
int held_socket(in_addr_t address) {
    const int held = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(address);
    EXPECT_EQ(::bind(held, reinterpret_cast<const sockaddr*>(&place), sizeof place), 0);
    return held;
}

bool listens(int fd) {
    int value = 0;
    socklen_t size = sizeof value;
    EXPECT_EQ(::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &value, &size), 0);
    return value != 0;
}

// At another address of this host's than 127.0.0.1.
bool is_heard_beyond(std::uint16_t port) {
    int error = 0;
    return static_cast<bool>(
        base::try_connect_tcp("127.0.0.2", port, base::Deadline::after(patient), error));
}

TEST(JobStore, RankZeroListensOnTheSocketThatTheLauncherHolds) {
    const int held = held_socket(INADDR_LOOPBACK);
    const MasterAddress where{"127.0.0.1", base::local_port(held)};
    const std::string handed = std::to_string(held) + ":" + std::to_string(where.port);
    for (const std::string& wrong : {std::string("0:1"), std::to_string(held) + ":1"}) {
        ::setenv("DDP_STORE_FD", wrong.c_str(), 1);
        EXPECT_THROW(JobStoreServer(where, claim_of(0), true, StorePeers::same_user), SystemError)
            << wrong;  // the port is bound without SO_REUSEADDR: nobody else gets it
    }
    ::setenv("DDP_STORE_FD", handed.c_str(), 1);
    const JobStoreServer server(where, claim_of(0), true, StorePeers::same_user);
    connect(where, claim_of(1))->set("k", "v");
    EXPECT_EQ(std::getenv("DDP_STORE_FD"), nullptr);
    EXPECT_TRUE(listens(held));
    EXPECT_FALSE(is_heard_beyond(where.port));
}

TEST(JobStore, AHeldSocketThatReachesTooFarOrNotFarEnoughIsLeftAlone) {
    for (const bool on_one_host : {true, false}) {
        const base::UniqueFd held(held_socket(on_one_host ? INADDR_ANY : INADDR_LOOPBACK));
        const int on = 1;  // so that rank 0 can bind beside it
        ::setsockopt(held.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        const MasterAddress where{on_one_host ? "127.0.0.1" : "0.0.0.0",
                                  base::local_port(held.get())};
        const std::string handed = std::to_string(held.get()) + ":" + std::to_string(where.port);
        ::setenv("DDP_STORE_FD", handed.c_str(), 1);
        const JobStoreServer server(where, claim_of(0), on_one_host, StorePeers::same_user);
        ::unsetenv("DDP_STORE_FD");
        EXPECT_FALSE(listens(held.get()));
        EXPECT_EQ(is_heard_beyond(where.port), !on_one_host);
    }
}

// Its end may be news that comes after the claim.
TEST(JobStore, ARankIsFreeAsSoonAsItsProcessHasHungUp) {
    DrivenServer server({.job = RankClaim{.job = "j", .world_size = 2}});
    const auto join = [](int process) {
        return u8(65) +
               str("job j\nworld_size 2\nrank 1\npid 5\nprocess " + std::to_string(process) + "\n");
    };
    auto first = std::make_optional<RawClient>(server);
    first->send(hello + join(1));
    EXPECT_EQ(first->receive(9), u8(0) + str(""));
    RawClient early(server);
    early.send(hello + join(2));
    EXPECT_EQ(early.receive(1), u8(1));
    RawClient second(server);
    ASSERT_EQ(::shutdown(first->fd(), SHUT_RDWR), 0);  // the server has not looked yet
    second.send(hello + join(2));
    EXPECT_EQ(second.receive(10), u8(0) + str("1")) << "the second program of that rank";
}

TEST(JobStore, AJoinThatIsNoneEndsItsConnection) {
    DrivenServer server;
    RawClient client(server);
    client.send(hello + u8(65) + str("rank of admiral\n"));
    EXPECT_TRUE(client.closed_by_server());
}

// A port that nobody holds, and that somebody else has taken.
TEST(JobStore, AServerOfAnotherUserIsNotJoined) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    std::array<int, 2> ready{};
    ASSERT_EQ(::pipe2(ready.data(), O_CLOEXEC), 0);
    const pid_t thief = ::fork();
    if (thief == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (::setresuid(65533, 65533, 65533) != 0) ::_exit(1);
        const MasterAddress where{"127.0.0.1", free_port()};
        const JobStoreServer server(where, claim_of(0), true, StorePeers::any);
        if (::write(ready[1], &where.port, sizeof where.port) < 0) ::_exit(1);
        for (;;) ::pause();
    }
    std::uint16_t port = 0;
    ASSERT_EQ(::read(ready[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
    const MasterAddress where{"127.0.0.1", port};
    EXPECT_THAT(usage_error_of([&] { connect(where, claim_of(1)); }),
                AllOf(HasSubstr("belongs to uid 65533"), HasSubstr("MASTER_PORT")));
    EXPECT_TRUE(
        connect_job_store(where, claim_of(1), ServedBy::rank_0, StorePeers::any, patient).store);
    ::kill(thief, SIGKILL);
    ::waitpid(thief, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(JobStore, TheVariableForWhoIsServedIsRead) {
    EXPECT_EQ(store_peers(nullptr), StorePeers::same_user);
    EXPECT_EQ(store_peers(""), StorePeers::same_user);
    EXPECT_EQ(store_peers("same-user"), StorePeers::same_user);
    EXPECT_EQ(store_peers("any"), StorePeers::any);
    EXPECT_THAT(usage_error_of([] { store_peers("all"); }), HasSubstr("DDP_STORE_PEERS=all"));
}

}  // namespace
}  // namespace ddp::store
