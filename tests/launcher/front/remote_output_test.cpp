// What comes from several hosts, on one output.
#include "launcher/front/remote_output.hpp"

#include "base/unique_fd.hpp"
#include "launcher/hosts/start/job_description.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <string>

namespace ddp::launcher {
namespace {

using namespace std::chrono_literals;

struct OutputPipes {
    OutputPipes() {
        for (std::array<int, 2>& pipe : ends) {
            EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC | O_NONBLOCK), 0);
        }
    }
    ~OutputPipes() {
        for (const std::array<int, 2>& pipe : ends) {
            for (const int fd : pipe) ::close(fd);
        }
    }
    std::string read(Stream stream) const {
        std::string text;
        std::array<char, 65536> bytes;
        const int fd = ends[stream == Stream::out ? 0 : 1][0];
        for (ssize_t got; (got = ::read(fd, bytes.data(), bytes.size())) > 0;) {
            text.append(bytes.data(), static_cast<std::size_t>(got));
        }
        return text;
    }
    std::string read_all(RemoteOutput& output) const {
        std::string text;
        while (!output.is_idle()) {
            text += read(Stream::out);
            output.run(RemoteOutput::Clock::now(), {});
        }
        return text + read(Stream::out);
    }

    std::array<std::array<int, 2>, 2> ends{};
};

TEST(RemoteOutput, StatusLinesOfLaunchersAreNoOutput) {
    OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1], "greeting 7");
    const std::string status =
        status_line_for_starter("greeting 7", {.hosts = 3, .workers = 6, .running = 5});
    output.put(1, Stream::err, "before\n" + status.substr(0, 12));
    EXPECT_FALSE(output.has_status());
    output.put(1, Stream::err, status.substr(12) + "greeting 7 status of mine\n");
    EXPECT_TRUE(output.has_status());
    output.put(1, Stream::err, end_line_for_starter("greeting 7", 84));
    EXPECT_EQ(output.job_code(), 84);
    output.put(1, Stream::out, status);
    output.run(RemoteOutput::Clock::now(), {});
    EXPECT_EQ(pipes.read(Stream::err), "before\ngreeting 7 status of mine\n");
    EXPECT_EQ(pipes.read(Stream::out), status) << "a worker's";
    output.end_status();
    EXPECT_FALSE(output.has_status());
}

TEST(RepeatedWords, OfLaunchersAreShownOnce) {
    RepeatedWords words;
    EXPECT_EQ(words.without_repeated(0, "ddp-launch: a\nddp-launch: b\n"),
              "ddp-launch: a\nddp-launch: b\n");
    EXPECT_EQ(words.without_repeated(1, "ddp-launch: b\nddp-launch: c\n"), "ddp-launch: c\n");
    EXPECT_EQ(words.without_repeated(2, "b\nddp-launch: a\nb\n"), "b\nb\n");
}

// A restart says the same again, on every host.
TEST(RepeatedWords, OfOneHostAreShownAsOftenAsItSaysThem) {
    RepeatedWords words;
    const std::string line = "ddp-launch: restart\n";
    EXPECT_EQ(words.without_repeated(0, line), line);
    EXPECT_EQ(words.without_repeated(0, line), line);
    EXPECT_EQ(words.without_repeated(1, line), "");
    EXPECT_EQ(words.without_repeated(1, line), "");
    EXPECT_EQ(words.without_repeated(1, line), line);
    EXPECT_EQ(words.without_repeated(0, line), "");
}

TEST(RepeatedWords, OfAReportAreNotToldOfAgain) {
    RepeatedWords words;
    words.without_repeated(1, "ddp-launch: rank 1 failed: exit code 7\n");
    EXPECT_EQ(words.without_repeated(2, "ddp-launch: rank 1 failed: exit code 7 on host h2\n"), "");
    const std::string other = "ddp-launch: rank 2 failed: exit code 7 on host h2\n";
    EXPECT_EQ(words.without_repeated(2, other), other);
}

TEST(RemoteOutput, LinesOfHostsNeverMix) {
    const OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1]);
    output.put(0, Stream::out, "one ");
    output.put(1, Stream::out, "two\nthree");
    output.put(0, Stream::out, "line\n");
    output.put(0, Stream::err, "aside\n");
    output.end(1, Stream::out);
    output.end(0, Stream::out);
    EXPECT_EQ(pipes.read(Stream::out), "two\none line\nthree\n");
    EXPECT_EQ(pipes.read(Stream::err), "aside\n");
    EXPECT_TRUE(output.is_idle());
}

TEST(RemoteOutput, APieceOfAVeryLongLineIsEndedBeforeAnothersLine) {
    const OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1]);
    const std::string piece(LineCutter::default_limit, 'x');
    output.put(0, Stream::out, piece);
    output.put(1, Stream::out, "two\n");
    output.put(0, Stream::out, "rest\n");
    EXPECT_TRUE(pipes.read_all(output) == piece + "\ntwo\nrest\n");
}

TEST(RemoteOutput, AsksForNoMoreWhileTheReaderTakesNothing) {
    const OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1]);
    const std::string lines(1000, '\n');
    std::size_t put = 0;
    for (; output.takes(Stream::out); put += lines.size()) output.put(0, Stream::out, lines);
    EXPECT_LT(put, std::size_t{1} << 20);
    EXPECT_TRUE(output.takes(Stream::err));
    EXPECT_EQ(pipes.read_all(output).size(), put);
    EXPECT_TRUE(output.takes(Stream::out));
}

TEST(RemoteOutput, AStuckOutputIsGivenUpOnlyWhenTheJobIsToldToStop) {
    const OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1]);
    while (output.takes(Stream::out)) output.put(0, Stream::out, std::string(1000, '\n'));
    const auto now = RemoteOutput::Clock::now();
    output.run(now + 1h, {});
    EXPECT_FALSE(output.is_idle());
    output.run(now + 1h, now + 1h);
    EXPECT_FALSE(output.is_idle());
    output.run(now + 1h + 3s, now + 1h);
    EXPECT_TRUE(output.is_idle());
}

TEST(RemoteOutput, AReaderThatIsGoneIsNoticed) {
    OutputPipes pipes;
    RemoteOutput output(pipes.ends[0][1], pipes.ends[1][1]);
    ::close(pipes.ends[0][0]);
    pipes.ends[0][0] = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    output.put(0, Stream::out, "line\n");
    std::signal(SIGPIPE, before);
    EXPECT_TRUE(output.lost_its_reader(Stream::out));
    EXPECT_FALSE(output.lost_its_reader(Stream::err));
    EXPECT_TRUE(output.is_idle());
}

}  // namespace
}  // namespace ddp::launcher
