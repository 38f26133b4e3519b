// Where bodies run, and what comes of their exceptions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddp/device_threads.hpp>
#include <ddp/error.hpp>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "data_parallel/cpu_devices.hpp"

namespace {

using namespace ddp;
using namespace ddp::testing;
using ::testing::HasSubstr;

class DeviceThreads : public ::testing::Test {
protected:
    CpuDevices cpus_{8};
    ddp::DeviceThreads threads_{first_cpus(4)};
};

// What `thrown` becomes in replica 1.
template <class Class, class Thrown>
std::string text_of(ddp::DeviceThreads& threads, const Thrown& thrown) {
    try {
        threads.run(2, [&](std::size_t replica) {
            if (replica == 1) throw thrown;
        });
    } catch (const Class& error) {
        return error.what();
    }
    return "nothing";
}

TEST_F(DeviceThreads, RunEachBodyUnderItsDeviceOnAThreadThatStays) {
    std::vector<std::thread::id> first(4);
    for (int call = 0; call < 3; ++call) {
        std::vector<std::thread::id> ids(4);
        std::vector<Device> devices(4);
        threads_.run(4, [&](std::size_t replica) {
            ids[replica] = std::this_thread::get_id();
            devices[replica] = DeviceScope::current();
        });
        EXPECT_EQ(devices, first_cpus(4));
        EXPECT_EQ(ids[0], std::this_thread::get_id());
        EXPECT_NE(ids[1], ids[0]);
        EXPECT_NE(ids[1], ids[2]);
        EXPECT_TRUE(call == 0 || ids == first);
        first = ids;
    }
}

TEST_F(DeviceThreads, RunAllBodiesAtOnce) {
    std::mutex mutex;
    std::condition_variable all_here;
    int here = 0;
    threads_.run(4, [&](std::size_t) {
        std::unique_lock lock(mutex);
        if (++here == 4) all_here.notify_all();
        EXPECT_TRUE(all_here.wait_for(lock, std::chrono::seconds{20}, [&] { return here == 4; }));
    });
}

TEST_F(DeviceThreads, RunOnlyTheFirstFew) {
    std::vector<std::atomic<int>> ran(4);
    threads_.run(2, [&](std::size_t replica) { ++ran[replica]; });
    threads_.run(1, [&](std::size_t replica) { ++ran[replica]; });
    EXPECT_EQ(ran[0], 2);
    EXPECT_EQ(ran[1], 1);
    EXPECT_EQ(ran[2] + ran[3], 0);
}

TEST_F(DeviceThreads, NameTheReplicaAndKeepTheClass) {
    const std::string where = "replica 1 on cpu:1: ";
    EXPECT_EQ(text_of<UsageError>(threads_, UsageError("no")), where + "no");
    EXPECT_EQ(text_of<TimeoutError>(threads_, TimeoutError("late")), where + "late");
    EXPECT_EQ(text_of<std::out_of_range>(threads_, std::out_of_range("far")), where + "far");
    EXPECT_EQ(text_of<std::runtime_error>(threads_, std::runtime_error("x")), where + "x");
    EXPECT_EQ(text_of<SystemError>(threads_, SystemError("open a", ENOENT)),
              where + "open a: No such file or directory");
    EXPECT_EQ(text_of<BackendError>(threads_, BackendError("cuda", 2, "oom")),
              "cuda: " + where + "oom");
    EXPECT_EQ(text_of<PeerError>(threads_, PeerError(3, "gone")), where + "gone");
    const std::system_error from_system(ENOENT, std::generic_category(), "open");
    EXPECT_EQ(text_of<std::runtime_error>(threads_, from_system), where + from_system.what());
    EXPECT_EQ(text_of<Error>(threads_, std::bad_alloc()), where + "std::bad_alloc");
    EXPECT_EQ(text_of<Error>(threads_, 7), where + "an exception that is no std::exception");
}

TEST_F(DeviceThreads, NestTheOriginalException) {
    struct Mine : std::runtime_error {
        Mine() : std::runtime_error("mine"), number(42) {}
        int number;
    };
    int number = 0;
    try {
        threads_.run(3, [](std::size_t replica) {
            if (replica == 2) throw Mine();
        });
    } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "replica 2 on cpu:2: mine");
        try {
            std::rethrow_if_nested(error);
        } catch (const Mine& original) {
            number = original.number;
        }
    }
    EXPECT_EQ(number, 42);
}

TEST_F(DeviceThreads, WaitForTheOthersBeforeTheyThrow) {
    for (int call = 0; call < 100; ++call) {
        std::atomic<bool> failed = false;
        std::atomic<int> begun = 0;
        std::atomic<int> ended = 0;
        EXPECT_THROW(threads_.run(4,
                                  [&](std::size_t replica) {
                                      if (replica == 0) {
                                          failed = true;
                                          throw UsageError("no");
                                      }
                                      ++begun;
                                      while (!failed) std::this_thread::yield();
                                      ++ended;
                                  }),
                     UsageError);
        EXPECT_EQ(begun, ended);
    }
}

TEST_F(DeviceThreads, ThrowForTheFirstDeviceOfSeveralThatFail) {
    std::mutex mutex;
    std::condition_variable both_here;
    int here = 0;
    EXPECT_THAT(
        [&] {
            threads_.run(4, [&](std::size_t replica) {
                if (replica == 0 || replica == 2) return;
                std::unique_lock lock(mutex);
                if (++here == 2) both_here.notify_all();
                both_here.wait_for(lock, std::chrono::seconds{20}, [&] { return here == 2; });
                throw UsageError("no");
            });
        },
        ::testing::ThrowsMessage<UsageError>("replica 1 on cpu:1: no"));
    threads_.run(4, [](std::size_t) {});  // and forget it
}

TEST_F(DeviceThreads, RefuseACallInsideAnother) {
    EXPECT_THAT([&] { threads_.run(1, [&](std::size_t) { threads_.run(1, [](std::size_t) {}); }); },
                ::testing::ThrowsMessage<UsageError>(HasSubstr("finish one call before the next")));
}

TEST_F(DeviceThreads, RefuseMoreReplicasThanDevicesAndNone) {
    EXPECT_THROW(threads_.run(5, [](std::size_t) {}), UsageError);
    EXPECT_THROW(threads_.run(0, [](std::size_t) {}), UsageError);
    EXPECT_THROW(ddp::DeviceThreads({}), UsageError);
    EXPECT_THAT(
        [] {
            ddp::DeviceThreads({cpu(1), cpu(0), cpu(1)});
        },
        ::testing::ThrowsMessage<UsageError>(HasSubstr("cpu:1 is given twice")));
}

}  // namespace
