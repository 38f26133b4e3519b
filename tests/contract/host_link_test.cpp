// What ddp-launch tells the program that launched it.
#include "contract/host_link.hpp"

#include <ddp/error.hpp>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <string>

namespace ddp::contract {
namespace {

const LaunchEnd an_end{.exit_code = 137,
                       .report = "rank 1 was killed",
                       .ends = {{.rank = 1, .status = {.signal = SIGSEGV, .core_dumped = true}},
                                {.rank = 0, .status = {.code = 3}, .stopped_with = SIGTERM}},
                       .hosts = {{"h1", 0}, {"fe80::1%eth0", 137}}};

TEST(HostLink, AnEndSurvivesTheTrip) {
    const LaunchEnd copy = parse_launch_end(to_payload(an_end));
    EXPECT_EQ(copy.kind, LaunchEnd::Kind::ended);
    EXPECT_EQ(copy.exit_code, 137);
    EXPECT_EQ(copy.report, an_end.report);
    ASSERT_EQ(copy.ends.size(), 2U);
    for (std::size_t i = 0; i < 2; ++i) {
        EXPECT_EQ(copy.ends[i].rank, an_end.ends[i].rank);
        EXPECT_EQ(copy.ends[i].status, an_end.ends[i].status);
        EXPECT_EQ(copy.ends[i].stopped_with, an_end.ends[i].stopped_with);
    }
    ASSERT_EQ(copy.hosts.size(), 2U);
    EXPECT_EQ(copy.hosts[0].host, "h1");
    EXPECT_EQ(copy.hosts[1].host, "fe80::1%eth0");
    EXPECT_EQ(copy.hosts[1].exit_code, 137);
}

TEST(HostLink, ADamagedEndIsRefused) {
    const std::string payload = to_payload(an_end);
    for (std::size_t size = 0; size < payload.size(); ++size) {
        EXPECT_THROW(parse_launch_end(payload.substr(0, size)), UsageError) << size;
    }
}

TEST(LaunchEnd, OfALargeWorldFitsAndNothingFollowsIt) {
    LaunchEnd end;
    end.report.assign(10 * max_report_bytes, 'x');
    for (int rank = 0; rank < 4096; ++rank) end.ends.push_back({.rank = rank});
    for (int host = 0; host < 10'000; ++host) end.hosts.push_back({std::string(57, 'h'), 1});
    const std::string payload = to_payload(end);
    EXPECT_LE(payload.size(), max_launch_end_bytes);
    EXPECT_EQ(parse_launch_end(payload).ends.size(), 4096U);
    EXPECT_EQ(parse_launch_end(payload).hosts.size(), max_hosts_bytes / 65);
    EXPECT_THROW(parse_launch_end(payload + "x"), UsageError);
}

TEST(HostLink, TakesWhatTheHostHandsOver) {
    for (const auto& [policy, expected] :
         {std::pair{"", FailurePolicy::stop_job}, std::pair{":0", FailurePolicy::stop_job},
          std::pair{":1", FailurePolicy::tell_host}}) {
        std::array<int, 2> liveness{};
        std::array<int, 2> results{};
        ASSERT_EQ(::pipe(liveness.data()), 0);
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, results.data()), 0);
        const std::string given = std::to_string(liveness[0]) + ":" + std::to_string(results[0]);
        ::setenv(host_link_variable, (given + policy).c_str(), 1);
        HostLink link = HostLink::take();
        EXPECT_EQ(link.parent_liveness_fd(), liveness[0]);
        EXPECT_EQ(link.failure_policy(), expected) << policy;
        EXPECT_EQ(std::getenv(host_link_variable), nullptr);
        for (const int fd : {liveness[0], results[0]}) {
            EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
        }
        link.send(an_end);
        char byte = 0;
        EXPECT_EQ(::recv(results[1], &byte, 1, MSG_DONTWAIT), 1);
        link.close();
        EXPECT_EQ(link.parent_liveness_fd(), -1);
        EXPECT_EQ(::fcntl(liveness[0], F_GETFD), -1);
        ::close(liveness[1]);
        ::close(results[1]);
    }
}

TEST(HostLink, IsNoneForAVariableThatIsNotOne) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
    const std::string one = std::to_string(ends[0]);
    for (const std::string& odd :
         {std::string(), std::string("nonsense"), one, one + ":", one + ":" + one,
          one + ":99999999999999999999", "99999999999999999999:" + one, one + ":" + one + ":1 ",
          std::string("-5:-7"), std::string("1:2:0")}) {
        ::setenv(host_link_variable, odd.c_str(), 1);
        EXPECT_EQ(HostLink::take().parent_liveness_fd(), -1) << odd;
        EXPECT_EQ(std::getenv(host_link_variable), nullptr);
    }
    EXPECT_GE(::fcntl(ends[0], F_GETFD), 0) << "not closed";
    ::close(ends[0]);
    ::close(ends[1]);
}

}  // namespace
}  // namespace ddp::contract
