// The shared region: found by its address only, refused when it is something else, and nameless.
#include "backends/shm/region/shared_region.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace std::chrono_literals;
using ddp::shm::SharedRegion;

// With slots of 4 KiB.
std::shared_ptr<SharedRegion> create(int ranks) {
    return SharedRegion::create(ranks, ddp::shm::make_tuning(ranks, 2, "chunk_bytes=4K"));
}

std::shared_ptr<SharedRegion> open_at(const std::string& address, int ranks = 1) {
    return SharedRegion::open(address, ranks, ddp::base::Deadline::after(10s));
}

TEST(SharedRegion, IsTheSameMemoryForWhoOpensIt) {
    const auto made = create(3);
    const auto opened = open_at(made->address(), 3);
    made->slot(2, 1)[5] = std::byte{42};
    EXPECT_EQ(opened->slot(2, 1)[5], std::byte{42});
    EXPECT_EQ(opened->ranks(), 3);
    EXPECT_EQ(opened->slot_bytes(), 4096U);
}

// Fills everything there is, each part with a number of its own, then looks whether all are whole.
TEST(SharedRegion, KeepsItsPartsApart) {
    constexpr int ranks = 3;
    const auto region = create(ranks);
    std::vector<std::span<std::byte>> parts;
    for (int rank = 0; rank < ranks; ++rank) {
        for (std::uint64_t chunk = 0; chunk < ddp::shm::slots_per_rank; ++chunk) {
            parts.push_back({region->slot(rank, chunk), 4096});
        }
        for (const std::uint64_t parity : {0U, 1U}) {
            auto* const counts = reinterpret_cast<std::byte*>(region->parts(rank, parity));
            parts.push_back({counts, 2 * ranks * sizeof(std::uint64_t)});
        }
        auto* const block = reinterpret_cast<std::byte*>(&region->block(rank));
        parts.push_back({block, sizeof(ddp::shm::RankBlock)});
        for (int to = 0; to < ranks; ++to) {
            auto* const channel = reinterpret_cast<std::byte*>(&region->channel(rank, to));
            parts.push_back({channel, sizeof(ddp::shm::Channel)});
            for (std::uint64_t chunk = 0; chunk < ddp::shm::channel_slots; ++chunk) {
                parts.push_back(
                    {region->channel_slot(rank, to, chunk), region->channel_slot_room()});
            }
        }
    }
    for (std::uint64_t chunk = 0; chunk < ddp::shm::slots_per_rank; ++chunk) {
        parts.push_back({region->result(chunk), 4096});
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        std::fill(parts[i].begin(), parts[i].end(), std::byte(1 + i % 251));
    }
    for (std::size_t i = 0; i < parts.size(); ++i) {
        EXPECT_EQ(std::count(parts[i].begin(), parts[i].end(), std::byte(1 + i % 251)),
                  static_cast<std::ptrdiff_t>(parts[i].size()))
            << "part " << i;
    }
    EXPECT_EQ(region->slot(1, 5), region->slot(1, 1)) << "four slots, used in turn";
}

TEST(SharedRegion, CannotBeOpenedOnceItsDescriptorIsClosed) {
    const auto region = create(1);
    const std::string address = region->address();
    region->close_descriptor();
    EXPECT_THROW(open_at(address), ddp::Error);
}

// Where /proc/<pid>/fd leads nowhere, as in a process that is not dumpable, the socket remains.
TEST(SharedRegion, IsHandedOverWhereProcIsClosed) {
    const auto made = create(2);
    std::istringstream fields(made->address());
    std::string pid;
    std::string fd;
    std::string rest;
    fields >> pid >> fd;
    std::getline(fields, rest);
    const std::string no_such_fd = "987654321";
    const auto opened = open_at(pid + " " + no_such_fd + rest, 2);
    made->slot(1, 0)[7] = std::byte{9};
    EXPECT_EQ(opened->slot(1, 0)[7], std::byte{9});
    EXPECT_THROW(open_at("1 " + no_such_fd + rest, 2), ddp::UsageError) << "trusts any answer";
}

TEST(SharedRegion, RefusesWhatIsNotTheRegion) {
    const auto region = create(1);
    const auto other = create(1);
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
        ddp::shm::Tuning tuning{};
        tuning.staged.chunk_bytes = std::uint64_t{1} << 36;
        SharedRegion::create(4096, tuning);
        FAIL() << "512 TiB were allocated";
    } catch (const ddp::SystemError& error) {
        EXPECT_NE(std::string(error.what()).find("bytes of shared memory for 4096 ranks"),
                  std::string::npos)
            << error.what();
    }
}

TEST(SharedRegion, HasNoNameInTheFileSystem) {
    const auto region = create(2);
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
        EXPECT_EQ(entry.path().filename().string().find("ddp"), std::string::npos);
    }
}

}  // namespace
