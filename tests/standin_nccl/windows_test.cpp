// Registered memory: windows, which all ranks make together.
#include "standin_nccl/ranks.hpp"

#include <gtest/gtest.h>

#include <array>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <thread>
#include <vector>

namespace {

using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::make_id;
using ddp::testing::misuse_code;
using ddp::testing::NcclRank;
using ddp::testing::on_devices;
using ddp::testing::on_ranks;
using namespace std::chrono_literals;

constexpr std::size_t page = NCCL_WIN_REQUIRED_ALIGNMENT;

// What ncclMemAlloc makes.
class Memory {
public:
    explicit Memory(std::size_t size) {
        void* made = nullptr;
        EXPECT_EQ(ncclMemAlloc(&made, size), ncclSuccess);
        begin = static_cast<std::byte*>(made);
    }
    ~Memory() { EXPECT_EQ(ncclMemFree(begin), ncclSuccess); }
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;

    std::byte* begin = nullptr;
};

ncclResult_t add(ncclComm_t comm, void* memory, std::size_t size, ncclWindow_t& window) {
    return ncclCommWindowRegister(comm, memory, size, &window, NCCL_WIN_COLL_SYMMETRIC);
}

TEST(StandInWindows, AreMadeByAllAndLetGoByEach) {
    on_ranks(3, [](NcclRank& own) {
        const Memory memory(4 * page);
        std::vector<ncclWindow_t> windows(2);
        for (ncclWindow_t& window : windows) {
            ASSERT_EQ(add(own.comm, memory.begin + page, 2 * page, window), ncclSuccess);
            ASSERT_NE(window, nullptr);
        }
        EXPECT_NE(windows[0], windows[1]);
        if (own.rank == 1) {
            for (ncclWindow_t const window : windows) {
                EXPECT_EQ(ncclCommWindowDeregister(own.comm, window), ncclSuccess);
            }
        }
        EXPECT_EQ(ncclCommWindowDeregister(own.comm, nullptr), ncclSuccess);
        EXPECT_EQ(ncclCommDeregister(own.comm, nullptr), ncclSuccess);
        if (own.rank != 1) {
            for (ncclWindow_t const window : windows) {
                EXPECT_EQ(ncclCommWindowDeregister(own.comm, window), ncclSuccess);
            }
        }
    });
}

TEST(StandInWindows, WaitForAllRanks) {
    const ncclUniqueId id = make_id();
    std::barrier both(2);
    on_devices(2, [&](NcclRank& own, int rank) {
        ASSERT_EQ(own.init_without_blocking(2, rank, id), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        const Memory memory(page);
        ncclWindow_t window = nullptr;
        if (rank == 1) both.arrive_and_wait();
        ASSERT_EQ(add(own.comm, memory.begin, page, window), ncclInProgress);
        if (rank == 0) {
            for (int i = 0; i < 100; ++i) EXPECT_EQ(own.state(), ncclInProgress);
            EXPECT_EQ(window, nullptr);
            both.arrive_and_wait();
        }
        ASSERT_EQ(own.settled(), ncclSuccess);
        EXPECT_NE(window, nullptr);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess) << "with its window";
    });
}

TEST(StandInWindows, OfAGroupComeAtItsEnd) {
    const ncclUniqueId id = make_id();
    HostDeviceApi api(2);
    std::array<ncclComm_t, 2> comms{};
    ncclGroupStart();
    for (int rank = 0; rank < 2; ++rank) {
        api.use(rank);
        ASSERT_EQ(ncclCommInitRank(&comms[static_cast<std::size_t>(rank)], 2, id, rank),
                  ncclSuccess);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    std::array<void*, 2> memory{};
    std::array<ncclWindow_t, 2> windows{};
    ncclGroupStart();
    for (std::size_t rank = 0; rank < 2; ++rank) {
        api.use(static_cast<int>(rank));
        ASSERT_EQ(ncclMemAlloc(&memory[rank], page), ncclSuccess);
        ASSERT_EQ(add(comms[rank], memory[rank], page, windows[rank]), ncclSuccess);
        EXPECT_EQ(windows[rank], nullptr);
    }
    ASSERT_EQ(ncclGroupEnd(), ncclSuccess);
    for (std::size_t rank = 0; rank < 2; ++rank) {
        EXPECT_EQ(ncclCommWindowDeregister(comms[rank], windows[rank]), ncclSuccess);
        EXPECT_EQ(ncclMemFree(memory[rank]), ncclSuccess);
        EXPECT_EQ(ncclCommAbort(comms[rank]), ncclSuccess);
    }
}

TEST(StandInWindows, AreOfMemoryOfNcclsFromAPageOn) {
    on_ranks(1, [](NcclRank& own) {
        ncclWindow_t window = nullptr;
        EXPECT_EQ(add(own.comm, own.memory<std::byte>(page), page, window), ncclUnhandledCudaError);
        const Memory memory(2 * page);
        EXPECT_EQ(add(own.comm, memory.begin + 64, page, window), ncclInvalidArgument);
        EXPECT_EQ(window, nullptr);
        EXPECT_EQ(ncclCommWindowRegister(own.comm, memory.begin, page, nullptr, 0),
                  ncclInvalidArgument);
    });
}

TEST(StandInWindows, OfNothingAreRefusedFrom229On) {
    on_ranks(1, [](NcclRank& own) {
        ncclWindow_t window = nullptr;
        EXPECT_EQ(add(own.comm, nullptr, page, window), ncclSuccess);
        const Knob version("VERSION", "23200");
        EXPECT_EQ(add(own.comm, nullptr, page, window), ncclInvalidArgument);
        EXPECT_EQ(window, nullptr);
    });
}

TEST(StandInWindows, AreNoneWhereGpusDoNotReachEachOther) {
    const Knob apart("SYMMETRIC", "0");
    on_ranks(2, [](NcclRank& own) {
        if (own.rank == 1) return;  // nobody waits for it
        const Memory memory(page);
        ncclWindow_t window = nullptr;
        EXPECT_EQ(add(own.comm, memory.begin, page, window), ncclSuccess);
        EXPECT_EQ(ncclCommWindowDeregister(own.comm, window), ncclSuccess);
        const Knob version("VERSION", "23200");
        EXPECT_EQ(add(own.comm, memory.begin, page, window), ncclSuccess);
        EXPECT_EQ(window, nullptr);
        EXPECT_EQ(ncclCommWindowDeregister(own.comm, window), ncclSuccess);
    });
}

// Rank 1 hangs in it, or fails: then nothing but an abort, from another thread, helps rank 0.
TEST(StandInWindows, HangWhereARankDoesNotCome) {
    for (const char* const kind : {"hang:1:window", "fail:1:window:3"}) {
        const Knob fault("FAULTS", kind);
        const ncclUniqueId id = make_id();
        on_devices(2, [&](NcclRank& own, int rank) {
            own.init(2, rank, id);
            const Memory memory(page);
            std::thread side([&] {
                std::this_thread::sleep_for(20ms);
                EXPECT_EQ(ncclGroupStart(), ncclSuccess);
                EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
            });
            ncclWindow_t window = nullptr;
            EXPECT_EQ(add(own.comm, memory.begin, page, window), ncclInternalError);
            EXPECT_EQ(window, nullptr);
            side.join();
            EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        });
    }
}

TEST(StandInWindows, FailInTheBackgroundIfAsked) {
    const Knob fault("FAULTS", "error:0:window:2");
    on_devices(1, [](NcclRank& own, int) {
        ASSERT_EQ(own.init_without_blocking(1, 0, make_id()), ncclInProgress);
        ASSERT_EQ(own.settled(), ncclSuccess);
        const Memory memory(page);
        ncclWindow_t window = nullptr;
        EXPECT_EQ(add(own.comm, memory.begin, page, window), ncclInProgress);
        EXPECT_EQ(own.settled(), ncclSystemError);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
    });
}

class StandInWindowMisuse : public ::testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(StandInWindowMisuse, RanksThatRegisterDifferentSizesOrPlaces) {
    for (const bool other_size : {true, false}) {
        EXPECT_EXIT(on_ranks(2,
                             [&](NcclRank& own) {
                                 const Memory memory(4 * page);
                                 const bool first = own.rank == 0;
                                 ncclWindow_t window = nullptr;
                                 add(own.comm, memory.begin + (first || other_size ? 0 : page),
                                     first || !other_size ? page : 2 * page, window);
                             }),
                    ::testing::ExitedWithCode(misuse_code),
                    "stand-in NCCL: misuse: ncclCommWindowRegister: rank [01] has");
    }
}

TEST_F(StandInWindowMisuse, MemoryThatGoesBeforeItsWindow) {
    EXPECT_EXIT(on_ranks(1,
                         [](NcclRank& own) {
                             const Memory memory(2 * page);
                             ncclWindow_t window = nullptr;
                             add(own.comm, memory.begin + page, page, window);
                         }),
                ::testing::ExitedWithCode(misuse_code), "ncclMemFree of memory that is registered");
}

TEST_F(StandInWindowMisuse, AWindowThatIsLetGoTwice) {
    EXPECT_EXIT(on_ranks(1,
                         [](NcclRank& own) {
                             const Memory memory(page);
                             ncclWindow_t window = nullptr;
                             add(own.comm, memory.begin, page, window);
                             ncclCommWindowDeregister(own.comm, window);
                             ncclCommWindowDeregister(own.comm, window);
                         }),
                ::testing::ExitedWithCode(misuse_code), "ncclCommWindowDeregister: no such window");
}

}  // namespace
