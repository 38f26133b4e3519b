// A queue in front of descriptors that are full, gone or broken.
#include "launcher/console/output.hpp"

#include "base/unique_fd.hpp"
#include "launcher/launch_fixture.hpp"
#include "launcher/pseudo_terminal.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <iterator>

namespace ddp::launcher {
namespace {

struct Pipe {
    base::UniqueFd read_end;
    base::UniqueFd write_end;

    Pipe() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
        read_end.reset(ends[0]);
        write_end.reset(ends[1]);
    }
    std::string read_some() const {
        std::array<char, 65536> bytes;
        const ssize_t got = ::read(read_end.get(), bytes.data(), bytes.size());
        return {bytes.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
    }
};

std::string numbered_lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "line " + std::to_string(i) + "\n";
    return text;
}

TEST(Output, AFullPipeIsNotWaitedForAndNothingIsLost) {
    const Pipe pipe;
    Output output(pipe.write_end.get());
    const std::string text = numbered_lines(100'000);
    output.write(text);  // returns although nobody reads; the pipe's descriptor is a blocking one
    EXPECT_GT(output.queued_bytes(), 0U);
    EXPECT_EQ(::fcntl(pipe.write_end.get(), F_GETFL) & O_NONBLOCK, 0);
    std::string got;
    while (got.size() < text.size()) {
        got += pipe.read_some();
        output.pump();
    }
    EXPECT_EQ(got, text);
    EXPECT_EQ(output.queued_bytes(), 0U);
}

// As terminals are, with "\r\n" for a newline: what fits is not known from poll() alone.
void write_to_a_full_terminal(int fd) {
    constexpr unsigned patience_s = 20;
    ::alarm(patience_s);  // a write that waits would wait for good
    termios modes{};
    ::tcgetattr(fd, &modes);
    modes.c_oflag |= ONLCR;
    ::tcsetattr(fd, TCSANOW, &modes);
    Output output(fd);
    output.write(numbered_lines(100'000));
    ::_exit(output.queued_bytes() > 0 ? 0 : 1);
}

TEST(Output, AFullTerminalIsNotWaitedFor) {
    testing::PseudoTerminal terminal;
    EXPECT_EXIT(write_to_a_full_terminal(terminal.theirs()), ::testing::ExitedWithCode(0), "");
}

// Somebody else's, who cannot open it: after su, for example.
TEST(Output, NorIsOneThatCannotBeOpenedAgain) {
    testing::PseudoTerminal terminal;
    ASSERT_EQ(::fchmod(terminal.theirs(), 0), 0);
    const auto write_as_nobody = [&] {
        constexpr uid_t nobody = 65534;
        if (::geteuid() == 0 && ::setuid(nobody) != 0) ::_exit(2);
        write_to_a_full_terminal(terminal.theirs());
    };
    EXPECT_EXIT(write_as_nobody(), ::testing::ExitedWithCode(0), "");
}

TEST(Output, AReaderThatIsGoneSwallowsTheRestQuietly) {
    std::signal(SIGPIPE, SIG_IGN);
    Pipe pipe;
    Output output(pipe.write_end.get());
    pipe.read_end.reset();
    output.write("lost\n");
    EXPECT_TRUE(output.gone());
    EXPECT_TRUE(output.reader_is_gone());
    EXPECT_EQ(output.queued_bytes(), 0U);
    EXPECT_EQ(output.take_problem(), 0);
    output.write("lost too\n");
    EXPECT_EQ(output.queued_bytes(), 0U);
}

TEST(Output, AFullDiskIsAProblemThatIsToldOnce) {
    const base::UniqueFd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(full);
    Output output(full.get());
    output.write("x\n");
    EXPECT_TRUE(output.gone());
    EXPECT_FALSE(output.reader_is_gone());
    EXPECT_EQ(output.take_problem(), ENOSPC);
    EXPECT_EQ(output.take_problem(), 0);
}

TEST(Output, GivingUpDropsWhatWaits) {
    const Pipe pipe;
    Output output(pipe.write_end.get());
    output.write(numbered_lines(100'000));
    output.give_up();
    EXPECT_EQ(output.queued_bytes(), 0U);
    EXPECT_TRUE(output.gone());
}

TEST(Output, AFileIsWrittenWhereItsDescriptorStands) {
    const testing::TemporaryFolder folder;
    const std::string path = folder.path() + "/log";
    const base::UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(file.get(), "before\n", 7), 7);
    Output output(file.get());
    output.write("after\n");
    EXPECT_EQ(output.queued_bytes(), 0U);
    std::ifstream text(path);
    EXPECT_EQ((std::string{std::istreambuf_iterator<char>(text), {}}), "before\nafter\n");
}

}  // namespace
}  // namespace ddp::launcher
