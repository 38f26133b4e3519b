// The shared region: found by its address only, refused when it is something else, and nameless.
#include "backends/shm/shared_region.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>

namespace {

using namespace std::chrono_literals;
using ddp::shm::SharedRegion;

std::shared_ptr<SharedRegion> open_at(const std::string& address) {
    return SharedRegion::open(address, ddp::base::Deadline::after(10s));
}

TEST(SharedRegion, IsTheSameMemoryForWhoOpensIt) {
    const auto made = SharedRegion::create(3, 4096);
    const auto opened = open_at(made->address());
    made->slot(2, 1)[5] = std::byte{42};
    EXPECT_EQ(opened->slot(2, 1)[5], std::byte{42});
    EXPECT_EQ(opened->ranks(), 3);
    EXPECT_EQ(opened->slot_bytes(), 4096U);
}

TEST(SharedRegion, KeepsSlotsApart) {
    const auto region = SharedRegion::create(2, 4096);
    for (int rank = 0; rank < 2; ++rank) {
        for (std::uint32_t parity = 0; parity < 2; ++parity) {
            std::fill_n(region->slot(rank, parity), 4096, std::byte(10 * rank + int(parity) + 1));
        }
    }
    std::fill_n(region->result(0), 4096, std::byte{77});
    std::fill_n(region->result(1), 4096, std::byte{88});
    EXPECT_EQ(region->slot(0, 0)[4095], std::byte{1});
    EXPECT_EQ(region->slot(0, 1)[0], std::byte{2});
    EXPECT_EQ(region->slot(1, 0)[4095], std::byte{11});
    EXPECT_EQ(region->slot(1, 1)[4095], std::byte{12});
    EXPECT_EQ(region->result(0)[4095], std::byte{77});
}

TEST(SharedRegion, CannotBeOpenedOnceItsDescriptorIsClosed) {
    const auto region = SharedRegion::create(1, 4096);
    const std::string address = region->address();
    region->close_descriptor();
    EXPECT_THROW(open_at(address), ddp::Error);
}

// Where /proc/<pid>/fd leads nowhere, as in a process that is not dumpable, the socket remains.
TEST(SharedRegion, IsHandedOverWhereProcIsClosed) {
    const auto made = SharedRegion::create(2, 4096);
    std::istringstream fields(made->address());
    std::string pid;
    std::string fd;
    std::string rest;
    fields >> pid >> fd;
    std::getline(fields, rest);
    const std::string no_such_fd = "987654321";
    const auto opened = open_at(pid + " " + no_such_fd + rest);
    made->slot(1, 0)[7] = std::byte{9};
    EXPECT_EQ(opened->slot(1, 0)[7], std::byte{9});
    EXPECT_THROW(open_at("1 " + no_such_fd + rest), ddp::UsageError) << "trusts any answer";
}

TEST(SharedRegion, RefusesWhatIsNotTheRegion) {
    const auto region = SharedRegion::create(1, 4096);
    const auto other = SharedRegion::create(1, 4096);
    std::istringstream fields(region->address());
    std::string pid;
    std::string fd;
    fields >> pid >> fd;
    EXPECT_THROW(open_at(pid + " " + fd + " 1 -"), ddp::UsageError);
    EXPECT_THROW(open_at("nonsense"), ddp::UsageError);
    EXPECT_THROW(open_at(std::to_string(::getpid()) + " 0 1 -"), ddp::Error);
    EXPECT_THROW(open_at("999999999 3 1 -"), ddp::SystemError);
}

TEST(SharedRegion, NamesTheBytesThatItCannotHave) {
    try {
        SharedRegion::create(4096, std::size_t{1} << 36);
        FAIL() << "512 TiB were allocated";
    } catch (const ddp::SystemError& error) {
        EXPECT_NE(std::string(error.what()).find("bytes of shared memory for 4096 ranks"),
                  std::string::npos)
            << error.what();
    }
}

TEST(SharedRegion, HasNoNameInTheFileSystem) {
    const auto region = SharedRegion::create(2, 4096);
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        EXPECT_EQ(entry.path().filename().string().find("ddp"), std::string::npos);
    }
}

}  // namespace
