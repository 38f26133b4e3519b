// Memory for a file, while a timer of the program's goes off all the time.
#include "base/allocate.hpp"

#include "base/unique_fd.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>

#include <cerrno>
#include <csignal>
#include <cstddef>

namespace ddp::base {
namespace {

constexpr std::size_t many_bytes = std::size_t{128} << 20;

std::size_t allocated_bytes(const UniqueFd& file) {
    struct stat status {};
    EXPECT_EQ(::fstat(file.get(), &status), 0);
    EXPECT_EQ(static_cast<std::size_t>(status.st_size), many_bytes);
    return static_cast<std::size_t>(status.st_blocks) * 512;
}

TEST(Allocate, GivesAllOfIt) {
    const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
    EXPECT_EQ(allocate(file.get(), many_bytes), 0);
    EXPECT_GE(allocated_bytes(file), many_bytes);
}

TEST(Allocate, ComesToItsEndUnderATimer) {
    const UniqueFd file(::memfd_create("test", MFD_CLOEXEC));
    struct sigaction before {};
    struct sigaction nothing {};
    nothing.sa_handler = [](int) {};
    ::sigaction(SIGALRM, &nothing, &before);
    const itimerval often{{0, 500}, {0, 500}};
    const itimerval never{};
    ::setitimer(ITIMER_REAL, &often, nullptr);
    EXPECT_EQ(allocate(file.get(), many_bytes), 0);
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before, nullptr);
    EXPECT_GE(allocated_bytes(file), many_bytes);
}

TEST(Allocate, SaysWhyNot) { EXPECT_EQ(allocate(-1, 1), EBADF); }

}  // namespace
}  // namespace ddp::base
