// A group's collectives in graphs: captured once, run in each launch, with what the memory holds
// then. Over the stand-ins, whose CUDA forbids while it captures what CUDA does.
#include "process_group/gpu_captured_backward.hpp"
#include "process_group/gpu_graph.hpp"
#include "process_group/gpus.hpp"
#include "reducer/gpu_model.hpp"
#include "support/gradients.hpp"

#include <ddp/error.hpp>
#include <ddp/reducer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using namespace ddp;
using namespace ddp::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Before anything joins.
[[maybe_unused]] const Gpus& the_gpus = gpus();

void wait_for_look_of_watchdog() {
    const std::size_t before = standin_cuda::calls_of("cudaEventQuery");
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (standin_cuda::calls_of("cudaEventQuery") < before + 2) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << "the watchdog does not look";
        std::this_thread::sleep_for(1ms);
    }
}

template <class T>
void fill(const GpuTensor<T>& tensor, T value) {
    std::fill(tensor.values.begin(), tensor.values.end(), value);
}

TEST(GpuCapture, RunsItsCollectivesInEachLaunchWithWhatTheMemoryHoldsThen) {
    on_worlds({1, 2, 4}, [](ProcessGroup& group) {
        const GpuStream stream;
        GpuTensor<float> sum(group, 1'000, 0.0F), averages(group, 1'000, 0.0F);
        GpuTensor<float> first(group, 10, 0.0F);
        const auto rank = static_cast<float>(group.rank());
        const auto ranks = static_cast<float>(group.size());
        {
            GpuGraph graph(stream, [&] {
                group.all_reduce(sum.view(), ReduceOp::sum, stream).wait(stream);
                Work average = group.all_reduce(averages.view(), ReduceOp::avg, stream);
                group.broadcast(first.view(), Root{0}, stream).wait(stream);
                average.wait(stream);
            });
            for (int launch = 1; launch <= 3; ++launch) {
                const auto step = static_cast<float>(launch);
                fill(sum, step);
                fill(averages, rank * step);
                fill(first, 10 * step + rank);
                graph.launch();
                finish(stream);
                EXPECT_EQ(sum.values[999], ranks * step);
                EXPECT_EQ(averages.values[999], (ranks - 1) / 2 * step);
                EXPECT_EQ(first.values[9], 10 * step);
                group.all_reduce(sum.view()).wait();  // between launches
                EXPECT_EQ(sum.values[0], ranks * ranks * step);
            }
        }
    });
}

TEST(GpuCapture, IsForStreamsAndTheHostIsToldSo) {
    run_ranks(2, [](ProcessGroup& group) {
        const GpuStream stream, other;
        GpuTensor<float> values(group, 100, 1.0F);
        {
            GpuGraph graph(stream, [&] {
                Work work = group.all_reduce(values.view(), ReduceOp::sum, stream);
                EXPECT_FALSE(work.is_completed());
                EXPECT_THAT(usage_error_of([&] { work.wait(); }),
                            AllOf(HasSubstr("all_reduce of 100 float32 (sum), operation 1"),
                                  HasSubstr("is captured: a stream waits for it")));
                EXPECT_THAT(usage_error_of([&] {
                                group.all_reduce(values.view(), ReduceOp::sum, other).wait();
                            }),
                            HasSubstr("a graph is captured with this group"));
                work.wait(stream);
            });
            graph.launch();
            finish(stream);
            EXPECT_EQ(values.values[99], 2.0F);
        }
        group.all_reduce(values.view(), ReduceOp::sum, other).wait();
        EXPECT_EQ(values.values[99], 4.0F);
    });
}

// It is not in a graph, and goes on in the background while another stream is captured: until the
// watchdog has looked at it, rank 1 does not take part.
TEST(GpuCapture, IsNotSpoiltByWhatIsInFlight) {
    run_ranks(2, [](ProcessGroup& group) {
        const GpuStream stream, other;
        GpuTensor<float> values(group, 100, 1.0F), more(group, 100, 1.0F);
        std::vector<float> token(1);
        if (group.rank() == 1) group.recv(token, Peer{0}).wait();
        Work earlier = group.all_reduce(more.view(), ReduceOp::sum, other);
        Work sent;
        {
            GpuGraph graph(stream, [&] {
                Work work = group.all_reduce(values.view(), ReduceOp::sum, stream);
                if (group.rank() == 0) {
                    wait_for_look_of_watchdog();
                    EXPECT_FALSE(earlier.is_completed());
                    sent = group.send(token, Peer{1});
                }
                work.wait(stream);
            });
            earlier.wait();
            EXPECT_EQ(more.values[99], 2.0F);
            graph.launch();
            finish(stream);
            EXPECT_EQ(values.values[99], 2.0F);
        }
    });
}

