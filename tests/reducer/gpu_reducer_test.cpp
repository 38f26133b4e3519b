// Gradients on a GPU: buckets there, streams that wait for each other, gradients that cannot move.
// Over the host's device API, whose kernels begin late here: what is not ordered is seen.
#include "contract/rank_record.hpp"
#include "process_group/gpus.hpp"
#include "process_group/group_access.hpp"
#include "reducer/gpu_model.hpp"
#include "support/gradients.hpp"
#include "tensor/device/device_memory.hpp"

#include <ddp/distributed_data_parallel.hpp>
#include <ddp/error.hpp>
#include <ddp/reducer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

class LateKernels {
public:
    LateKernels() { gpus().set_launch_delay(2ms); }
    ~LateKernels() { gpus().set_launch_delay(0ms); }
    LateKernels(const LateKernels&) = delete;
    LateKernels& operator=(const LateKernels&) = delete;
};

constexpr double two_buckets = 0.005;  // MiB, of the model below
const std::vector<std::size_t> sizes{300, 1, 1'000, 77, 2'000};

float rank_of(const ProcessGroup& group) { return static_cast<float>(group.rank()); }

// Each parameter p gets rank + p + step on the streams in turn.
void backward(GpuModel& model, Reducer& reducer, const ProcessGroup& group, int step,
              std::span<const Stream> streams) {
    for (std::size_t left = model.parameters().size(); left > 0; --left) {
        const std::size_t p = left - 1;
        const Stream stream = streams[p % streams.size()];
        model.set_gradient(p, rank_of(group) + static_cast<float>(p) + static_cast<float>(step),
                           stream);
        reducer.mark_ready(p, stream);
    }
}

void expect_averages(GpuModel& model, const ProcessGroup& group, int step, Stream stream) {
    const float mean = static_cast<float>(group.size() - 1) / 2;
    for (std::size_t p = 0; p < model.parameters().size(); ++p) {
        EXPECT_TRUE(all_are(model.gradient(p, stream),
                            mean + static_cast<float>(p) + static_cast<float>(step)))
            << "parameter " << p << " in step " << step;
    }
}

TEST(GpuReducer, AveragesAfterTheWorkOnEachGradientsStream) {
    for (const bool views : {true, false}) {
        on_worlds({1, 2, 3}, [&](ProcessGroup& group) {
            GpuModel model(group, sizes);
            const GpuStream a, b, optimiser;
            const std::array<Stream, 2> streams{a, b};
            Reducer reducer(model.parameters(), group,
                            {.bucket_cap_mb = two_buckets,
                             .first_bucket_mb = two_buckets,
                             .gradient_as_bucket_view = views});
            EXPECT_GT(reducer.num_buckets(), 1U);
            const LateKernels late;
            for (int step = 0; step < 3; ++step) {
                backward(model, reducer, group, step, streams);
                EXPECT_TRUE(reducer.wait(optimiser));
                expect_averages(model, group, step, optimiser);
            }
        });
    }
}

// Rank 1 goes on when it has heard that rank 0 is through with its wait().
TEST(GpuReducer, WaitsForNoOtherRanksHost) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        const GpuStream stream;
        const std::array<Stream, 1> streams{stream};
        Reducer reducer(model.parameters(), group, {});
        std::vector<float> token(1);
        for (int step = 0; step < 4; ++step) {
            backward(model, reducer, group, step, streams);
            const bool is_held = step > 0 && group.rank() == 1;  // the first step orders buckets
            if (is_held) group.recv(token, Peer{0}).wait();
            EXPECT_TRUE(reducer.wait(stream));
            if (step > 0 && group.rank() == 0) group.send(token, Peer{1}).wait();
            expect_averages(model, group, step, stream);
        }
    });
}

void backward_with_a_mistake(GpuModel& model, Reducer& reducer, const ProcessGroup& group) {
    for (std::size_t p = model.parameters().size(); p > 0; --p) {
        if (group.rank() != 1 || p != 2) reducer.mark_ready(p - 1);
    }
}

