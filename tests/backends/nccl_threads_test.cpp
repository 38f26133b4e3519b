// The NCCL backend over the stand-in, ranks as threads: random operations against a serial model,
// the order of streams, averaging, and memory.
#include "backends/nccl_ranks.hpp"
#include "support/collective_model.hpp"
#include "support/seed.hpp"

#include <ddp/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using backends::Call;
using backends::Collective;
using backends::Direction;
using backends::Transfer;
using nccl::Averaging;

constexpr std::size_t max_elements = 3'000;

bool is_of_nccl(const CollectivePlan& plan) {
    if (plan.kind == Collective::barrier || plan.kind == Collective::allocate) return false;
    // ncclAvg multiplies by 1/3 first, which the model does not.
    if (plan.op == ReduceOp::avg && is_floating_point(plan.dtype) && plan.ranks == 3) return false;
    // The stand-in multiplies all inputs by the reader's factor; NCCL each by its owner's.
    if (plan.op == ReduceOp::premul_sum && plan.ranks > 1) return false;
    try {
        const Call call{.kind = plan.kind, .dtype = plan.dtype, .op = ReduceOp(plan.op)};
        nccl::require_supported(call, 0);
        return true;
    } catch (const UsageError&) {
        return false;
    }
}

std::vector<CollectivePlan> random_plans(std::mt19937& random, int ranks, std::size_t count) {
    std::vector<CollectivePlan> plans;
    while (plans.size() < count) {
        CollectivePlan plan = random_collective(random, ranks, max_elements);
        if (!is_of_nccl(plan)) continue;
        for (auto* const places : {&plan.inputs, &plan.outputs}) {
            for (CollectivePlan::Place& place : *places) place.misalignment &= ~std::size_t{7};
        }
        plans.push_back(std::move(plan));
    }
    return plans;
}

void run_plans(const std::vector<CollectivePlan>& plans, NcclThread& own) {
    const std::size_t bytes = 2 * largest_buffer(own.own.ranks, max_elements);
    const std::span<std::byte> memory = own.make(bytes, std::byte{0});
    for (const CollectivePlan& plan : plans) {
        const PlannedCollective planned(plan, own.own.rank, {memory, memory});
        const Call call = planned.call();
        own.backend->launch({&call, 1}, own.stream, 20s)->wait();
        EXPECT_EQ(planned.wrong(), "") << describe(plan);
    }
}

TEST(NcclThreads, DoAsTheModelSays) {
    std::mt19937 random(ddp::store_test::random_seed());
    for (int ranks = 1; ranks <= 4; ++ranks) {
        SCOPED_TRACE(std::to_string(ranks) + " ranks");
        const auto plans = random_plans(random, ranks, 300);
        on_nccl_threads(ranks, [&](NcclThread& own) { run_plans(plans, own); });
    }
}

// Communicators do not block.
TEST(NcclThreads, DoSoWhenEachLaunchIsInProgressForAWhile) {
    const ScopedKnob version("VERSION", older_version);
    const ScopedKnob polls("LAUNCH_POLLS", "3");
    std::mt19937 random(ddp::store_test::random_seed());
    const auto plans = random_plans(random, 3, 100);
    on_nccl_threads(3, [&](NcclThread& own) { run_plans(plans, own); });
}

