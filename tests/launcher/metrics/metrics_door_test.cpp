// Guests of all manners, over a Unix socket, in one thread with the door.
#include "launcher/metrics/metrics_door.hpp"

#include "base/net/socket.hpp"
#include "launcher/launch_fixture.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Poller::Tag tag = Poller::Tag{3} << 32;

class MetricsDoorTest : public ::testing::Test {
protected:
    MetricsDoorTest() { open({.patience = 1h, .fresh = 1h}); }
    void open(MetricsDoor::Times times) {
        door_.reset();
        door_.emplace(events_, tag, MetricsListener({.path = path()}), times);
    }

    std::string path() const { return folder_.path() + "/socket"; }
    base::UniqueFd come() const {
        base::UniqueFd guest(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        path().copy(address.sun_path, sizeof address.sun_path - 1);
        EXPECT_EQ(
            ::connect(guest.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return guest;
    }
    static void say(const base::UniqueFd& guest, const std::string& words) {
        EXPECT_EQ(::send(guest.get(), words.data(), words.size(), MSG_NOSIGNAL),
                  static_cast<ssize_t>(words.size()));
    }
    // All that is to be done now.
    void serve() {
        while (true) {
            const auto tags = events_.wait(Poller::Clock::now() + 5ms);
            if (tags.empty()) return;
            for (const Poller::Tag one : tags) {
                door_->run_ready(one & 0xffffffff, [&](MetricsFormat format) {
                    ++looks_;
                    return format == MetricsFormat::openmetrics ? open_ : text_;
                });
            }
        }
    }
    // What has come so far; nothing: the door has not answered, and is open.
    static std::optional<std::string> hear(const base::UniqueFd& guest) {
        std::string text(1 << 20, '\0');
        const ssize_t n = ::recv(guest.get(), text.data(), text.size(), 0);
        if (n < 0) return std::nullopt;
        text.resize(static_cast<std::size_t>(n));
        return text;
    }
    std::string answer_to(const std::string& words) {
        const base::UniqueFd guest = come();
        say(guest, words);
        std::string answer;
        for (int i = 0; i < 1000; ++i) {
            serve();
            const auto part = hear(guest);
            if (part && part->empty()) return answer;
            answer += part.value_or("");
        }
        ADD_FAILURE() << "no end";
        return answer;
    }

    const testing::TemporaryFolder folder_;
    Poller events_;
    std::string text_ = "text 1\n";
    std::string open_ = "open 1\n# EOF\n";
    int looks_ = 0;
    std::optional<MetricsDoor> door_;
};

TEST_F(MetricsDoorTest, AnswersWhoeverAsks) {
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 7\r\n"),
                      HasSubstr("Connection: close\r\n"), EndsWith("\r\n\r\ntext 1\n")));
    EXPECT_THAT(answer_to("GET /metrics?a=b HTTP/1.0\r\naccept: "
                          "application/openmetrics-text;version=1.0.0,*/*\r\n\r\n"),
                AllOf(HasSubstr("application/openmetrics-text"), EndsWith("# EOF\n")));
    EXPECT_THAT(answer_to("HEAD /metrics HTTP/1.1\r\n\r\n"),
                AllOf(HasSubstr("Content-Length: 7\r\n"), EndsWith("\r\n\r\n")));
}

TEST_F(MetricsDoorTest, SaysWhatIsWrong) {
    EXPECT_THAT(answer_to("GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
    EXPECT_THAT(answer_to("POST /metrics HTTP/1.1\r\n\r\n"),
                AllOf(StartsWith("HTTP/1.1 405 "), HasSubstr("Allow: GET, HEAD\r\n")));
    EXPECT_THAT(answer_to("\x16\x03\x01 hello\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\nA: " + std::string(9000, 'a')),
                StartsWith("HTTP/1.1 400 "));
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n" + std::string(2000, '\0') + "\r\n\r\n"),
                StartsWith("HTTP/1.1 400 "));
    EXPECT_EQ(looks_, 0);
}

TEST_F(MetricsDoorTest, WaitsForTheWholeRequestOfOneAndServesOthers) {
    const base::UniqueFd slow = come();
    for (const char c : std::string("GET /metrics HTTP/1.1\r\nHost: x\r\n\r")) {
        say(slow, {c});
        serve();
        EXPECT_FALSE(hear(slow));
    }
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("text 1\n"));
    say(slow, "\n");
    serve();
    EXPECT_THAT(hear(slow).value_or(""), EndsWith("text 1\n"));
    EXPECT_EQ(looks_, 1) << "it is fresh";
}

TEST_F(MetricsDoorTest, HandsOverAsFastAsAGuestReads) {
    text_ = std::string(std::size_t{3} << 20, 'x');
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("\r\n\r\n" + text_));
    const base::UniqueFd gone = come();
    say(gone, "GET /metrics HTTP/1.1\r\n\r\n");
    serve();
    ::shutdown(gone.get(), SHUT_RDWR);
    serve();
    EXPECT_THAT(answer_to("HEAD /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST_F(MetricsDoorTest, LetsInFewAndWhoIsSilentMakesRoom) {
    std::vector<base::UniqueFd> silent;
    for (std::size_t i = 0; i < MetricsDoor::most_guests; ++i) silent.push_back(come());
    serve();
    const base::UniqueFd refused = come();
    serve();
    EXPECT_EQ(hear(refused), "") << "closed";
    open({.patience = 0ms});
    silent.clear();
    for (std::size_t i = 0; i < MetricsDoor::most_guests; ++i) {
        silent.push_back(come());
        serve();
    }
    EXPECT_THAT(answer_to("GET /metrics HTTP/1.1\r\n\r\n"), EndsWith("text 1\n"));
    EXPECT_EQ(hear(silent[0]), "") << "closed";
    EXPECT_EQ(hear(silent[1]), std::nullopt);
}

// Over TCP a close with something unread would be a reset.
TEST_F(MetricsDoorTest, TellsAlsoWhoSendsTooMuch) {
    MetricsListener listener({.host = "127.0.0.1"});
    const std::string where = listener.where();
    const std::string port = where.substr(where.rfind(':') + 1);
    door_.reset();
    door_.emplace(events_, tag, std::move(listener));
    int error = 0;
    const base::UniqueFd guest =
        base::try_connect_tcp("127.0.0.1", static_cast<std::uint16_t>(std::stoi(port)),
                              base::Deadline::after(20s), error);
    ASSERT_TRUE(guest) << error;
    say(guest, "GET /metrics HTTP/1.1\r\nA: " + std::string(30'000, 'a'));
    std::string answer;
    for (int i = 0; i < 1000; ++i) {
        serve();
        const auto part = hear(guest);
        if (part && part->empty()) break;
        answer += part.value_or("");
    }
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 400 "), EndsWith("no HTTP request\n")));
}

TEST_F(MetricsDoorTest, OwnsItsSocketFileAndNoOther) {
    struct stat file {};
    ASSERT_EQ(::stat(path().c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0600U);
    EXPECT_THROW(MetricsListener({.path = path()}), UsageError) << "it is served";
    door_.reset();
    EXPECT_FALSE(std::filesystem::exists(path()));
    { const MetricsListener killed({.path = path()}); }
    EXPECT_TRUE(std::filesystem::exists(path()));
    {
        const MetricsListener robbed({.path = path()});
        std::filesystem::remove(path());
        std::ofstream(path()) << "another's";
        robbed.remove_file();
        EXPECT_TRUE(std::filesystem::exists(path()));
        std::filesystem::remove(path());
    }
    EXPECT_NO_THROW(MetricsListener({.path = path()}));
    std::ofstream(folder_.path() + "/file") << "precious";
    EXPECT_THROW(MetricsListener({.path = folder_.path() + "/file"}), UsageError);
    EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/file"));
    EXPECT_THROW(MetricsListener({.path = folder_.path() + "/none/socket"}), UsageError);
}

}  // namespace
}  // namespace ddp::launcher