TEST(GpuCapture, ACaptureThatHasBecomeInvalidFailsTheCallAndNotTheGroup) {
    run_ranks(1, [](ProcessGroup& group) {
        const GpuStream stream;
        GpuTensor<float> values(group, 100, 1.0F);
        GpuGraph::begin(stream);
        EXPECT_EQ(cudaStreamSynchronize(Stream(stream).handle()),
                  cudaErrorStreamCaptureUnsupported);
        EXPECT_THAT(usage_error_of([&] {
                        group.all_reduce(values.view(), ReduceOp::sum, stream).wait(stream);
                    }),
                    HasSubstr("a capture is in the way of the call"));
        GpuGraph::give_up(stream);
        group.all_reduce(values.view(), ReduceOp::sum, stream).wait();
    });
}

TEST(GpuCapture, TwoAtOnceFailTheSecondsCallAndNotTheGroup) {
    run_ranks(1, [](ProcessGroup& group) {
        const GpuStream one, other;
        GpuTensor<float> values(group, 100, 1.0F);
        GpuGraph::begin(one);
        GpuGraph::begin(other);
        group.all_reduce(values.view(), ReduceOp::sum, one).wait(one);
        EXPECT_THAT(usage_error_of(
                        [&] { group.all_reduce(values.view(), ReduceOp::sum, other).wait(other); }),
                    HasSubstr("a capture is in the way of the call"));
        GpuGraph::give_up(one);
        GpuGraph::give_up(other);
        group.all_reduce(values.view(), ReduceOp::sum, one).wait();
    });
}

// NCCL waits for graphs at its end, and this thread alone can destroy them: the error comes before.
TEST(GpuCapture, AGroupWithAGraphFailsAtOnce) {
    const auto body = [](RankReporter& reporter, const auto& join) {
        ProcessGroup group = join();
        const GpuStream stream;
        GpuTensor<float> values(group, 100, 1.0F);
        GpuGraph graph(
            stream, [&] { group.all_reduce(values.view(), ReduceOp::sum, stream).wait(stream); });
        graph.launch();
        finish(stream);
        if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
        try {
            group.all_reduce(values.view()).wait();
        } catch (const PeerError& error) {
            reporter.failure("PeerError " + std::to_string(error.rank()));
        }
    };
    const auto reports = failures_of_ranks(2, body, {.timeout = 50s, .may_die = {1}});
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].message, "PeerError 1");
}

// NCCL's abort does not wait for what is on the group's stream then: the group does.
TEST(GpuCapture, AGroupWithAGraphHasLetGoOfTheMemoryOnceItHasFailed) {
    const auto body = [](RankReporter& reporter, const auto& join) {
        ProcessGroup group = join();
        const GpuStream captured, slow;
        GpuTensor<float> values(group, 100, 1.0F), other(group, 100, 1.0F);
        GpuGraph graph(captured, [&] {
            group.all_reduce(values.view(), ReduceOp::sum, captured).wait(captured);
        });
        if (group.rank() == 1) ::kill(::getpid(), SIGKILL);
        gpus().set_launch_delay(2s);
        gpus().scale(other.view(), 0.5, slow);
        Work after = group.all_reduce(other.view(), ReduceOp::sum, slow);
        EXPECT_THROW(after.wait(), PeerError);
        if (gpus().is_done(slow)) reporter.failure("done");
    };
    const auto reports = failures_of_ranks(2, body, {.timeout = 50s, .may_die = {1}});
    ASSERT_EQ(reports.size(), 1U);
    EXPECT_EQ(reports[0].message, "done");
}

