// What libraries of different versions have, and how they read a caller's config.
#include "standin_nccl/ranks.hpp"

#include <dlfcn.h>

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace {

using ddp::testing::HostDeviceApi;
using ddp::testing::Knob;
using ddp::testing::make_id;
using ddp::testing::misuse_code;
using ddp::testing::NcclRank;
using ddp::testing::on_ranks;

using Change = std::function<void(ncclConfig_t&)>;

// What a library of that version says to a caller's config of this header's version.
ncclResult_t init_with(const char* version, const Change& change) {
    const Knob knob("VERSION", version);
    HostDeviceApi api(1);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    change(config);
    ncclComm_t comm = nullptr;
    const ncclResult_t result = ncclCommInitRankConfig(&comm, 1, make_id(), 0, &config);
    EXPECT_EQ(comm != nullptr, result != ncclInvalidArgument);
    if (comm != nullptr) {
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
    }
    return result;
}

template <auto field>
Change with(int value) {
    return [value](ncclConfig_t& config) { config.*field = value; };
}

TEST(StandInConfig, ValuesOutOfRangeAreRefused) {
    const std::array wrong{
        with<&ncclConfig_t::blocking>(2),
        with<&ncclConfig_t::blocking>(-1),
        with<&ncclConfig_t::cgaClusterSize>(-1),
        with<&ncclConfig_t::minCTAs>(0),
        with<&ncclConfig_t::maxCTAs>(0),
        with<&ncclConfig_t::splitShare>(2),
        with<&ncclConfig_t::collnetEnable>(2),
        with<&ncclConfig_t::CTAPolicy>(3),
        with<&ncclConfig_t::shrinkShare>(-1),
        with<&ncclConfig_t::nvlsCTAs>(0),
        with<&ncclConfig_t::nChannelsPerNetPeer>(65),
        with<&ncclConfig_t::nvlinkCentricSched>(2),
        Change([](ncclConfig_t& config) { config.minCTAs = 5, config.maxCTAs = 4; }),
    };
    for (std::size_t i = 0; i < wrong.size(); ++i) {
        EXPECT_EQ(init_with("22809", wrong[i]), ncclInvalidArgument) << i;
    }
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::blocking>(1)), ncclSuccess);
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::blocking>(0)), ncclInProgress);
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::nChannelsPerNetPeer>(64)), ncclSuccess);
}

TEST(StandInConfig, AMinimumNeedsAMaximumBesideIt) {
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::maxCTAs>(4)), ncclSuccess);
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::minCTAs>(4)), ncclInvalidArgument);
    const auto both = [](ncclConfig_t& config) { config.minCTAs = 4, config.maxCTAs = 4; };
    EXPECT_EQ(init_with("22809", both), ncclSuccess);
}

TEST(StandInConfig, OfAnotherMagicOrOfNoSizeIsRefused) {
    const auto other = [](ncclConfig_t& config) { config.magic = 0; };
    EXPECT_EQ(init_with("22809", other), ncclInvalidArgument);
    EXPECT_EQ(init_with("21403", other), ncclInvalidArgument);
    const auto no_size = [](ncclConfig_t& config) { config = {}; };
    EXPECT_EQ(init_with("22203", no_size), ncclInvalidArgument);
    EXPECT_EQ(init_with("21805", no_size), ncclSuccess) << "nothing of it is read";
}

TEST(StandInConfig, OfALargerLibraryIsReadAsFarAsItIsKnown) {
    const auto larger = [](ncclConfig_t& config) { config.size = 4096, config.version = 23200; };
    EXPECT_EQ(init_with("22809", larger), ncclSuccess);
    const auto share = with<&ncclConfig_t::shrinkShare>(2);
    EXPECT_EQ(init_with("22703", share), ncclInvalidArgument);
    EXPECT_EQ(init_with("22605", share), ncclSuccess) << "not there yet";
    const auto sched = with<&ncclConfig_t::nvlinkCentricSched>(2);
    EXPECT_EQ(init_with("22803", sched), ncclInvalidArgument);
    EXPECT_EQ(init_with("22707", sched), ncclSuccess);
}

TEST(StandInConfig, OfASmallerLibraryIsUndefinedBeyondIt) {
    const auto cut = [](ncclConfig_t& config) {
        config.size = offsetof(ncclConfig_t, shrinkShare);
        config.shrinkShare = 2;
    };
    EXPECT_EQ(init_with("22809", cut), ncclSuccess);
    for (const unsigned version : {21600U, 22800U}) {
        const auto older = [version](ncclConfig_t& config) {
            config.version = version;
            config.maxCTAs = -1;
        };
        EXPECT_EQ(init_with("22809", older), version < 21700 ? ncclSuccess : ncclInvalidArgument);
    }
}