// The stand-in ends a process that calls a communicator which is still in progress.
TEST(NcclThreads, WaitUntilWhatTheProgramItselfHasStartedIsLaunched) {
    const ScopedKnob version("VERSION", older_version);
    const ScopedKnob polls("LAUNCH_POLLS", "3");
    on_nccl_threads(3, [](NcclThread& own) {
        const auto library = nccl::NcclLibrary::load(stand_in_path());
        const auto values = own.make(100, 1.0F);
        const auto start_own_sum = [&] {
            const auto start_sum = [&](void* comm) {
                const ncclResult_t result = library.operations.all_reduce(
                    values.data(), values.data(), values.size(), ncclFloat32, ncclSum,
                    static_cast<ncclComm_t>(comm), own.stream);
                EXPECT_EQ(result, ncclInProgress);
            };
            own.backend->with_native_handle(start_sum, 20s);
        };
        start_own_sum();
        own.all_reduce(values)->wait();
        EXPECT_EQ(values[99], 9.0F);
        start_own_sum();
        own.all_reduce(values, ReduceOp::make_premul_sum(0.5))->wait();  // asks NCCL for the factor
        EXPECT_EQ(values[99], 40.5F);
        start_own_sum();
        const int next = (own.own.rank + 1) % 3;
        const int before = (own.own.rank + 2) % 3;
        const auto received = own.make(1, 0.0F);
        const std::vector<Transfer> transfers{
            {Direction::send, next, values.data(), sizeof(float)},
            {Direction::receive, before, received.data(), sizeof(float)}};
        own.backend->launch(std::span<const Transfer>(transfers), own.stream, 20s)->wait();
        EXPECT_EQ(received[0], 121.5F);
        start_own_sum();  // the group ends
    });
}

// One that does not block has each launch made by a thread of its own.
TEST(NcclThreads, HaveNoThreadMadeForALaunch) {
    const auto threads_for_launches = [](const char* version) {
        const ScopedKnob knob("VERSION", version);
        const int before = count_stand_in_calls("a thread for a launch");
        on_nccl_threads(2, [](NcclThread& own) {
            const auto values = own.make(100, 1.0F);
            for (int i = 0; i < 5; ++i) own.all_reduce(values)->wait();
            EXPECT_EQ(values[99], 32.0F);
        });
        return count_stand_in_calls("a thread for a launch") - before;
    };
    EXPECT_EQ(threads_for_launches(oldest_that_blocks), 0);
    EXPECT_EQ(threads_for_launches(older_version), 10);
}

TEST(NcclThreads, MultiplyBeforeTheySum) {
    on_nccl_threads(3, [](NcclThread& own) {
        const auto check = [&]<class T>(T one) {
            const auto values = own.make(100, one);
            own.all_reduce(values, ReduceOp::make_premul_sum(0.5))->wait();
            EXPECT_EQ(static_cast<float>(values[99]), 1.5F);
        };
        check(1.0F);
        check(1.0);
        check(float16(1.0F));
        check(bfloat16(1.0F));
    });
}

TEST(NcclThreads, TakeManyTensorsAsOne) {
    on_nccl_threads(3, [](NcclThread& own) {
        std::vector<Call> calls;
        std::vector<std::span<float>> tensors;
        for (std::size_t size = 0; size < 40; ++size) {
            tensors.push_back(own.make(size * 17, 1.0F + static_cast<float>(size)));
            calls.push_back({.kind = Collective::all_reduce,
                             .dtype = DType::float32,
                             .elements = tensors.back().size(),
                             .input = tensors.back().data(),
                             .output = tensors.back().data()});
        }
        own.backend->launch(std::span<const Call>(calls), own.stream, 20s)->wait();
        for (std::size_t size = 0; size < 40; ++size) {
            const float wanted = 3.0F * (1.0F + static_cast<float>(size));
            for (const float value : tensors[size]) ASSERT_EQ(value, wanted);
        }
    });
}