TEST(GpuReducer, NamesAMistakeOnEveryRankOneBackwardLater) {
    run_ranks(3, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        const std::array<Stream, 1> streams{Stream{}};
        Reducer reducer(model.parameters(), group, {});
        backward_with_a_mistake(model, reducer, group);
        EXPECT_TRUE(reducer.wait());
        backward(model, reducer, group, 1, streams);
        EXPECT_THAT(usage_error_of([&] { EXPECT_FALSE(reducer.wait()); }),
                    HasSubstr("in the backward before this one, on rank 1, backward ended without "
                              "a gradient for layer1;"));
        backward(model, reducer, group, 2, streams);
        EXPECT_TRUE(reducer.wait());
        expect_averages(model, group, 2, {});
    });
}

TEST(GpuReducer, LogsAMistakeWhereItWasMade) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        ::testing::internal::CaptureStderr();
        {
            Reducer reducer(model.parameters(), group, {});
            backward_with_a_mistake(model, reducer, group);
            EXPECT_TRUE(reducer.wait());
        }
        const std::string log = ::testing::internal::GetCapturedStderr();
        EXPECT_EQ(log.find("backward ended without a gradient for layer1") != std::string::npos,
                  group.rank() == 1)
            << log;
    });
}

TEST(GpuReducer, FindsAMistakeAtOnceWhereItIsAlone) {
    run_ranks(1, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        Reducer reducer(model.parameters(), group, {});
        reducer.mark_ready(0);
        EXPECT_THAT(usage_error_of([&] { EXPECT_FALSE(reducer.wait()); }),
                    HasSubstr("backward ended without a gradient for layer1"));
    });
}

// NCCL adds up whatever comes; no header tells the ranks apart.
TEST(GpuReducer, FindsLaunchesInAnotherOrderWithTheChecksums) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel one(group, {300});
        GpuModel other(group, {300});
        const ReducerOptions options{.checksum_steps = 1};
        Reducer first(one.parameters(), group, options);
        Reducer second(other.parameters(), group, options);
        const auto step = [&](bool swapped) {
            if (swapped) second.mark_ready(0);
            first.mark_ready(0);
            if (!swapped) second.mark_ready(0);
            EXPECT_TRUE(first.wait());
            EXPECT_TRUE(second.wait());
        };
        step(false);
        EXPECT_THAT(usage_error_of([&] { step(group.rank() == 1); }),
                    HasSubstr("until step 2 rank 0 and rank 1 have launched other operations on "
                              "their GPUs, or in another order"));
    });
}

constexpr std::size_t like_a_bucket = 384;  // of 300 elements

// Every later operation meets one that is not its own.
TEST(GpuReducer, FindsALaunchTooManyWithTheChecksums) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, {300});
        GpuModel extra(group, {like_a_bucket});
        const auto measure = [&] { return group.all_reduce(extra.parameters()[0].value); };
        Reducer reducer(model.parameters(), group, {.checksum_steps = 1});
        const auto step = [&](bool has_extra) {
            Work measured;
            if (has_extra) measured = measure();
            reducer.mark_ready(0);
            EXPECT_TRUE(reducer.wait());
        };
        step(false);
        EXPECT_THAT(usage_error_of([&] { step(group.rank() == 1); }),
                    AllOf(HasSubstr("until step 2 rank 0 and rank 1 have launched other "
                                    "operations on their GPUs ("),
                          HasSubstr(" of them), or in another order")));
        if (group.rank() == 0) measure().wait();  // what rank 1's bucket meets
    });
}

// Until the CPU half of this rank's group is in an all_gather of so many elements.
void wait_for_all_gather(ProcessGroup& group, std::uint64_t elements) {
    const auto is_in_it = [&] {
        const auto record = contract::read_page(process_group::GroupAccess(group).control_page());
        if (record.operations.empty()) return false;
        const contract::OperationRecord& now = record.operations.back();
        return !now.ended && now.call.kind == contract::Collective::all_gather &&
               now.call.elements == elements;
    };
    const auto end = std::chrono::steady_clock::now() + 30s;
    while (!is_in_it()) {
        if (std::chrono::steady_clock::now() > end) return ADD_FAILURE() << "it did not come";
        std::this_thread::yield();
    }
}

