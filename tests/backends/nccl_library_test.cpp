#include "backends/nccl/nccl_library.hpp"

#include "backends/nccl/nccl_backend.hpp"
#include "base/sanitizers.hpp"
#include "support/stand_in_library.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <stdlib.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

using ddp::nccl::NcclLibrary;
using ddp::nccl::version_text;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace ddp::testing;

std::string refusal_of(const std::string& path) {
    try {
        NcclLibrary::load(path);
    } catch (const ddp::BackendError& error) {
        return error.what();
    }
    return "loaded";
}

TEST(NcclLibrary, HasAllThatTheLibraryHas) {
    const NcclLibrary library = NcclLibrary::load(stand_in_path());
    EXPECT_EQ(library.version, 22809);
    EXPECT_NE(library.operations.all_reduce, nullptr);
    EXPECT_NE(library.communicator.revoke, nullptr);
    EXPECT_NE(library.memory.alloc, nullptr);
}

TEST(NcclLibrary, DoesWithoutWhatIsOptional) {
    for (const char* const name : {"libnccl_stand_in_older.so", "libnccl_stand_in_oldest.so"}) {
        const NcclLibrary library = NcclLibrary::load(stand_in_path(name));
        EXPECT_LT(library.version, 21900);
        EXPECT_NE(library.operations.all_reduce, nullptr);
        EXPECT_EQ(library.communicator.revoke, nullptr);
        EXPECT_EQ(library.memory.alloc, nullptr);
    }
}

TEST(NcclLibrary, SaysInOneLineWhatIsMissingAndWhatToDo) {
    const std::string broken = refusal_of(stand_in_path("libnccl_stand_in_broken.so"));
    EXPECT_THAT(broken, AllOf(HasSubstr("libnccl_stand_in_broken.so has no ncclAllReduce;"),
                              HasSubstr("DDP_NCCL_LIBRARY"), Not(HasSubstr("\n"))));
    const std::string absent = refusal_of("/nowhere/libnccl.so");
    EXPECT_THAT(absent,
                AllOf(HasSubstr("cannot load /nowhere/libnccl.so"),
                      HasSubstr("DDP_NCCL_LIBRARY must name NCCL's file"), Not(HasSubstr("\n"))));
}

TEST(NcclLibrary, RefusesAnotherMajor) {
    const ScopedKnob version("VERSION", "30102");
    EXPECT_THAT(refusal_of(stand_in_path()), HasSubstr("is version 3.1.2, this build needs 2.x"));
}

// In a process of its own, which has the other one from then on.
TEST(NcclLibrary, IsItselfBesideAnotherThatTheProgramBrings) {
#ifdef DDP_SANITIZES_ADDRESSES
    GTEST_SKIP() << "AddressSanitizer refuses RTLD_DEEPBIND";
#endif
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto refuse_beside_another = [] {
        const std::string other = stand_in_path("libnccl_stand_in_30000.so");
        if (::dlopen(other.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) std::abort();
        std::fputs(refusal_of(stand_in_path("libnccl_stand_in_22809.so")).c_str(), stderr);
        std::exit(0);
    };
    EXPECT_EXIT(refuse_beside_another(), ::testing::ExitedWithCode(0),
                "libnccl_stand_in_22809.so has no ncclGetErrorString");
}

TEST(NcclLibrary, ReadsBothFormsOfVersions) {
    EXPECT_EQ(version_text(22809), "2.28.9");
    EXPECT_EQ(version_text(2708), "2.7.8");
}

TEST(NcclAbortLimit, IsAMinuteOrWhatTheUserSays) {
    ::unsetenv("DDP_NCCL_ABORT_TIMEOUT");
    EXPECT_EQ(ddp::nccl::abort_limit(), std::chrono::seconds{60});
    ::setenv("DDP_NCCL_ABORT_TIMEOUT", "7", 1);
    EXPECT_EQ(ddp::nccl::abort_limit(), std::chrono::seconds{7});
    for (const char* const wrong : {"0", "-1", "soon", "7s", "99999999999"}) {
        ::setenv("DDP_NCCL_ABORT_TIMEOUT", wrong, 1);
        EXPECT_THAT(&ddp::nccl::abort_limit,
                    ::testing::ThrowsMessage<ddp::UsageError>(HasSubstr(
                        std::string("DDP_NCCL_ABORT_TIMEOUT=") + wrong + " is no number")));
    }
    ::unsetenv("DDP_NCCL_ABORT_TIMEOUT");
}

}  // namespace
