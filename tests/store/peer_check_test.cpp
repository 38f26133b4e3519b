// Who is served, by each of the kernel's two ways to tell: this user, root, descendants that run as
// another user; not other users, also not when they hide behind a closed socket.
#include "store/admission/peer_check.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>

#include "base/net/local_socket.hpp"
#include "base/net/socket.hpp"
#include "base/random.hpp"

namespace ddp::store {
namespace {

using testing::HasSubstr;

constexpr uid_t somebody = 65533;

struct Connection {
    base::UniqueFd accepted;
    base::UniqueFd client;  // unless a child has it
    pid_t child = 0;

    Connection() = default;
    Connection(Connection&& other) noexcept
        : accepted(std::move(other.accepted)),
          client(std::move(other.client)),
          child(std::exchange(other.child, 0)) {}
    ~Connection() {
        if (child == 0) return;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
    }
};

class ListeningSocket {
public:
    explicit ListeningSocket(const std::string& address = "127.0.0.1")
        : address_(address), listener_(base::listen_tcp(address, 0)) {}

    Connection connect() const {
        Connection connection;
        connection.client = dial();
        connection.accepted = accept();
        return connection;
    }

    // Others may listen on the client's port once it has closed.
    Connection connect_with_reusable_port() const {
        Connection connection;
        connection.client.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        const int on = 1;
        const int fd = connection.client.get();
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        const auto* const generic = reinterpret_cast<const sockaddr*>(&address);
        EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
        EXPECT_EQ(::bind(fd, generic, sizeof address), 0);
        address.sin_port = htons(base::local_port(listener_.get()));
        EXPECT_EQ(::connect(fd, generic, sizeof address), 0);
        connection.accepted = accept();
        ::setsockopt(connection.accepted.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        return connection;
    }

    // From a child of this process that has become `user` before.
    Connection connect_as(uid_t user, const std::function<void(int)>& then = {}) const {
        Connection connection;
        std::array<int, 2> done{};
        EXPECT_EQ(::pipe2(done.data(), O_CLOEXEC), 0);
        connection.child = ::fork();
        if (connection.child == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (::setresuid(user, user, user) != 0) ::_exit(1);
            base::UniqueFd client = dial();
            if (then) then(client.get());
            if (then) client.reset();
            if (::write(done[1], "x", 1) != 1) ::_exit(1);
            for (;;) ::pause();
        }
        const base::UniqueFd ended(done[0]);
        ::close(done[1]);
        connection.accepted = accept();
        char byte = 0;
        EXPECT_EQ(::read(ended.get(), &byte, 1), 1);
        return connection;
    }

private:
    base::UniqueFd dial() const {
        int error = 0;
        return base::try_connect_tcp(address_, base::local_port(listener_.get()),
                                     base::Deadline::after(std::chrono::seconds{10}), error);
    }
    base::UniqueFd accept() const {
        pollfd ready{listener_.get(), POLLIN, 0};
        EXPECT_GT(::poll(&ready, 1, 10'000), 0);
        return base::UniqueFd{::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)};
    }

    std::string address_;
    base::UniqueFd listener_;
};

// Below this process, as the agent is below the front.
template <class Body>
void as_somebody_else(Body body) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setresuid(somebody, somebody, somebody) != 0) ::_exit(1);
        body();
        ::_exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

class PeerCheckBy : public testing::TestWithParam<SocketOwners::Source> {
protected:
    static PeerCheck make(PeerRule rule = {}) { return PeerCheck(rule, GetParam()); }
};

TEST_P(PeerCheckBy, UsesTheSourceThatItWasAskedFor) {
    const SocketOwners owners(GetParam());
    EXPECT_EQ(owners.source(), GetParam()) << owners.refusals();
}

TEST_P(PeerCheckBy, ServesThisUser) {
    for (const char* address : {"127.0.0.1", "::1", "::ffff:127.0.0.1"}) {
        const Connection connection = ListeningSocket(address).connect();
        EXPECT_EQ(make().refusal(connection.accepted.get()), std::nullopt) << address;
        EXPECT_THAT(make().describe(connection.accepted.get()),
                    HasSubstr("uid " + std::to_string(::geteuid())));
    }
}

TEST_P(PeerCheckBy, FindsTheOwnerOfTheOtherEndExactly) {
    const ListeningSocket listener;
    const Connection one = listener.connect();
    const Connection two = listener.connect();
    const SocketOwners owners(GetParam());
    const auto first = owners.peer_of(one.accepted.get());
    const auto second = owners.peer_of(two.accepted.get());
    ASSERT_TRUE(first && second);
    EXPECT_NE(first->inode, second->inode);
    EXPECT_EQ(first->user, ::geteuid());
}

TEST_P(PeerCheckBy, ServesADescendantThatRunsAsAnotherUserAndNobodyElse) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const ListeningSocket listener;
    const Connection worker = listener.connect_as(somebody);
    EXPECT_EQ(make().refusal(worker.accepted.get()), std::nullopt);
    PeerCheck check = make();
    EXPECT_TRUE(check.belongs_to_job(worker.accepted.get()));
    // The same connection, seen by a process that the worker does not descend from.
    const pid_t sibling = ::fork();
    if (sibling == 0) {
        const auto why = make().refusal(worker.accepted.get());
        ::_exit(why && why->find("it belongs to uid 65533, which is neither root nor uid 0") !=
                            why->npos
                    ? 0
                    : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(sibling, &status, 0), sibling);
    EXPECT_EQ(status, 0);
}

TEST_P(PeerCheckBy, ServesRootAndItselfWhoeverItRunsAs) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const ListeningSocket listener;
    const Connection roots = listener.connect();
    const Connection strangers = listener.connect_as(65532);
    as_somebody_else([&] {
        EXPECT_EQ(make().refusal(roots.accepted.get()), std::nullopt);
        EXPECT_EQ(make().refusal(ListeningSocket().connect().accepted.get()), std::nullopt);
        EXPECT_THAT(make().refusal(strangers.accepted.get()).value_or(""), HasSubstr("uid 65532"));
        EXPECT_EQ(make({.peers = StorePeers::any}).refusal(strangers.accepted.get()), std::nullopt);
    });
}

// The kernel shows such a socket as root's.
TEST_P(PeerCheckBy, AStrangerThatHasClosedItsEndIsNotTakenForRoot) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const ListeningSocket listener;
    const Connection connection =
        listener.connect_as(65532, [](int client) { EXPECT_EQ(::send(client, "x", 1, 0), 1); });
    const pid_t sibling = ::fork();
    if (sibling == 0) {
        const auto why = make().refusal(connection.accepted.get());
        ::_exit(why && why->find("not among this host's sockets") != why->npos ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(sibling, &status, 0), sibling);
    EXPECT_EQ(status, 0);
}

// Where no connection is found the kernel shows who listens on the port.
TEST_P(PeerCheckBy, AListenerOnTheStrangersPortIsNotTakenForIt) {
    const ListeningSocket listener;
    Connection connection = listener.connect_with_reusable_port();
    const std::uint16_t port = base::local_port(connection.client.get());
    connection.client.reset();
    const base::UniqueFd on_its_port = base::listen_tcp("127.0.0.1", port);
    EXPECT_THAT(make().refusal(connection.accepted.get()).value_or(""),
                HasSubstr("not among this host's sockets"));
}

// As whoever connects to 127.0.0.1 or ::1 would.
TEST_P(PeerCheckBy, FindsWhoListensOnAPort) {
    const SocketOwners owners(GetParam());
    for (const auto& [address, is_loopback] :
         std::vector<std::pair<std::string, bool>>{{"127.0.0.1", true},
                                                   {"0.0.0.0", true},
                                                   {"::", true},
                                                   {"::1", true},
                                                   {"::ffff:127.0.0.1", true},
                                                   {"127.0.0.2", false},
                                                   {"::ffff:127.0.0.2", false}}) {
        SCOPED_TRACE(address);
        const base::UniqueFd listener = base::listen_tcp(address, 0);
        const std::uint16_t port = base::local_port(listener.get());
        const auto anywhere = owners.listeners_on(port, SocketOwners::At::any);
        ASSERT_EQ(anywhere.size(), 1U);
        EXPECT_EQ(anywhere[0].user, ::geteuid());
        EXPECT_NE(anywhere[0].inode, 0U);
        EXPECT_EQ(owners.listeners_on(port, SocketOwners::At::loopback).size(),
                  is_loopback ? 1U : 0U);
    }
    const Connection connection = ListeningSocket().connect();
    const std::uint16_t clients = base::local_port(connection.client.get());
    EXPECT_TRUE(owners.listeners_on(clients, SocketOwners::At::any).empty());
}

INSTANTIATE_TEST_SUITE_P(Sources, PeerCheckBy,
                         testing::Values(SocketOwners::Source::netlink, SocketOwners::Source::proc),
                         [](const auto& param_info) {
                             return param_info.param == SocketOwners::Source::netlink ? "Netlink"
                                                                                      : "Proc";
                         });

TEST(PeerCheck, GoesOnOnlyWhenToldWhereNobodyTellsWhoConnects) {
    try {
        const PeerCheck check({}, SocketOwners::Source::nothing);
        FAIL() << "would serve anybody";
    } catch (const SystemError& error) {
        EXPECT_THAT(error.what(), HasSubstr("--store-peers=any"));
    }
    PeerCheck any({.peers = StorePeers::any}, SocketOwners::Source::nothing);
    EXPECT_EQ(any.refusal(ListeningSocket().connect().accepted.get()), std::nullopt);
}

TEST(SocketOwners, SayWhyNeitherSourceTells) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit none = before;
    none.rlim_cur = 0;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const SocketOwners owners(SocketOwners::Source::netlink);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(owners.source(), SocketOwners::Source::nothing);
    EXPECT_EQ(owners.refusals(),
              "NETLINK_SOCK_DIAG: Too many open files; /proc/net/tcp: Too many open files");
}

// Of a local socket the kernel tells it in its own way.
class LocalPeers : public testing::Test {
protected:
    Connection connect() const {
        Connection connection;
        connection.client = base::try_connect_local(name_);
        EXPECT_TRUE(connection.client);
        connection.accepted.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        EXPECT_TRUE(connection.accepted);
        return connection;
    }
    // From a child of this process.
    Connection connect_as(uid_t user) const {
        Connection connection;
        connection.child = ::fork();
        if (connection.child == 0) {
            if (::setresuid(user, user, user) != 0) ::_exit(1);
            const base::UniqueFd client = base::try_connect_local(name_);
            ::pause();
        }
        pollfd ready{listener_.get(), POLLIN, 0};
        EXPECT_GT(::poll(&ready, 1, 10'000), 0);
        connection.accepted.reset(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        EXPECT_TRUE(connection.accepted);
        return connection;
    }

private:
    std::string name_ = "ddp-test-" + std::to_string(base::random_bits());
    base::UniqueFd listener_ = base::listen_local(name_);
};

TEST_F(LocalPeers, AreServedWhenTheyAreThisUsers) {
    const Connection connection = connect();
    PeerCheck check({});
    EXPECT_EQ(check.refusal(connection.accepted.get()), std::nullopt);
    EXPECT_FALSE(check.belongs_to_job(connection.accepted.get())) << "no process is its own child";
    EXPECT_THAT(check.describe(connection.accepted.get()),
                HasSubstr("uid " + std::to_string(::geteuid()) + ", pid " +
                          std::to_string(::getpid()) + " ("));
}

TEST_F(LocalPeers, ThatRunAsAnotherUserAreServedWhenTheyDescendFromThisProcess) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    const Connection worker = connect_as(somebody);
    PeerCheck check({});
    EXPECT_EQ(check.refusal(worker.accepted.get()), std::nullopt);
    EXPECT_TRUE(check.belongs_to_job(worker.accepted.get()));
    // The same connection, seen by a process that the worker does not descend from.
    const pid_t sibling = ::fork();
    if (sibling == 0) {
        PeerCheck siblings({});
        const std::string why = siblings.refusal(worker.accepted.get()).value_or("");
        const std::string wanted = "refused process " + std::to_string(worker.child) +
                                   ": it belongs to uid 65533, which is neither root nor uid 0";
        const bool served_when_told =
            !PeerCheck({.peers = StorePeers::any}).refusal(worker.accepted.get());
        ::_exit(why.starts_with(wanted) && served_when_told ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(sibling, &status, 0), sibling);
    EXPECT_EQ(status, 0);
}

// Whoever has its number now counts only as the user that it runs as.
TEST_F(LocalPeers, ThatHaveGoneAreNotServed) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    Connection gone = connect_as(somebody);
    ::kill(gone.child, SIGKILL);
    ASSERT_EQ(::waitpid(gone.child, nullptr, 0), gone.child);
    gone.child = 0;
    const Connection still_there = connect_as(somebody);
    EXPECT_THAT(PeerCheck({}).refusal(gone.accepted.get()).value_or(""), HasSubstr("uid 65533"));
}

TEST(PeerCheck, AddressesOfThisHostAreItsOwn) {
    const Connection loopback = ListeningSocket().connect();
    base::OwnAddresses own;
    EXPECT_TRUE(peer_is_on_this_host(loopback.accepted.get(), own));
    EXPECT_EQ(peer_address(loopback.accepted.get()),
              "127.0.0.1:" + std::to_string(base::local_port(loopback.client.get())));
}

// Gives the loopback device of this network namespace an address that is none of 127.0.0.0/8.
bool add_address(const char* name, const char* text) {
    const base::UniqueFd socket{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
    ifreq request{};
    std::strncpy(request.ifr_name, name, IFNAMSIZ - 1);
    auto& address = reinterpret_cast<sockaddr_in&>(request.ifr_addr);
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, text, &address.sin_addr);
    if (::ioctl(socket.get(), SIOCSIFADDR, &request) != 0) return false;
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

// The accepted end of a connection from one address to the other.
base::UniqueFd connection_between(const char* from, const char* to) {
    const base::UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    const base::UniqueFd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, from, &address.sin_addr);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    socklen_t length = sizeof address;
    if (::bind(client.get(), any, length) != 0) return {};
    ::inet_pton(AF_INET, to, &address.sin_addr);
    if (::bind(listener.get(), any, length) != 0 || ::listen(listener.get(), 1) != 0 ||
        ::getsockname(listener.get(), any, &length) != 0 ||
        ::connect(client.get(), any, length) != 0) {
        return {};
    }
    return base::UniqueFd{::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC)};
}

// In a network namespace of its own, which ends with the child.
TEST(PeerCheck, OneOfTwoAddressesOfThisHostIsItsOwnAsSeenFromTheOther) {
    constexpr int not_allowed = 77;
    const pid_t child = ::fork();
    if (child == 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) ::_exit(not_allowed);
        base::OwnAddresses own;
        if (own.contains(*base::numeric_address("10.77.0.1"))) ::_exit(4);
        if (!add_address("lo", "10.77.0.1") || !add_address("lo:1", "10.77.0.2")) ::_exit(2);
        const base::UniqueFd connection = connection_between("10.77.0.1", "10.77.0.2");
        if (!connection) ::_exit(3);
        ::_exit(peer_is_on_this_host(connection.get(), own) ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == not_allowed) GTEST_SKIP() << "this host allows no namespaces";
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace ddp::store