// Not a mistake: another thread of rank 0 launches it, too, when the orders have been compared.
TEST(GpuReducer, LetsARankBeAheadOfOthersWithTheChecksums) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, {300, 300});
        GpuModel extra(group, {like_a_bucket});
        const auto measure = [&] { group.all_reduce(extra.parameters()[0].value).wait(); };
        Reducer reducer(model.parameters(), group, {.checksum_steps = 1});
        for (int step = 0; step < 3; ++step) {
            Work measured;
            if (step > 0) group.barrier().wait();  // no longer in the last step's all_gather
            reducer.mark_ready(1);
            reducer.mark_ready(0);
            std::jthread metrics;
            if (group.rank() == 1) {
                measured = group.all_reduce(extra.parameters()[0].value);
            } else {
                metrics = std::jthread([&] {
                    wait_for_all_gather(group, 2 * model.parameters().size());
                    measure();
                });
            }
            EXPECT_TRUE(reducer.wait());
        }
    });
}

TEST(GpuReducer, HasRankZerosValuesEverywhere) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        for (std::size_t p = 0; p < sizes.size(); ++p) model.set_value(p, 10 + rank_of(group));
        Reducer reducer(model.parameters(), group);
        for (std::size_t p = 0; p < sizes.size(); ++p) EXPECT_TRUE(all_are(model.value(p), 10));
    });
}

TEST(GpuReducer, KeepsGradientsInOneAllocationAndGivesThemBack) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, sizes);
        std::vector<void*> before;
        for (const Parameter& parameter : model.parameters()) {
            before.push_back(parameter.grad.data);
            model.set_gradient(before.size() - 1, 5, {});
        }
        {
            Reducer reducer(model.parameters(), group,
                            {.bucket_cap_mb = two_buckets,
                             .first_bucket_mb = two_buckets,
                             .gradient_as_bucket_view = true});
            const void* const first = model.parameters().back().grad.data;
            for (const Parameter& parameter : model.parameters()) {
                const auto* const data = static_cast<const std::byte*>(parameter.grad.data);
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 256, 0U);
                EXPECT_LT(std::abs(data - static_cast<const std::byte*>(first)), 32'768);
            }
            EXPECT_TRUE(all_are(model.gradient(2, {}), 5));
        }
        for (std::size_t p = 0; p < before.size(); ++p) {
            EXPECT_EQ(model.parameters()[p].grad.data, before[p]);
            EXPECT_TRUE(all_are(model.gradient(p, {}), 5));
        }
    });
}

TEST(GpuReducer, HasTheGpusTimesWhereTheyAreAskedFor) {
    run_ranks(2, [](ProcessGroup& group) {
        const ScopedKnob delay("OPERATION_DELAY_US", "3000");
        for (const bool asked : {false, true}) {
            GpuModel model(group, sizes);
            const GpuStream stream;
            const std::array<Stream, 1> streams{stream};
            Reducer reducer(model.parameters(), group,
                            {.bucket_cap_mb = two_buckets,
                             .first_bucket_mb = two_buckets,
                             .time_on_gpu = asked});
            for (int step = 0; step < 2; ++step) {
                backward(model, reducer, group, step, streams);
                EXPECT_TRUE(reducer.wait(stream));
                const StepStatistics& statistics = reducer.statistics();
                EXPECT_EQ(statistics.buckets, 2U);
                if (!asked) {
                    EXPECT_EQ(statistics.communication, 0ns);
                    continue;
                }
                EXPECT_GE(statistics.communication, 6ms);
                EXPECT_GE(statistics.exposed, 3ms) << "of the last bucket";
                EXPECT_EQ(to_json(reducer.statistics()), to_json(statistics)) << "asked again";
            }
        }
    });
}