TEST(NcclThreads, SendAroundARing) {
    on_nccl_threads(4, [](NcclThread& own) {
        const auto from = own.make(1'000, own.own.rank);
        const auto to = own.make(1'000, -1);
        const int next = (own.own.rank + 1) % 4, last = (own.own.rank + 3) % 4;
        const Transfer both[] = {{Direction::send, next, from.data(), from.size_bytes()},
                                 {Direction::receive, last, to.data(), to.size_bytes()}};
        own.backend->launch(std::span<const Transfer>(both), own.stream, 20s)->wait();
        EXPECT_EQ(to.front(), last);
        EXPECT_EQ(to.back(), last);
    });
}

// The event that the second stream waits for must be recorded behind the operation, also when NCCL
// puts it on its stream late.
TEST(NcclThreads, LetASecondStreamReadTheSumOfALateLaunch) {
    for (const auto& [late, version] : {std::pair{"LAUNCH_DELAY_US", oldest_that_blocks},
                                        {"LAUNCH_DELAY_US", older_version},
                                        {"OPERATION_DELAY_US", oldest_that_blocks}}) {
        const ScopedKnob knob("VERSION", version);
        const ScopedKnob delay(late, "50000");
        on_nccl_threads(2, [](NcclThread& own) {
            const auto values = own.make(5'000, 1.0F);
            const auto read = own.make(5'000, 0.0F);
            CUstream_st* const consumer = own.api.make_stream(device::Priority::normal);
            {
                const auto operation = own.all_reduce(values);
                operation->wait(consumer);
                own.api.copy(read.data(), values.data(), values.size_bytes(), consumer);
            }
            own.api.synchronize(consumer);
            EXPECT_EQ(std::count(read.begin(), read.end(), 2.0F), 5'000);
            own.api.destroy_stream(consumer);
        });
    }
}

TEST(NcclThreads, StartAfterTheWorkOnTheGivenStream) {
    on_nccl_threads(2, [](NcclThread& own) {
        const auto late = own.make(5'000, 3.0F);
        const auto values = own.make(5'000, 1.0F);
        own.api.set_launch_delay(20ms);
        own.api.copy(values.data(), late.data(), values.size_bytes(), own.stream);
        own.all_reduce(values)->wait();
        EXPECT_EQ(std::count(values.begin(), values.end(), 6.0F), 5'000);
    });
}

TEST(NcclThreads, RefuseWhatNcclHasNot) {
    on_nccl_threads(2, [](NcclThread& own) {
        const auto halves = own.make(10, std::int16_t{1});
        const auto numbers = own.make(10, 6);
        try {
            static_cast<void>(own.all_reduce(halves));
            ADD_FAILURE() << "int16";
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), ::testing::HasSubstr("nccl has no sum of int16"));
        }
        EXPECT_THROW(static_cast<void>(own.all_reduce(numbers, ReduceOp::bit_xor)), UsageError);
        own.all_reduce(numbers)->wait();  // nothing has happened
        EXPECT_EQ(numbers[9], 12);
    });
}

TEST(Averaging, IsByNcclWhereNvlsBringsNothing) {
    EXPECT_EQ(nccl::choose_averaging({4, 90, nullptr, 22809}), Averaging::by_nccl);
    EXPECT_EQ(nccl::choose_averaging({5, 90, nullptr, 22809}), Averaging::by_sum_and_scale);
    EXPECT_EQ(nccl::choose_averaging({8, 90, "0", 22809}), Averaging::by_nccl);
    EXPECT_EQ(nccl::choose_averaging({8, 90, "1", 22809}), Averaging::by_sum_and_scale);
    EXPECT_EQ(nccl::choose_averaging({8, 90, nullptr, 21600}), Averaging::by_nccl);
    EXPECT_EQ(nccl::choose_averaging({8, 80, nullptr, 22809}), Averaging::by_nccl);
    EXPECT_EQ(nccl::choose_averaging({8, 100, nullptr, 22809}), Averaging::by_sum_and_scale);
}

// NCCL's second operation would fail: an average is one.
TEST(Averaging, IsOneOperationOfNccl) {
    const ScopedKnob fault("FAULTS", "fail:0:1:3");
    on_nccl_threads(5, [](NcclThread& own) {
        const auto values = own.make(300'000, static_cast<float>(own.own.rank));
        own.all_reduce(values, ReduceOp::avg)->wait();
        EXPECT_FLOAT_EQ(values.back(), 2.0F);
    });
}

// From 1 MiB on, by one kernel of each rank.
TEST(Averaging, ByScalingIsTheAverageToo) {
    const auto kernels = [] { return standin_cuda::calls_of("cudaLaunchKernel"); };
    const std::size_t before = kernels();
    on_nccl_threads(5, [](NcclThread& own) {
        const auto values = own.make(300'001, static_cast<float>(own.own.rank));
        own.all_reduce(values, ReduceOp::avg)->wait();
        for (const float value : values) ASSERT_FLOAT_EQ(value, 2.0F);
    });
    EXPECT_EQ(kernels() - before, 5U);
    on_nccl_threads(5, [](NcclThread& own) {
        const auto few = own.make(1'000, static_cast<float>(own.own.rank));
        own.all_reduce(few, ReduceOp::avg)->wait();
        for (const float value : few) ASSERT_FLOAT_EQ(value, 2.0F);
        const auto numbers = own.make(7, -3 * own.own.rank);
        own.all_reduce(numbers, ReduceOp::avg)->wait();
        EXPECT_EQ(numbers[6], -6);
        const auto halves = own.make(7, float16(20'000.0F));  // their sum has no float16
        own.all_reduce(halves, ReduceOp::avg)->wait();
        EXPECT_NEAR(static_cast<float>(halves[6]), 20'000.0F, 32.0F);
    });
    EXPECT_EQ(kernels() - before, 5U);
}

// Also when the kernel begins late: it is on the group's stream, before the operation's end.
TEST(Averaging, ByScalingHasEndedWithTheOperation) {
    on_nccl_threads(5, [](NcclThread& own) {
        const auto values = own.make(300'001, static_cast<float>(own.own.rank));
        own.api.set_launch_delay(20ms);
        own.all_reduce(values, ReduceOp::avg)->wait();
        EXPECT_FLOAT_EQ(values.front(), 2.0F);
        EXPECT_FLOAT_EQ(values.back(), 2.0F);
    });
}

// A thread that has used no device yet, or another's: NCCL and CUDA take the current one.
TEST(NcclThreads, ServeThreadsThatUseAnotherDevice) {
    on_nccl_threads(2, [](NcclThread& own) {
        const auto values = own.make(100, 1.0F);
        std::jthread([&] {
            own.all_reduce(values)->wait();
            const std::shared_ptr<void> memory = own.backend->allocate(4'000);
            EXPECT_EQ(own.api.device_of(memory.get()), own.backend->device());
        }).join();
        EXPECT_EQ(values[99], 2.0F);
    });
}

// As cudaFree does: what runs may still use it.
TEST(NcclThreads, WaitBeforeTheyFreeMemory) {
    const ScopedKnob delay("OPERATION_DELAY_US", "50000");
    on_nccl_threads(2, [](NcclThread& own) {
        std::shared_ptr<void> memory = own.backend->allocate(4'000);
        const auto operation =
            own.all_reduce(std::span<float>(static_cast<float*>(memory.get()), 1'000));
        memory.reset();
        EXPECT_TRUE(operation->is_completed());
    });
}

// What a rank keeps of an all_to_all it copies itself.
TEST(NcclThreads, HaveTheirOwnPartWithTheOthers) {
    on_nccl_threads(2, [](NcclThread& own) {
        const auto from = own.make(2'000, own.own.rank + 1), to = own.make(2'000, 0);
        const Call call{.kind = Collective::all_to_all,
                        .dtype = DType::int32,
                        .elements = 1'000,
                        .input = from.data(),
                        .output = to.data()};
        own.api.set_launch_delay(20ms);
        own.backend->launch({&call, 1}, own.stream, 20s)->wait();
        EXPECT_EQ(std::count(to.begin(), to.end(), 1), 1'000);
        EXPECT_EQ(std::count(to.begin(), to.end(), 2), 1'000);
    });
}

TEST(NcclThreads, AllocateZeroedMemory) {
    for (const char* const name : {"libnccl_stand_in.so", "libnccl_stand_in_older.so"}) {
        on_nccl_threads(2,
                        [](NcclThread& own) {
                            const std::shared_ptr<void> memory = own.backend->allocate(4'000);
                            const std::span<float> values(static_cast<float*>(memory.get()), 1'000);
                            EXPECT_EQ(std::count(values.begin(), values.end(), 0.0F), 1'000);
                            std::fill(values.begin(), values.end(), 1.0F);
                            own.all_reduce(values)->wait();
                            EXPECT_EQ(values[999], 2.0F);
                        },
                        {.library = stand_in_path(name)});
    }
}

}  // namespace
