// How groups with a GPU half fail: at their start and amid collectives, a process a rank, over the
// stand-in NCCL. Every rank learns of it within its deadline, by the right exception.
#include "process_group/gpus.hpp"
#include "process_group/reports.hpp"

#include <ddp/error.hpp>
#include <ddp/nccl.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

[[maybe_unused]] const Gpus& the_gpus = gpus();

constexpr int repetitions = 20;
constexpr int soak_repetitions = 200;

TEST(GpuInit, TakesCpuMemoryOnlyWhenOneRankHasNoGpu) {
    const auto reports = reports_of(3, [](const Join& join) {
        if (own_rank() == 1) gpus().set_reason("no driver");
        ProcessGroup group = join();
        TensorView there(nullptr, {0}, DType::float32, {DeviceType::cuda, 0});
        return std::string(to_string(group.backend())) + " " + to_string(group.device()) + " " +
               std::to_string(group.all_reduce(1)) + " " +
               error_of([&] { group.all_reduce(there).wait(); });
    });
    ASSERT_EQ(reports.size(), 3U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("shm cpu 3 UsageError all_reduce: the tensor is on "
                                              "cuda:0, but this group's backend moves CPU memory "
                                              "only (not every rank can use one: rank 1 on host "));
        EXPECT_THAT(report.message, HasSubstr("no driver"));
    }
}

TEST(GpuInit, TellsEveryRankWhoHasNoGpuWhenNcclIsAskedFor) {
    const auto reports = reports_of(3,
                                    [](const Join& join) {
                                        if (own_rank() == 1) gpus().set_reason("no driver");
                                        return error_of([&] { join(); });
                                    },
                                    {.backend = Backend::nccl});
    ASSERT_EQ(reports.size(), 3U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message,
                    AllOf(HasSubstr("UsageError init_process_group: backend nccl cannot be had: "
                                    "rank 1 on host "),
                          HasSubstr("no driver"), Not(HasSubstr("rank 0 on"))));
    }
}

TEST(GpuInit, TakesCpuMemoryOnlyWhenRanksShareAGpuAndRank0SaysSo) {
    const auto reports = reports_of(2, [](const Join& join) {
        ::setenv("LOCAL_RANK", "0", 1);
        ::testing::internal::CaptureStderr();
        const ProcessGroup group = join();
        return std::string(to_string(group.backend())) + " " +
               ::testing::internal::GetCapturedStderr();
    });
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("shm "));
        EXPECT_EQ(report.message.find("CPU memory only, no GPUs: ") != std::string::npos,
                  report.rank == 0)
            << report.message;
    }
}

// As the first rank of another host, which rank 0's warning does not tell of.
TEST(GpuInit, TakesCpuMemoryOnlyAndAHostSaysThatItsGpuStaysUnused) {
    const auto reports = reports_of(2, [](const Join& join) {
        ::setenv("LOCAL_RANK", "0", 1);
        ::setenv("DDP_LOG_LEVEL", "info", 1);
        if (own_rank() == 0) gpus().set_reason("no driver");
        ::testing::internal::CaptureStderr();
        const ProcessGroup group = join();
        return ::testing::internal::GetCapturedStderr();
    });
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_THAT(reports[0].message, Not(HasSubstr("stays unused")));
    EXPECT_THAT(reports[1].message,
                HasSubstr(" stays unused: not every rank can use one: rank 0 "));
}

TEST(GpuInit, UsesNoGpuWhenAskedForShm) {
    run_ranks(2, [](ProcessGroup& group) { EXPECT_EQ(group.device(), Device{}); },
              {.init = {.backend = Backend::shm}});
}

TEST(GpuInit, TellsEveryRankTheSameWhenOneCannotConnect) {
    const auto reports = reports_of(3, [](const Join& join) {
        const ScopedKnob fault("FAULTS", "fail:1:init:2");
        return error_of([&] { join(); });
    });
    ASSERT_EQ(reports.size(), 3U);
    for (const RankFailure& report : reports) {
        EXPECT_EQ(report.message, reports[0].message);
        EXPECT_THAT(report.message,
                    HasSubstr("BackendError nccl: the ranks cannot be connected: rank 1: nccl: "
                              "ncclCommInitRankConfig: "));
    }
}

