// NCCL's rules, as the stand-in enforces them, and its variants.
#include "standin_nccl/ranks.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace {

using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::make_id;
using ddp::testing::misuse_code;
using ddp::testing::NcclRank;
using ddp::testing::on_ranks;

// What a program does with one rank, which is up.
void alone(const std::function<void(NcclRank&)>& body) {
    HostDeviceApi api(2);
    NcclRank own(api, 0);
    own.init(1, 0, make_id());
    body(own);
}

class StandInMisuse : public ::testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

void expect_misuse(const std::function<void(NcclRank&)>& body, const std::string& message) {
    EXPECT_EXIT(alone(body), ::testing::ExitedWithCode(misuse_code),
                "stand-in NCCL: misuse: " + message);
}

ncclResult_t sum(NcclRank& own, float* values, CUstream_st* stream) {
    return ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, own.comm, stream);
}

TEST_F(StandInMisuse, ACallAfterTheEnd) {
    expect_misuse(
        [](NcclRank& own) {
            ncclCommAbort(own.comm);
            own.state();
        },
        "ncclCommGetAsyncError after Destroy or Abort");
    expect_misuse(
        [](NcclRank& own) {
            float* const values = own.holding<float>({1});
            ncclCommFinalize(own.comm);
            sum(own, values, own.stream);
        },
        "ncclAllReduce after Finalize");
}

TEST_F(StandInMisuse, AnOperationInProgress) {
    expect_misuse(
        [](NcclRank& own) {
            float* const values = own.holding<float>({1});
            own.init_without_blocking(2, 0, make_id());
            sum(own, values, own.stream);
        },
        "ncclAllReduce in progress");
    expect_misuse(
        [](NcclRank& own) {
            const Knob polls("LAUNCH_POLLS", "1");
            float* const values = own.holding<float>({1});
            own.init_without_blocking(1, 0, make_id());
            own.settled();
            sum(own, values, own.stream);
            sum(own, values, own.stream);
        },
        "ncclAllReduce in progress");
}

TEST_F(StandInMisuse, AnotherDevice) {
    expect_misuse(
        [](NcclRank& own) {
            float* const values = own.holding<float>({1});
            own.api().use(1);
            sum(own, values, own.stream);
        },
        "ncclAllReduce: device 1 is current, the communicator's is 0");
    expect_misuse(
        [](NcclRank& own) {
            float* const values = own.holding<float>({1});
            own.api().use(1);
            CUstream_st* const other = own.api().make_stream(ddp::device::Priority::normal);
            own.api().use(0);
            sum(own, values, other);
        },
        "ncclAllReduce: the stream is of device 1");
    expect_misuse(
        [](NcclRank& own) {
            float value = 0;
            sum(own, &value, own.stream);
        },
        "ncclAllReduce: sendbuff is not memory of the device");
}

TEST_F(StandInMisuse, ADestroyWithWorkInFlight) {
    expect_misuse(
        [](NcclRank& own) {
            const Knob fault("FAULTS", "hang:0:0");
            float* const values = own.holding<float>({1});
            sum(own, values, own.stream);
            ncclCommDestroy(own.comm);
        },
        "ncclCommDestroy with work in flight");
}

TEST_F(StandInMisuse, TwoThreadsInOneCommunicator) {
    expect_misuse(
        [](NcclRank& own) {
            const Knob fault("FAULTS", "hang:0:abort");
            std::thread side([&] { ncclCommAbort(own.comm); });
            for (;;) own.state();
        },
        "ncclComm.* while another thread is in the communicator");
}

// The first half of an abort in a group lets it return; before 2.22 there are no halves.
TEST(StandInAbort, InAGroupEndsALaunchOfAnotherThread) {
    alone([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        const Knob delay("LAUNCH_DELAY_US", "60000000");
        const int before = ddp_stand_in_calls("a launch that waits");
        std::thread side([&] {
            own.api().use(0);
            EXPECT_EQ(sum(own, values, own.stream), ncclInternalError);
        });
        while (ddp_stand_in_calls("a launch that waits") == before) std::this_thread::yield();
        EXPECT_EQ(ncclGroupStart(), ncclSuccess);
        EXPECT_EQ(ncclCommAbort(own.comm), ncclSuccess);
        side.join();
        EXPECT_EQ(ncclGroupEnd(), ncclSuccess);
    });
}

TEST_F(StandInMisuse, TheEndOfAnAbortBesideALaunch) {
    const auto abort_beside_a_launch = [](NcclRank& own) {
        float* const values = own.holding<float>({1});
        const Knob delay("LAUNCH_DELAY_US", "60000000");
        std::thread side([&] {
            own.api().use(0);
            sum(own, values, own.stream);
        });
        while (ddp_stand_in_calls("a launch that waits") == 0) std::this_thread::yield();
        ncclGroupStart();
        ncclCommAbort(own.comm);
    };
    expect_misuse(
        [&](NcclRank& own) {
            const Knob version("VERSION", "22100");
            abort_beside_a_launch(own);
        },
        "ncclCommAbort while another thread is in the communicator");
}

TEST_F(StandInMisuse, IsAnErrorWhenAskedToBeLenient) {
    const Knob lenient("LENIENT", "1");
    alone([](NcclRank& own) {
        float value = 0;
        EXPECT_EQ(sum(own, &value, own.stream), ncclInvalidUsage);
        EXPECT_NE(std::string(ncclGetLastError(nullptr)).find("sendbuff"), std::string::npos);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclInvalidUsage);
    });
}

