// Memory that processes share, and the allocations made of it: found from any pointer into them,
// and unmapped when the last rank has let go.
#include "backends/shm/region/shared_memory.hpp"
#include "backends/shm/region/shared_allocations.hpp"

#include <ddp/error.hpp>

#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using ddp::base::Deadline;
using ddp::shm::BufferLocation;
using ddp::shm::SharedAllocations;
using ddp::shm::SharedMemory;

constexpr std::size_t stride = 8'192;

// Whether shared memory is mapped there: the allocator may have taken the same address since.
bool is_mapped(const void* page) {
    const auto address = reinterpret_cast<std::uintptr_t>(page);
    std::ifstream maps("/proc/self/maps");
    EXPECT_TRUE(maps.is_open());
    for (std::string line; std::getline(maps, line);) {
        std::uintptr_t first = 0;
        std::uintptr_t end = 0;
        EXPECT_EQ(std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &first, &end), 2) << line;
        if (first <= address && address < end)
            return line.find("memfd:ddp-shm") != std::string::npos;
    }
    return false;
}

TEST(SharedMemory, IsZeroedAlignedAndTheSameForAll) {
    const auto made = SharedMemory::create(10'000, "test");
    const auto opened = SharedMemory::open(made->address(), Deadline::after(10s));
    EXPECT_NE(made->data(), opened->data());
    EXPECT_GE(made->bytes(), 10'000U);
    EXPECT_EQ(made->bytes(), opened->bytes());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(made->data()) % 4'096, 0U);
    EXPECT_EQ(std::count(made->data(), made->data() + made->bytes(), std::byte{0}),
              static_cast<std::ptrdiff_t>(made->bytes()));
    made->data()[9'999] = std::byte{5};
    EXPECT_EQ(opened->data()[9'999], std::byte{5});
    EXPECT_EQ(made->released().fetch_add(1), 0U);
    EXPECT_EQ(opened->released().load(), 1U);
}

// How many pages the memory takes: its creator's descriptor is the second word of its address.
std::size_t pages_taken(const SharedMemory& made) {
    struct stat status {};
    const std::string address = made.address();
    EXPECT_EQ(::fstat(std::stoi(address.substr(address.find(' '))), &status), 0);
    return static_cast<std::size_t>(status.st_blocks) * 512 / 4'096;
}

TEST(SharedMemory, TakesTheRestWhenItIsReserved) {
    constexpr std::size_t page = 4'096;
    const auto made = SharedMemory::create(8 * page, "test", 2 * page);
    const auto opened = SharedMemory::open(made->address(), Deadline::after(10s));
    EXPECT_EQ(made->bytes(), 8 * page);
    if (pages_taken(*made) == 9) GTEST_SKIP() << "a kernel before 5.14 takes all at once";
    EXPECT_EQ(pages_taken(*made), 3U) << "its label and two";
    opened->reserve(3 * page + 100, page);
    EXPECT_EQ(pages_taken(*made), 5U);
    opened->data()[4 * page] = std::byte{3};
    made->reserve(0, 8 * page);
    EXPECT_EQ(pages_taken(*made), 9U);
    EXPECT_EQ(made->data()[4 * page], std::byte{3});
}

TEST(SharedMemory, StaysWithWhoHasItWhenItsMakerGoes) {
    auto made = SharedMemory::create(5'000, "test");
    const auto opened = SharedMemory::open(made->address(), Deadline::after(10s));
    made->data()[1] = std::byte{7};
    made.reset();
    EXPECT_EQ(opened->data()[1], std::byte{7});
}

TEST(SharedMemory, CannotBeOpenedOnceItsDescriptorIsClosed) {
    const auto made = SharedMemory::create(1, "test");
    const std::string address = made->address();
    made->close_descriptor();
    EXPECT_THROW(SharedMemory::open(address, Deadline::after(10s)), ddp::Error);
    made->close_descriptor();
}

TEST(SharedMemory, SaysWhatItWasForWhenThereIsNone) {
    for (const std::size_t bytes : {std::size_t{1} << 50, SIZE_MAX}) {
        try {
            SharedMemory::create(bytes, "memory for the test");
            ADD_FAILURE() << "had " << bytes;
        } catch (const ddp::SystemError& error) {
            EXPECT_EQ(error.code(), ENOMEM);
            EXPECT_EQ(std::string(error.what()).find("memory for the test"), 0U) << error.what();
        }
    }
}

// The allocations of two ranks, as two processes would have them.
class SharedAllocationsTest : public ::testing::Test {
protected:
    // Of two pieces; each rank has its own mapping.
    void allocate() {
        const auto made = SharedMemory::create(2 * stride, "test");
        pieces[0].push_back(ranks[0].add(made, stride));
        pieces[1].push_back(
            ranks[1].add(SharedMemory::open(made->address(), Deadline::after(10s)), stride));
    }
    std::byte* piece(std::size_t rank, std::size_t index) {
        return static_cast<std::byte*>(pieces[rank][index].get());
    }

    SharedAllocations ranks[2]{{0, 2}, {1, 2}};
    std::vector<std::shared_ptr<void>> pieces[2];
};

TEST_F(SharedAllocationsTest, FindEachOthersMemory) {
    allocate();
    allocate();
    for (const std::size_t index : {0U, 1U}) {
        const BufferLocation location = ranks[1].locate(piece(1, index) + 100, 50).location;
        ASSERT_NE(location.allocation, 0U);
        EXPECT_EQ(location.offset, 100U);
        *ranks[0].address(1, location, {0, 1}) = std::byte(10 + index);
        EXPECT_EQ(piece(1, index)[100], std::byte(10 + index));
        EXPECT_EQ(ranks[1].address(1, location, {0, 1}), piece(1, index) + 100);
        EXPECT_NE(ranks[1].address(0, location, {0, 1}), piece(1, index) + 100)
            << "rank 0 has its own";
    }
    EXPECT_NE(ranks[0].locate(piece(0, 0), 1).location.allocation,
              ranks[0].locate(piece(0, 1), 1).location.allocation);
}

TEST_F(SharedAllocationsTest, LocateOnlyWhatLiesWhollyInThisRanksPiece) {
    allocate();
    EXPECT_NE(ranks[0].locate(piece(0, 0), stride).location.allocation, 0U);
    EXPECT_NE(ranks[0].locate(piece(0, 0) + stride - 1, 1).location.allocation, 0U);
    EXPECT_EQ(ranks[0].locate(piece(0, 0) + 1, stride).location.allocation, 0U);
    EXPECT_EQ(ranks[0].locate(piece(0, 0) - 1, 2).location.allocation, 0U);
    EXPECT_EQ(ranks[0].locate(piece(0, 0) + stride, 1).location.allocation, 0U)
        << "the other rank's";
    EXPECT_EQ(ranks[0].locate(piece(0, 0), SIZE_MAX).location.allocation, 0U);
    int elsewhere = 0;
    EXPECT_EQ(ranks[0].locate(&elsewhere, sizeof elsewhere).location.allocation, 0U);
}

TEST_F(SharedAllocationsTest, KeepMemoryThatAPeerStillHolds) {
    allocate();
    const BufferLocation location = ranks[1].locate(piece(1, 0), 1).location;
    pieces[0].clear();
    std::byte* const theirs = ranks[0].address(1, location, {0, 1});
    *theirs = std::byte{3};
    EXPECT_EQ(piece(1, 0)[0], std::byte{3});
    pieces[1].clear();
    ranks[0].locate(nullptr, 1);  // any call lets go of what nobody holds
    EXPECT_FALSE(is_mapped(theirs));
    EXPECT_THROW(ranks[0].address(1, location, {0, 1}), ddp::Error);
}

TEST_F(SharedAllocationsTest, LetGoInAnyOrderAndNumberTheNextAlike) {
    for (int i = 0; i < 3; ++i) allocate();
    std::byte* const second = piece(1, 1);
    pieces[0].erase(pieces[0].begin() + 1);
    pieces[1].erase(pieces[1].begin() + 1);
    EXPECT_FALSE(is_mapped(second));
    allocate();
    const BufferLocation last = ranks[0].locate(piece(0, 2), 1).location;
    EXPECT_EQ(last.allocation, ranks[1].locate(piece(1, 2), 1).location.allocation);
    *ranks[1].address(0, last, {0, 1}) = std::byte{8};
    EXPECT_EQ(piece(0, 2)[0], std::byte{8});
}

TEST(SharedAllocations, LeaveMemoryToWhoHoldsItWhenTheyGo) {
    std::shared_ptr<void> kept;
    {
        SharedAllocations alone(0, 1);
        kept = alone.add(SharedMemory::create(stride, "test"), stride);
        const std::shared_ptr<void> copy = kept;
    }
    static_cast<std::byte*>(kept.get())[stride - 1] = std::byte{1};
    void* const page = kept.get();
    EXPECT_TRUE(is_mapped(page));
    kept.reset();
    EXPECT_FALSE(is_mapped(page));
}

TEST_F(SharedAllocationsTest, MayBeLetGoOnOtherThreads) {
    for (int i = 0; i < 50; ++i) allocate();
    std::jthread first([this] { pieces[0].clear(); });
    std::jthread second([this] { pieces[1].clear(); });
    for (int i = 0; i < 50; ++i) ranks[0].locate(&first, 1);
}

}  // namespace