TEST(GpuCapture, AGroupThatItsGraphsOutliveSaysSo) {
    run_ranks(1, [](ProcessGroup& group) {
        const GpuStream stream;
        GpuTensor<float> values(group, 100, 1.0F);
        ::setenv("DDP_NCCL_ABORT_TIMEOUT", "1", 1);
        std::optional<ProcessGroup> brief = group.split({});
        GpuGraph graph(
            stream, [&] { brief->all_reduce(values.view(), ReduceOp::sum, stream).wait(stream); });
        ::testing::internal::CaptureStderr();
        brief.reset();
        EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                    HasSubstr("a graph outlives its group"));
    });
}

// NCCL connects to a peer when it first needs it, in a capture, too.
TEST(GpuCapture, ACallThatNcclKeepsEndsAtItsDeadline) {
    run_ranks(1,
              [](ProcessGroup& group) {
                  const GpuStream stream;
                  GpuTensor<float> values(group, 100, 1.0F);
                  const ScopedKnob delay("LAUNCH_DELAY_US", "60000000");
                  GpuGraph::begin(stream);
                  try {
                      group.all_reduce(values.view(), ReduceOp::sum, stream).wait(stream);
                      ADD_FAILURE() << "no error";
                  } catch (const TimeoutError& error) {
                      EXPECT_THAT(error.what(), HasSubstr("was not launched within 500 ms"));
                  }
                  GpuGraph::give_up(stream);
              },
              {.init = {.timeout = 500ms}});
}

TEST(GpuCapture, NeedsANcclWhoseCommunicatorsBlock) {
    const ScopedKnob version("VERSION", "21805");
    run_ranks(2, [](ProcessGroup& group) {
        const GpuStream stream;
        GpuTensor<float> values(group, 100, 1.0F);
        GpuGraph::begin(stream);
        EXPECT_THAT(usage_error_of([&] {
                        group.all_reduce(values.view(), ReduceOp::sum, stream).wait(stream);
                    }),
                    HasSubstr("needs NCCL 2.22 or newer; this is 2.18.5"));
        GpuGraph::give_up(stream);
        group.all_reduce(values.view()).wait();
        EXPECT_EQ(values.values[99], 2.0F);
    });
}

class CapturedBackward : public ::testing::TestWithParam<bool> {};

TEST_P(CapturedBackward, HasTheBitsOfOneThatIsNot) {
    on_worlds({1, 2, 3}, [](ProcessGroup& group) {
        expect_same_bits_of_captured_backward(group, {.gradient_as_bucket_view = GetParam()});
    });
}

INSTANTIATE_TEST_SUITE_P(Gradients, CapturedBackward, ::testing::Bool(),
                         [](const auto& of) { return of.param ? "Views" : "Packed"; });

TEST(GpuCapture, RefusesABackwardThatTheHostTakesPartIn) {
    run_ranks(2, [](ProcessGroup& group) {
        const auto refusal = [&](const ReducerOptions& options, int steps, bool late = false) {
            GpuModel model(group, {300});
            const GpuStream stream;
            Reducer reducer(model.parameters(), group, options);
            for (int step = 0; step < steps; ++step) {
                reducer.start_backward();
                reducer.mark_ready(0);
                EXPECT_TRUE(reducer.wait());
            }
            GpuGraph::begin(stream);
            const std::string error = usage_error_of([&] {
                reducer.start_backward({}, late ? Stream{} : Stream(stream));
                if (late) reducer.mark_ready(0, stream);
            });
            GpuGraph::give_up(stream);
            return error;
        };
        EXPECT_THAT(refusal({}, 0), HasSubstr("before one that is not"));
        EXPECT_THAT(refusal({}, 0, true), HasSubstr("before one that is not"));
        EXPECT_EQ(refusal({}, 1), "no error");
        EXPECT_THAT(refusal({.comm_hook = fp16_compress_hook()}, 1), HasSubstr("with a comm_hook"));
        EXPECT_EQ(refusal({.comm_hook = fp16_compress_hook()}, 2), "no error");
        EXPECT_THAT(refusal({.find_unused_parameters = true}, 1),
                    HasSubstr("with find_unused_parameters"));
        EXPECT_THAT(refusal({.checksum_steps = 5}, 1), HasSubstr("with checksum_steps"));
        EXPECT_THAT(refusal({.bucket_cap_mb = autotune}, 1), HasSubstr("while autotune chooses"));
    });
}

}  // namespace