TEST(StandInConfig, Before217NothingIsUndefined) {
    EXPECT_EQ(init_with("21403", [](ncclConfig_t&) {}), ncclInvalidArgument);
    EXPECT_EQ(init_with("21701", [](ncclConfig_t&) {}), ncclSuccess);
    const auto blocking = [](ncclConfig_t& config) { config.blocking = 1, config.maxCTAs = -1; };
    EXPECT_EQ(init_with("21403", blocking), ncclSuccess) << "it has no more fields";
}

TEST(StandInConfig, APolicyIsOneUntil229AndMayBeTwo) {
    EXPECT_EQ(init_with("22703", with<&ncclConfig_t::CTAPolicy>(NCCL_CTA_POLICY_ZERO)),
              ncclInvalidArgument);
    EXPECT_EQ(init_with("22809", with<&ncclConfig_t::CTAPolicy>(NCCL_CTA_POLICY_ZERO)),
              ncclSuccess);
    EXPECT_EQ(init_with("23200", with<&ncclConfig_t::CTAPolicy>(3)), ncclSuccess);
}

TEST(StandInConfig, OfASplitIsReadAtOnceUnlessThereIsNoColor) {
    on_ranks(1, [](NcclRank& own) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 7;
        ncclComm_t child = nullptr;
        EXPECT_EQ(ncclCommSplit(own.comm, 0, 0, &child, &config), ncclInvalidArgument);
        EXPECT_EQ(ncclCommSplit(own.comm, NCCL_SPLIT_NOCOLOR, 0, &child, &config), ncclSuccess);
        EXPECT_EQ(child, nullptr);
        ASSERT_EQ(ncclGroupStart(), ncclSuccess);
        EXPECT_EQ(ncclCommSplit(own.comm, 0, 0, &child, &config), ncclInvalidArgument);
        EXPECT_EQ(ncclGroupEnd(), ncclInvalidArgument) << "the group's error";
    });
}

struct Close {
    void operator()(void* library) const { ::dlclose(library); }
};
using Library = std::unique_ptr<void, Close>;

TEST(StandInVersions, AVariantHasTheFunctionsOfItsVersion) {
    struct Variant {
        const char* path;
        int version;
        std::size_t functions;  // of those below, which are in the order of their coming
    };
    const std::array functions{"ncclCommSplit", "ncclMemAlloc", "ncclCommRegister",
                               "ncclCommShrink", "ncclCommWindowRegister",
                               // 2.28.3, and .7
                               "ncclAlltoAll", "ncclCommRevoke"};
    const std::array variants{
        Variant{DDP_STAND_IN_OLDEST, 21403, 0}, Variant{DDP_STAND_IN_OLDER, 21805, 1},
        Variant{DDP_STAND_IN_WINDOWLESS, 22605, 3}, Variant{DDP_STAND_IN_LIBRARY, 22809, 7}};
    for (const Variant& variant : variants) {
        const Library library(::dlopen(variant.path, RTLD_NOW | RTLD_LOCAL));
        ASSERT_TRUE(library) << ::dlerror();
        int version = 0;
        void* const get = ::dlsym(library.get(), "ncclGetVersion");
        ASSERT_EQ(reinterpret_cast<decltype(&ncclGetVersion)>(get)(&version), ncclSuccess);
        EXPECT_EQ(version, variant.version);
        for (std::size_t i = 0; i < functions.size(); ++i) {
            EXPECT_EQ(::dlsym(library.get(), functions[i]) != nullptr, i < variant.functions)
                << functions[i] << " of " << variant.path;
        }
    }
}

TEST(StandInVersions, Before218TheCallersVariableIsNeededUntilTheInitIsDone) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto lose_the_variable = [](const char* version) {
        const Knob knob("VERSION", version);
        HostDeviceApi api(2);
        const ncclUniqueId id = make_id();
        NcclRank first(api, 0);
        first.init_without_blocking(2, 0, id);
        ncclComm_t const comm = std::exchange(first.comm, nullptr);
        NcclRank second(api, 1);
        second.init_without_blocking(2, 1, id);
        second.settled();
        ncclResult_t state = ncclInProgress;
        while (state == ncclInProgress) ncclCommGetAsyncError(comm, &state);
        EXPECT_EQ(state, ncclSuccess);
        EXPECT_EQ(ncclCommAbort(comm), ncclSuccess);
        EXPECT_EQ(ncclCommAbort(second.comm), ncclSuccess);
    };
    EXPECT_EXIT(lose_the_variable("21701"), ::testing::ExitedWithCode(misuse_code),
                "stand-in NCCL: misuse: NCCL before 2.18 needs the variable");
    lose_the_variable("21805");
}

}  // namespace