TEST(StandInArguments, WrongOnesAreRefused) {
    alone([](NcclRank& own) {
        float* const values = own.holding<float>({1});
        CUstream_st fake{};
        EXPECT_EQ(sum(own, values, &fake), ncclInvalidArgument);
        EXPECT_EQ(ncclSend(values, 1, ncclFloat32, 1, own.comm, own.stream), ncclInvalidArgument);
        EXPECT_EQ(ncclAllReduce(values, values, 1, ncclFloat8e4m3, ncclSum, own.comm, own.stream),
                  ncclInvalidArgument);
        EXPECT_EQ(ncclAllReduce(values, values, 1, ncclFloat32, ncclSum, nullptr, own.stream),
                  ncclInvalidArgument);
        ncclComm_t comm = nullptr;
        ncclConfig_t config{};
        EXPECT_EQ(ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(&comm, 1, make_id(), 1), ncclInvalidArgument);
        EXPECT_EQ(ncclCommInitRank(&comm, 1, ncclUniqueId{}, 0), ncclSystemError);
        EXPECT_EQ(ncclCommDestroy(own.comm), ncclSuccess);
    });
}

TEST(StandInArguments, TheDefaultStreamIsTheCurrentDevices) {
    on_ranks(2, [](NcclRank& own) {
        float* const values = own.holding<float>({1});
        own.api().synchronize(own.stream);
        EXPECT_EQ(sum(own, values, nullptr), ncclSuccess);
        own.api().synchronize({});
        EXPECT_EQ(own.read(values, 1)[0], 2);
    });
}

TEST(StandInMemory, IsOfTheCurrentDeviceAndCanBeRegistered) {
    on_ranks(2, [](NcclRank& own) {
        void* memory = nullptr;
        ASSERT_EQ(ncclMemAlloc(&memory, 4096), ncclSuccess);
        EXPECT_EQ(own.api().device_of(memory), (ddp::Device{ddp::DeviceType::cuda, own.rank}));
        ncclWindow_t window = nullptr;
        ASSERT_EQ(ncclCommWindowRegister(own.comm, memory, 4096, &window, NCCL_WIN_COLL_SYMMETRIC),
                  ncclSuccess);
        EXPECT_EQ(ncclCommWindowDeregister(own.comm, window), ncclSuccess);
        void* handle = nullptr;
        ASSERT_EQ(ncclCommRegister(own.comm, memory, 4096, &handle), ncclSuccess);
        EXPECT_EQ(ncclCommDeregister(own.comm, handle), ncclSuccess);
        EXPECT_EQ(ncclMemFree(memory), ncclSuccess);
        const std::size_t too_much = std::size_t{1} << 40U;
        EXPECT_EQ(ncclMemAlloc(&memory, too_much), ncclUnhandledCudaError);
    });
}

TEST(StandInLibrary, CountsCallsAndClaimsAVersion) {
    int version = 0;
    const int before = ddp_stand_in_calls("ncclGetVersion");
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, NCCL_VERSION_CODE);
    const Knob other("VERSION", "30100");
    EXPECT_EQ(ncclGetVersion(&version), ncclSuccess);
    EXPECT_EQ(version, 30100);
    EXPECT_EQ(ddp_stand_in_calls("ncclGetVersion"), before + 2);
}

struct Close {
    void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

bool has(const Library& library, const char* name) {
    return ::dlsym(library.get(), name) != nullptr;
}

TEST(StandInLibrary, TheVariantsLackSymbols) {
    const Library all(::dlopen(DDP_STAND_IN_LIBRARY, RTLD_NOW | RTLD_LOCAL));
    const Library older(::dlopen(DDP_STAND_IN_OLDER, RTLD_NOW | RTLD_LOCAL));
    const Library broken(::dlopen(DDP_STAND_IN_BROKEN, RTLD_NOW | RTLD_LOCAL));
    ASSERT_TRUE(all && older && broken) << ::dlerror();
    for (const char* name : {"ncclCommRevoke", "ncclMemAlloc", "ncclCommWindowRegister"}) {
        EXPECT_TRUE(has(all, name)) << name;
        EXPECT_FALSE(has(older, name)) << name;
        EXPECT_TRUE(has(broken, name)) << name;
    }
    EXPECT_TRUE(has(all, "ncclAllReduce"));
    EXPECT_TRUE(has(older, "ncclAllReduce"));
    EXPECT_FALSE(has(broken, "ncclAllReduce"));
    EXPECT_TRUE(has(broken, "ddp_stand_in_set"));
    EXPECT_FALSE(has(all, "_ZN8stand_in5knobsEv")) << "its own names stay its own";
}

TEST(StandInLibrary, AVariantOpenedAtRunTimeFindsTheProgramsDevices) {
    const Library older(::dlopen(DDP_STAND_IN_OLDER, RTLD_NOW | RTLD_LOCAL));
    ASSERT_TRUE(older) << ::dlerror();
    const auto find = [&]<class F>(F*, const char* name) {
        return reinterpret_cast<F*>(::dlsym(older.get(), name));
    };
    HostDeviceApi api(1);
    ncclUniqueId id{};
    ncclComm_t comm = nullptr;
    ASSERT_EQ(find(&ncclGetUniqueId, "ncclGetUniqueId")(&id), ncclSuccess);
    ASSERT_EQ(find(&ncclCommInitRank, "ncclCommInitRank")(&comm, 1, id, 0), ncclSuccess);
    const float before = 1;
    void* const values = api.allocate(4);
    api.copy(values, &before, 4, {});
    EXPECT_EQ(find(&ncclAllReduce, "ncclAllReduce")(values, values, 1, ncclFloat32, ncclSum, comm,
                                                    nullptr),
              ncclSuccess);
    float after = 0;
    api.copy(&after, values, 4, {});
    EXPECT_EQ(after, 1);
    EXPECT_EQ(find(&ncclCommDestroy, "ncclCommDestroy")(comm), ncclSuccess);
    api.free(values);
}

}  // namespace
