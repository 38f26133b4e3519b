#include "base/net/pass_descriptor.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>

namespace ddp::base {
namespace {

class PassDescriptor : public ::testing::Test {
protected:
    PassDescriptor() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
        here = UniqueFd(ends[0]);
        there = UniqueFd(ends[1]);
    }
    Received receive() { return receive_with_descriptor(there.get(), bytes); }

    UniqueFd here;
    UniqueFd there;
    std::array<char, 8> bytes{};
};

TEST_F(PassDescriptor, GivesAnotherOfTheSameFile) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    const UniqueFd read_end(pipe[0]);
    const UniqueFd write_end(pipe[1]);
    ASSERT_TRUE(send_descriptor(here.get(), write_end.get()));
    const Received received = receive();
    EXPECT_EQ(received.bytes, 1);
    EXPECT_FALSE(received.is_lost);
    ASSERT_TRUE(received.descriptor);
    EXPECT_NE(received.descriptor.get(), write_end.get());
    EXPECT_EQ(::fcntl(received.descriptor.get(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    ASSERT_EQ(::write(received.descriptor.get(), "x", 1), 1);
    char byte = 0;
    ASSERT_EQ(::read(read_end.get(), &byte, 1), 1);
    EXPECT_EQ(byte, 'x');
}

TEST_F(PassDescriptor, TakesAMessageThatHasNone) {
    ASSERT_EQ(::send(here.get(), "words", 5, 0), 5);
    const Received received = receive();
    EXPECT_EQ(received.bytes, 5);
    EXPECT_FALSE(received.descriptor);
    EXPECT_EQ(std::string(bytes.data(), 5), "words");
}

TEST_F(PassDescriptor, WaitsForNothing) {
    EXPECT_EQ(receive().bytes, -1);
    EXPECT_EQ(errno, EAGAIN);
    here.reset();
    EXPECT_EQ(receive().bytes, 0);
}

TEST_F(PassDescriptor, TellsThatItIsNotSent) {
    there.reset();
    EXPECT_FALSE(send_descriptor(here.get(), here.get()));
    EXPECT_EQ(errno, EPIPE);
}

TEST_F(PassDescriptor, TellsThatThereWasNoPlaceForIt) {
    ASSERT_TRUE(send_descriptor(here.get(), here.get()));
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    rlimit none = before;
    none.rlim_cur = 0;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const Received received = receive();
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(received.bytes, 1);
    EXPECT_FALSE(received.descriptor);
    EXPECT_TRUE(received.is_lost);
}

}  // namespace
}  // namespace ddp::base