TEST(GpuInit, TellsEveryRankAtOnceThatRankZeroHasNoId) {
    const auto begin = std::chrono::steady_clock::now();
    const auto reports = reports_of(3,
                                    [](const Join& join) {
                                        const ScopedKnob fault("FAULTS", "fail:0:id:2");
                                        return error_of([&] { join(); });
                                    },
                                    {.timeout = 60s});
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 30s);
    ASSERT_EQ(reports.size(), 3U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message,
                    HasSubstr("BackendError nccl: the ranks cannot be connected: rank 0: nccl: "
                              "ncclGetUniqueId: "));
    }
}

TEST(GpuInit, EndsAtItsDeadlineWhenNcclHangs) {
    const auto reports = reports_of(2,
                                    [](const Join& join) {
                                        const ScopedKnob fault("FAULTS", "hang:1:init");
                                        return error_of([&] { join(); });
                                    },
                                    {.timeout = 1s});
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("the ranks did not connect within 1 s"));
    }
}

TEST(GpuInit, WarnsOfAVersionWhoseAbortMayHang) {
    const auto reports = reports_of(2, [](const Join& join) {
        const ScopedKnob version("VERSION", "22501");
        ::testing::internal::CaptureStderr();
        const ProcessGroup group = join();
        return ::testing::internal::GetCapturedStderr();
    });
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_EQ(report.message.find("2.25.1, whose ncclCommAbort may hang") != std::string::npos,
                  report.rank == 0)
            << report.message;
    }
}

TEST(GpuInit, NamesTheRankThatDiesInIt) {
    const auto reports = reports_of(3,
                                    [](const Join& join) {
                                        const ScopedKnob fault("FAULTS", "die:1:init");
                                        return error_of([&] { join(); });
                                    },
                                    {.timeout = 30s}, {1});
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, HasSubstr("PeerError(1) "));
    }
}