TEST(GpuReducer, NamesItsBucketsToAProfiler) {
    const std::string folder =
        made_once([] { return ::testing::TempDir() + std::to_string(::getpid()); });
    run_ranks(2, [&](ProcessGroup& group) {
        const std::string file = folder + std::to_string(group.rank());
        const std::string profiler = std::string(DDP_STAND_IN_FOLDER) + "/libddp_test_profiler.so";
        ::setenv("NVTX_INJECTION64_PATH", profiler.c_str(), 1);
        ::setenv("DDP_TEST_TRACE", file.c_str(), 1);
        GpuModel model(group, {300, 300'000});
        Reducer reducer(model.parameters(), group, {.bucket_cap_mb = 1, .first_bucket_mb = 1});
        const std::array<Stream, 1> stream{};
        backward(model, reducer, group, 0, stream);
        EXPECT_TRUE(reducer.wait());
        std::ostringstream ranges;
        ranges << std::ifstream(file).rdbuf();
        EXPECT_EQ(ranges.str(), "ddp bucket 0, 1.1 MiB\nend\nddp bucket 1, 0.0 MiB\nend\n");
        std::filesystem::remove(file);
    });
}

// With no memory for a second time: when the order of arrival is known, the gradients change places
// where they are.
TEST(GpuReducer, HoldsGradientsOnceWhereTheyHadNoMemory) {
    run_ranks(2, [](ProcessGroup& group) {
        const std::vector<std::size_t> floats{30'000, 10'000, 50'000, 1, 40'000, 20'003};
        const std::vector<std::size_t> arrival{2, 4, 0, 5, 3, 1};
        std::vector<device::Buffer> values(floats.size());
        std::vector<Parameter> parameters;
        std::size_t bytes = 0;
        for (std::size_t p = 0; p < floats.size(); ++p) {
            const Shape shape{static_cast<std::int64_t>(floats[p])};
            void* const value = values[p].reserve(group.device(), floats[p] * sizeof(float));
            parameters.push_back({"layer" + std::to_string(p),
                                  TensorView(value, shape, DType::float32, group.device()),
                                  TensorView(nullptr, shape, DType::float32, group.device())});
            bytes += (floats[p] * sizeof(float) + 511) / 512 * 512;
        }
        constexpr std::size_t bucket = 200'000;
        const std::size_t before = gpus().allocated();
        gpus().set_memory(before + bytes + 8 * 1'024 + bucket);
        {
            Reducer reducer(
                parameters, group,
                {.bucket_cap_mb = 0.1, .first_bucket_mb = 0.1, .gradient_as_bucket_view = true});
            const std::size_t arena = gpus().allocated() - before;
            EXPECT_LE(arena, bytes + 8 * 1'024) << "the ends of buckets";
            for (int step = 0; step < 3; ++step) {
                for (const std::size_t p : arrival) {
                    const TensorView& grad = parameters[p].grad;
                    const std::vector<float> own(floats[p],
                                                 static_cast<float>(10 * p) + 2 * rank_of(group));
                    device::copy(group.device(), grad.data, own.data(), grad.bytes(), {});
                    reducer.mark_ready(p);
                }
                EXPECT_TRUE(reducer.wait());
                for (const std::size_t p : arrival) {
                    std::vector<float> average(floats[p]);
                    const TensorView& grad = parameters[p].grad;
                    device::copy(group.device(), average.data(), grad.data, grad.bytes(), {});
                    device::finish(group.device(), {});
                    EXPECT_TRUE(all_are(average, static_cast<float>(10 * p + 1))) << p;
                }
            }
            EXPECT_EQ(gpus().allocated(), before + arena);
            std::vector<const void*> places;
            for (const std::size_t p : arrival) places.push_back(parameters[p].grad.data);
            EXPECT_TRUE(std::ranges::is_sorted(places)) << "not in the order of arrival";
        }
        for (const Parameter& parameter : parameters) EXPECT_EQ(parameter.grad.data, nullptr);
        EXPECT_EQ(gpus().allocated(), before);
        gpus().set_memory(std::size_t{1} << 30);
    });
}

TEST(GpuReducer, LeavesNothingAllocated) {
    run_ranks(2, [](ProcessGroup& group) {
        const std::size_t before = gpus().allocated();
        {
            GpuModel model(group, sizes);
            Reducer reducer(model.parameters(), group, {.gradient_as_bucket_view = false});
            const std::array<Stream, 1> stream{};
            backward(model, reducer, group, 0, stream);
            EXPECT_TRUE(reducer.wait());
        }
        EXPECT_EQ(gpus().allocated(), before);
    });
}

TEST(GpuReducer, LeavesGradientsThatNobodyUsedAsTheyWere) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            GpuModel model(group, sizes);
            const GpuStream stream, optimiser;
            Reducer reducer(model.parameters(), group,
                            {.gradient_as_bucket_view = views, .find_unused_parameters = true});
            const LateKernels late;
            for (std::size_t p = 0; p < sizes.size(); ++p) model.set_gradient(p, 7, stream);
            std::vector<std::size_t> unused{3};  // 4 on rank 0 alone
            if (group.rank() == 0) unused.push_back(4);
            reducer.start_backward(unused, stream);
            for (const std::size_t p : {4U, 2U, 1U, 0U}) {
                if (p == 4 && group.rank() == 0) continue;
                model.set_gradient(p, 1 + rank_of(group), stream);
                reducer.mark_ready(p, stream);
            }
            EXPECT_TRUE(reducer.wait(optimiser));
            EXPECT_TRUE(all_are(model.gradient(2, optimiser), 1.5));
            EXPECT_TRUE(all_are(model.gradient(3, optimiser), 7));
            EXPECT_TRUE(all_are(model.gradient(4, optimiser), 4.5));  // 7 and 2
        });
    }
}

TEST(GpuReducer, CompressesThere) {
    for (const bool bfloat : {false, true}) {
        run_ranks(2, [&](ProcessGroup& group) {
            GpuModel model(group, sizes);
            const GpuStream stream;
            const std::array<Stream, 1> streams{stream};
            Reducer reducer(model.parameters(), group,
                            {.comm_hook = bfloat ? bf16_compress_hook() : fp16_compress_hook()});
            const LateKernels late;
            for (int step = 0; step < 2; ++step) {
                backward(model, reducer, group, step, streams);
                EXPECT_TRUE(reducer.wait(stream));
                expect_averages(model, group, step, stream);
            }
        });
    }
}

TEST(GpuReducer, DividesByTheRanksThatStillTrain) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            GpuModel model(group, sizes);
            const std::array<Stream, 1> streams{};
            Reducer reducer(model.parameters(), group, {.gradient_as_bucket_view = views});
            reducer.join(
                [&] {
                    for (int step = 0; step <= group.rank(); ++step) {
                        reducer.start_forward();
                        backward(model, reducer, group, step, streams);
                        EXPECT_TRUE(reducer.wait());
                        if (step == 0) continue;
                        EXPECT_TRUE(all_are(model.gradient(1, {}), 1 + 1 + 1));
                    }
                },
                {.divide_by_initial_world_size = false});
        });
    }
}

