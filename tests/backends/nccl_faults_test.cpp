// What goes wrong inside NCCL, as the stand-in plays it, with ranks as threads: each ends within
// its deadline, with the right exception on every rank, and with nothing left in flight.
#include "backends/nccl_ranks.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr auto deadline = std::chrono::milliseconds{150};
constexpr auto much = std::chrono::seconds{20};  // of a busy machine
constexpr int repetitions = 20;
constexpr int soak_repetitions = 200;

// The kind and text of what an operation threw.
std::string error_of(const std::function<void()>& body) {
    try {
        body();
    } catch (const TimeoutError& error) {
        return std::string("TimeoutError ") + error.what();
    } catch (const BackendError& error) {
        return std::string("BackendError ") + error.what();
    }
    return "none";
}

// Two operations that end well, then one that does not.
std::string third_all_reduce(NcclThread& own) {
    const auto values = own.make(1'000, 1.0F);
    own.all_reduce(values)->wait();
    own.all_reduce(values)->wait();
    const auto begin = base::Deadline::Clock::now();
    const std::string error =
        error_of([&] { own.all_reduce(values, ReduceOp::sum, deadline)->wait(); });
    EXPECT_LT(base::Deadline::Clock::now() - begin, deadline + much);
    EXPECT_EQ(error_of([&] { own.all_reduce(values)->wait(); }), error) << "the group stays failed";
    EXPECT_THROW(own.backend->require_healthy(), Error);
    return error;
}

constexpr const char* name_of_third =
    "nccl: all_reduce of 1000 float32 (sum), operation 3 (4000 bytes)";

void hang_once(const ThreadsSetup& setup = {}) {
    const ScopedKnob fault("FAULTS", "hang:1:2", setup.library);
    on_nccl_threads(
        2,
        [](NcclThread& own) {
            EXPECT_THAT(third_all_reduce(own),
                        AllOf(StartsWith("TimeoutError " + std::string(name_of_third)),
                              HasSubstr("did not end within 150 ms on rank " +
                                        std::to_string(own.own.rank))));
        },
        setup);
}

void meet_an_async_error_once() {
    const ScopedKnob fault("FAULTS", "error:1:2:2");  // ncclSystemError
    on_nccl_threads(2, [](NcclThread& own) {
        const std::string kind = own.own.rank == 1 ? "BackendError " : "TimeoutError ";
        const std::string error = third_all_reduce(own);
        EXPECT_THAT(error, AnyOf(StartsWith(kind + name_of_third),
                                 StartsWith("TimeoutError " + std::string(name_of_third))));
    });
}

void fail_a_call_once() {
    const ScopedKnob fault("FAULTS", "fail:0:2:3");  // ncclInternalError
    on_nccl_threads(2, [](NcclThread& own) {
        const std::string kind = own.own.rank == 0 ? "BackendError " : "TimeoutError ";
        EXPECT_THAT(third_all_reduce(own), StartsWith(kind + name_of_third));
    });
}

TEST(NcclFaults, AHangEndsAtTheDeadline) {
    for (int i = 0; i < repetitions; ++i) hang_once();
}
TEST(NcclFaults, AHangEndsAtTheDeadlineWithoutRevoke) {
    const std::string library = stand_in_path("libnccl_stand_in_older.so");
    for (const char* const version : {oldest_that_blocks, older_version}) {
        const ScopedKnob knob("VERSION", version, library);
        hang_once({.library = library});
    }
}
TEST(NcclFaults, AnErrorInTheBackgroundEndsTheGroup) {
    for (int i = 0; i < repetitions; ++i) meet_an_async_error_once();
}
TEST(NcclFaults, ARefusedCallEndsTheGroup) {
    for (int i = 0; i < repetitions; ++i) fail_a_call_once();
}
TEST(NcclFaults, Soak) {
    for (int i = 0; i < soak_repetitions; ++i) {
        hang_once();
        meet_an_async_error_once();
        fail_a_call_once();
    }
}

// The launch itself does not come to an end: a communicator that blocks keeps its thread.
TEST(NcclFaults, ALaunchThatHangsEndsAtTheDeadline) {
    for (const char* const name : {"libnccl_stand_in.so", "libnccl_stand_in_older.so"}) {
        for (const char* const version : {oldest_that_blocks, older_version}) {
            const std::string library = stand_in_path(name);
            const ScopedKnob knob("VERSION", version, library);
            on_nccl_threads(
                1,
                [&](NcclThread& own) {
                    const auto values = own.make(1'000, 1.0F);
                    own.all_reduce(values)->wait();
                    const ScopedKnob delay("LAUNCH_DELAY_US", "60000000", library);
                    EXPECT_THAT(
                        error_of([&] { own.all_reduce(values, ReduceOp::sum, deadline)->wait(); }),
                        AllOf(StartsWith("TimeoutError nccl: all_reduce of 1000 float32 (sum), "
                                         "operation 2"),
                              HasSubstr("was not launched within 150 ms on rank 0")));
                },
                {.library = library});
        }
    }
}

// Another thread of the rank waits for the one that NCCL keeps.
TEST(NcclFaults, ALaunchBehindOneThatHangsEndsWithIt) {
    on_nccl_threads(1, [](NcclThread& own) {
        const auto values = own.make(1'000, 1.0F);
        const auto others = own.make(1'000, 1.0F);
        own.all_reduce(values)->wait();
        const ScopedKnob delay("LAUNCH_DELAY_US", "60000000");
        const auto launch = [&](std::span<float> tensor) {
            return error_of([&] { own.all_reduce(tensor, ReduceOp::sum, deadline)->wait(); });
        };
        std::string behind;
        std::jthread second([&] {
            own.api.use(own.own.rank);
            behind = launch(others);
        });
        const std::string error = launch(values);
        second.join();
        EXPECT_THAT(error, HasSubstr("was not launched within 150 ms on rank 0"));
        EXPECT_EQ(behind, error);
    });
}

// Finalize waits for all ranks; the limit is this rank's own. The abort that follows ends it.
TEST(NcclFaults, ARankMayEndWhileAnotherStays) {
    for (const char* const version : {oldest_that_blocks, older_version}) {
        const ScopedKnob knob("VERSION", version);
        std::promise<void> gone;
        ::testing::internal::CaptureStderr();
        on_nccl_threads(2,
                        [&](NcclThread& own) {
                            own.all_reduce(own.make(100, 1.0F))->wait();
                            if (own.own.rank == 0) {
                                own.backend.reset();
                                gone.set_value();
                            } else {
                                EXPECT_EQ(gone.get_future().wait_for(much),
                                          std::future_status::ready);
                            }
                        },
                        {.limit = 4s});
        EXPECT_EQ(::testing::internal::GetCapturedStderr(), "") << "NCCL did not let go";
    }
}

// NCCL connects to a peer when it first needs it: also in a call of the program's own.
TEST(NcclFaults, AProgramsOwnCallThatHangsEndsAtTheDeadline) {
    on_nccl_threads(1, [](NcclThread& own) {
        const auto library = nccl::NcclLibrary::load(stand_in_path());
        const auto values = own.make(1'000, 1.0F);
        const ScopedKnob delay("LAUNCH_DELAY_US", "60000000");
        const auto sum = [&](void* comm) {
            EXPECT_EQ(library.operations.all_reduce(values.data(), values.data(), values.size(),
                                                    ncclFloat32, ncclSum,
                                                    static_cast<ncclComm_t>(comm), own.stream),
                      ncclInternalError);
        };
        EXPECT_THAT(error_of([&] { own.backend->with_native_handle(sum, deadline); }),
                    HasSubstr("the program's own call of NCCL was not launched within 150 ms"));
    });
}

TEST(NcclFaults, WaitingOperationsAllEndWithTheFirstError) {
    const ScopedKnob fault("FAULTS", "hang:0:0");
    on_nccl_threads(2, [](NcclThread& own) {
        std::vector<std::shared_ptr<backends::DeviceOperation>> operations;
        const auto values = own.make(100, 1.0F);
        for (int i = 0; i < 5; ++i) {
            operations.push_back(own.all_reduce(values, ReduceOp::sum, deadline));
        }
        std::string first;
        for (const auto& operation : operations) {
            const std::string error = error_of([&] { operation->wait(); });
            EXPECT_THAT(error, HasSubstr("operation 1 (400 bytes)"));
            if (first.empty()) first = error;
            EXPECT_EQ(error, first);
            EXPECT_TRUE(operation->is_completed());
        }
    });
}

using NcclFaultsDeathTest = ::testing::Test;

TEST(NcclFaultsDeathTest, AnAbortThatHangsEndsTheProcess) {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    const auto die = [] {
        const ScopedKnob faults("FAULTS", "hang:0:0,hang:0:abort");
        on_nccl_threads(1,
                        [](NcclThread& own) {
                            const auto values = own.make(100, 1.0F);
                            static_cast<void>(error_of(
                                [&] { own.all_reduce(values, ReduceOp::sum, 50ms)->wait(); }));
                        },
                        {.limit = 200ms});
    };
    EXPECT_EXIT(die(), ::testing::ExitedWithCode(83),
                "could not be aborted within 200 ms; the process ends itself");
}

}  // namespace
