// --metrics of the real ddp-launch. What Prometheus makes of them: interop/metrics_check.py.
#include "launcher/launch_fixture.hpp"

#include "base/net/socket.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <span>
#include <string>

namespace ddp::launcher::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class LaunchMetrics : public LaunchTest {
protected:
    static std::string ask(std::uint16_t port) {
        const auto deadline = base::Deadline::after(20s);
        int error = 0;
        const base::UniqueFd server = base::try_connect_tcp("127.0.0.1", port, deadline, error);
        if (!server) return "errno " + std::to_string(error);
        constexpr std::string_view request = "GET /metrics HTTP/1.1\r\n\r\n";
        base::send_all(server.get(), std::as_bytes(std::span(request)), deadline);
        std::string answer;
        std::array<char, 4096> part{};
        while (base::wait_readable(server.get(), deadline)) {
            const ssize_t n = ::recv(server.get(), part.data(), part.size(), 0);
            if (n <= 0) break;
            answer.append(part.data(), static_cast<std::size_t>(n));
        }
        return answer;
    }
    static std::uint16_t port_in(const std::string& err) {
        constexpr std::string_view before = "metrics: http://127.0.0.1:";
        const std::size_t at = err.find(before);
        return at == err.npos
                   ? 0
                   : static_cast<std::uint16_t>(std::stoi(err.substr(at + before.size())));
    }
};

// The first start fails, and in the second, too, they are served.
TEST_F(LaunchMetrics, AreServedAsLongAsTheJobRuns) {
    Launch job(folder_, {"-n", "2", "--metrics=0", "--max-restarts=1", "--no-python", "bash", "-c",
                         "[ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3; echo; exec sleep 60"});
    ASSERT_TRUE(job.wait_for_output("\n", 2)) << job.err();
    ASSERT_TRUE(job.wait_for_error("metrics: ")) << job.err();
    const std::uint16_t port = port_in(job.err());
    EXPECT_THAT(ask(port),
                AllOf(HasSubstr("HTTP/1.1 200 OK"), HasSubstr("\nddp_job_world_size 2\n"),
                      HasSubstr("\nddp_job_restarts_total 1\n"),
                      HasSubstr("\nddp_rank_up{rank=\"1\"} 1\n")));
    const LaunchResult other = launch({"--metrics=" + std::to_string(port), "true"});
    EXPECT_EQ(other.exit_code, 2);
    EXPECT_THAT(other.err, HasSubstr("--metrics: listen on 127.0.0.1:" + std::to_string(port)));
    job.signal(SIGTERM);
    job.wait();
    EXPECT_THAT(ask(port), Not(HasSubstr("ddp_job_restarts_total 1"))) << "nobody, or another";
}

}  // namespace
}  // namespace ddp::launcher::testing