TEST(GpuReducer, TunesAndComparesChecksums) {
    run_ranks(2, [](ProcessGroup& group) {
        GpuModel model(group, {400'000, 400'000});
        const std::array<Stream, 1> streams{};
        Reducer reducer(model.parameters(), group,
                        {.bucket_cap_mb = autotune, .checksum_steps = 1});
        int step = 0;
        for (; step < 100 && !reducer.is_tuned(); ++step) {
            backward(model, reducer, group, step, streams);
            EXPECT_TRUE(reducer.wait());
            expect_averages(model, group, step, {});
        }
        EXPECT_TRUE(reducer.is_tuned());
        model.set_value(0, rank_of(group));
        backward(model, reducer, group, step, streams);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("the value of layer0 on rank 1 differs"));
    });
}

struct Misuse {
    const char* name;
    Backend backend;
    std::function<void(std::vector<Parameter>&)> change;
    std::size_t logical_ranks;
    const char* message;
};
void PrintTo(const Misuse& misuse, std::ostream* out) { *out << misuse.message; }
class GpuReducerMisuse : public ::testing::TestWithParam<Misuse> {};

void move_to_the_cpu(Parameter& parameter) {
    parameter.value.device = parameter.grad.device = Device{};
}

INSTANTIATE_TEST_SUITE_P(
    GpuReducer, GpuReducerMisuse,
    ::testing::Values(
        Misuse{"OneOnTheCpu", Backend::automatic,
               [](std::vector<Parameter>& all) { move_to_the_cpu(all[1]); }, 0,
               "parameter layer1 is on cpu, rank 0's group uses cuda:0: move the model first"},
        Misuse{"AllOnTheCpu", Backend::nccl,
               [](std::vector<Parameter>& all) { std::ranges::for_each(all, move_to_the_cpu); }, 0,
               "parameter layer0 is on cpu, rank 0's group uses cuda:0: move the model first"},
        Misuse{"OnAnotherGpu", Backend::automatic,
               [](std::vector<Parameter>& all) {
                   all[0].value.device.index = all[0].grad.device.index = 3;
               },
               0, "parameter layer0 is on cuda:3, rank 0's group uses cuda:0"},
        Misuse{"GradientOfAnotherShape", Backend::automatic,
               [](std::vector<Parameter>& all) { all[1].grad.shape = Shape{5}; }, 0,
               "the gradient of layer1 [6] float32 on cuda is [5] float32 on cuda:"},
        Misuse{"WithoutNccl", Backend::shm, [](std::vector<Parameter>&) {}, 0,
               "parameter layer0 is on cuda:0, rank 0's group uses cpu"},
        Misuse{"LogicalRanks", Backend::automatic, [](std::vector<Parameter>&) {}, 4,
               "logical_ranks is 4 for 2 ranks and a model on a GPU"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST_P(GpuReducerMisuse, IsNamedOnEveryRank) {
    const Misuse& misuse = GetParam();
    run_ranks(2, [&](ProcessGroup& for_memory) {
        GpuModel model(for_memory, {4, 6});
        auto group = init_process_group({.backend = misuse.backend});
        std::vector<Parameter> parameters(model.parameters().begin(), model.parameters().end());
        misuse.change(parameters);
        const ReducerOptions options{.logical_ranks = misuse.logical_ranks};
        EXPECT_THAT(usage_error_of([&] { Reducer(parameters, group, options); }),
                    HasSubstr(misuse.message));
    });
}

// A net of the user's with a stream of its own.
class StreamNet {
public:
    explicit StreamNet(const ProcessGroup& group) : model_(group, sizes), group_(group) {}

    std::span<Parameter> parameters() { return model_.parameters(); }
    void on_gradient_ready(GradientReady hook) { hook_ = std::move(hook); }
    Stream stream() const { return stream_; }
    void forward() {}
    void backward() {
        for (std::size_t p = 0; p < sizes.size(); ++p) {
            model_.set_gradient(p, rank_of(group_) + static_cast<float>(p), stream_);
            hook_(p, stream_);
        }
    }
    GpuModel& model() { return model_; }

private:
    GpuModel model_;
    const ProcessGroup& group_;
    GpuStream stream_;
    GradientReady hook_;
};

TEST(GpuDistributedDataParallel, WorksOnTheNetsOwnStream) {
    run_ranks(2, [](ProcessGroup& group) {
        StreamNet net(group);
        DistributedDataParallel wrapped(net, group);
        const LateKernels late;
        wrapped.forward();
        EXPECT_TRUE(wrapped.backward());
        expect_averages(net.model(), group, 0, net.stream());
    });
}

}  // namespace