// Ends well twice; what the third throws.
std::string third_all_reduce(ProcessGroup& group) {
    GpuTensor<float> values(group, 1'000, 1.0F);
    group.all_reduce(values.view()).wait();
    group.all_reduce(values.view()).wait();
    const std::string error = error_of([&] { group.all_reduce(values.view()).wait(); });
    EXPECT_EQ(error_of([&] { group.barrier().wait(); }), error) << "the CPU half has ended too";
    std::vector<float> on_the_cpu(1);
    EXPECT_EQ(error_of([&] { group.send(on_the_cpu, Peer{group.rank() == 0 ? 1 : 0}).wait(); }),
              error)
        << "its transfers too";
    EXPECT_EQ(error_of([&] { with_native_handle(group, [](ncclComm*) { FAIL(); }); }), error)
        << "of a communicator that is gone";
    return error;
}
constexpr const char* name_of_third =
    "all_reduce of 1000 float32 (sum), operation 3 (4000 bytes) at gpu_failure_test.cpp:";

void die_amid_a_collective() {
    const auto reports = reports_of(3,
                                    [](const Join& join) {
                                        const ScopedKnob fault("FAULTS", "die:1:2");
                                        ProcessGroup group = join();
                                        return third_all_reduce(group);
                                    },
                                    {.timeout = 30s}, {1});
    ASSERT_EQ(reports.size(), 2U);
    for (const RankFailure& report : reports) {
        EXPECT_THAT(report.message, AllOf(HasSubstr("PeerError(1) "), HasSubstr(name_of_third)));
    }
}

TEST(GpuFailure, ADeathAmidACollectiveIsNamedByTheOthers) {
    for (int i = 0; i < repetitions; ++i) die_amid_a_collective();
}
TEST(GpuFailure, SoakDeath) {
    for (int i = 0; i < soak_repetitions; ++i) die_amid_a_collective();
}

TEST(GpuFailure, ARankThatLeftIsNamedByTheOthers) {
    const auto body = [](const Join& join) -> std::string {
        ProcessGroup group = join();
        if (group.rank() == 1) ::_exit(0);
        GpuTensor<float> values(group, 1'000, 1.0F);
        return error_of([&] { group.all_reduce(values.view()).wait(); });
    };
    const auto reports = reports_of(2, body, {.timeout = 30s}, {1});
    for (const RankFailure& report : reports) {
        if (report.rank == 1) continue;
        EXPECT_THAT(report.message, AllOf(HasSubstr("PeerError(1) "), HasSubstr("operation 1 (")));
    }
}

// The rank that meets its deadline first tells the other, which has a longer one.
TEST(GpuFailure, ATimeoutOnOneRankEndsTheOthers) {
    const auto reports = reports_of(2, [](const Join&) {
        const ScopedKnob fault("FAULTS", "hang:1:2");
        const auto timeout = own_rank() == 0 ? std::chrono::milliseconds{500ms} : 60s;
        ProcessGroup group = init_process_group({.timeout = timeout});
        return third_all_reduce(group);
    });
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_THAT(reports[0].message,
                AllOf(HasSubstr("TimeoutError nccl: "), HasSubstr(name_of_third),
                      HasSubstr("did not end within 500 ms on rank 0")));
    EXPECT_THAT(reports[1].message, AllOf(HasSubstr("PeerError(0) "), HasSubstr(name_of_third)));
}

void meet_an_async_error() {
    const auto reports = reports_of(2, [](const Join& join) {
        const ScopedKnob fault("FAULTS", "error:1:2:2");
        ProcessGroup group = join();
        return third_all_reduce(group);
    });
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
    EXPECT_THAT(reports[1].message,
                AllOf(HasSubstr("BackendError nccl: "), HasSubstr(name_of_third)));
}

TEST(GpuFailure, AnErrorInTheBackgroundEndsAllRanks) {
    for (int i = 0; i < repetitions; ++i) meet_an_async_error();
}
TEST(GpuFailure, SoakErrors) {
    for (int i = 0; i < soak_repetitions; ++i) meet_an_async_error();
}

// A cudaFree that waits for a kernel which never ends has the driver's lock, and what the watchdog
// asks waits for it. (Before, it waited under a mutex that the end of the group needs, and no other
// rank was told.)
TEST(GpuFailure, OthersAreToldWhileADriverGivesNoAnswer) {
    const auto reports =
        reports_of(2,
                   [](const Join& join) {
                       const ScopedKnob fault("FAULTS", "fail:0:1:3");
                       ProcessGroup group = join();
                       GpuTensor<float> values(group, 1'000, 1.0F);
                       if (group.rank() == 1) {
                           return error_of([&] { group.barrier().wait(); });
                       }
                       const Work waits = group.all_reduce(values.view());
                       const standin_cuda::HeldDriver held;
                       std::this_thread::sleep_for(100ms);
                       return error_of([&] { group.all_reduce(values.view()).wait(); });
                   },
                   {.timeout = 30s});
    ASSERT_EQ(reports.size(), 2U);
    EXPECT_THAT(reports[0].message, HasSubstr("as the test has asked"));
    EXPECT_THAT(reports[1].message, HasSubstr("PeerError(0) "));
}

TEST(GpuFailure, AThreadThatCudaKeepsIsLetGoWhenAPeerDies) {
    const auto reports = reports_of(2,
                                    [](const Join& join) {
                                        ProcessGroup group = join();
                                        GpuTensor<float> values(group, 1'000, 1.0F);
                                        void* const other = gpus().allocate(1'000);
                                        if (group.rank() == 1) {
                                            std::this_thread::sleep_for(300ms);
                                            ::kill(::getpid(), SIGKILL);
                                        }
                                        Work waits = group.all_reduce(values.view());
                                        const std::jthread frees([&] { gpus().free(other); });
                                        return error_of([&] { waits.wait(); });
                                    },
                                    {.timeout = 60s}, {1});
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_THAT(reports[0].message, HasSubstr("PeerError(1) "));
}

// NCCL connects to a peer when it first needs it, and keeps the thread that launches until then.
TEST(GpuFailure, ALaunchThatNcclKeepsIsLetGoWhenAPeerDies) {
    const auto reports =
        reports_of(2,
                   [](const Join& join) {
                       ProcessGroup group = join();
                       GpuTensor<float> values(group, 1'000, 1.0F);
                       if (group.rank() == 1) {
                           std::this_thread::sleep_for(300ms);
                           ::kill(::getpid(), SIGKILL);
                       }
                       const ScopedKnob delay("LAUNCH_DELAY_US", "60000000");
                       return error_of([&] { group.all_reduce(values.view()).wait(); });
                   },
                   {.timeout = 60s}, {1});
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_THAT(reports[0].message, AllOf(HasSubstr("PeerError(1) "), HasSubstr("operation 1 (")));
}

}  // namespace
