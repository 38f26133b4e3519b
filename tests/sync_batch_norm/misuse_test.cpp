// What the functions refuse: memory that does not fit, and batches that are not together; where
// ranks disagree, on all of them.
#include <ddp/sync_batch_norm.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/reducer.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/host_backends.hpp"

namespace {

using ddp::testing::host_backends;
using namespace ddp;
using ddp::testing::mark_with;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Two samples of each channel.
std::string error_of_forward(std::int64_t channels, ProcessGroup& group, std::int64_t samples = 2) {
    std::vector<float> x(static_cast<std::size_t>(channels * samples), 1);
    const TensorView view(x.data(), {samples, channels}, DType::float32);
    return usage_error_of([&] { sync_batch_norm_forward(view, view, {}, group); });
}

TEST(SyncBatchNormMisuse, OtherNumbersOfChannelsAreNamedOnEveryRank) {
    for (const InitOptions& init : host_backends()) {
        run_ranks(3,
                  [](ProcessGroup& group) {
                      EXPECT_THAT(
                          error_of_forward(group.rank() == 2 ? 5 : 4, group),
                          AllOf(HasSubstr("rank 0 called"), HasSubstr("rank 2 called"),
                                HasSubstr("forward of a synchronised batch norm of 4 channels"),
                                HasSubstr("forward of a synchronised batch norm of 5 channels")));
                  },
                  {.init = init});
    }
}

TEST(SyncBatchNormMisuse, AnotherOrderIsNamedOnEveryRank) {
    for (const InitOptions& init : host_backends()) {
        run_ranks(2,
                  [](ProcessGroup& group) {
                      ToyNet net({8});
                      Reducer reducer(net.parameters(), group);
                      std::vector<double> sums(8, 1);
                      const auto step = [&] {
                          if (group.rank() == 0) mark_with(net, reducer, {0}, 1);
                          all_reduce_gradient_sums(sums, group).wait();
                          if (group.rank() == 1) mark_with(net, reducer, {0}, 1);
                          static_cast<void>(reducer.wait());
                      };
                      EXPECT_THAT(
                          usage_error_of(step),
                          AllOf(HasSubstr("backward of a synchronised batch norm of 4 channels"),
                                HasSubstr("bucket 0 of backward 1 of reducer 1")));
                  },
                  {.init = init});
    }
}

TEST(SyncBatchNormMisuse, LogicalRanksThatTakeTurnsAreRefused) {
    for (const int ranks : {1, 2}) {
        run_ranks(ranks, [](ProcessGroup& group) {
            const auto size = static_cast<std::size_t>(group.size());
            ProcessGroup part = group.split({});
            ToyNet net({8});
            {
                Reducer reducer(net.parameters(), group, {.logical_ranks = size});
                EXPECT_EQ(error_of_forward(3, group), "no error");
            }
            for (ProcessGroup* of_reducer : {&group, &part}) {
                Reducer reducer(net.parameters(), *of_reducer, {.logical_ranks = 2 * size});
                EXPECT_THAT(error_of_forward(3, group), HasSubstr("logical ranks"));
                EXPECT_THAT(error_of_forward(3, part), HasSubstr("logical ranks"));
                Reducer moved = std::move(reducer);
                EXPECT_THAT(error_of_forward(3, group), HasSubstr("logical ranks"));
            }
            EXPECT_EQ(error_of_forward(3, group), "no error");
        });
    }
}

TEST(SyncBatchNormMisuse, AReducerThatWasRefusedTakesNoTurns) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({8});
        EXPECT_THAT(usage_error_of([&] { Reducer(net.parameters(), group, {.logical_ranks = 6}); }),
                    HasSubstr("logical_ranks is 6"));
        EXPECT_EQ(error_of_forward(3, group), "no error");
    });
}

TEST(SyncBatchNormMisuse, OneValueAChannelIsNoBatch) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_THAT(error_of_forward(4, group, group.rank() == 1 ? 1 : 0),
                    HasSubstr("one value a channel, over all ranks, is no batch"));
        EXPECT_EQ(error_of_forward(4, group, group.rank() == 0 ? 0 : 1), "no error");
        EXPECT_EQ(error_of_forward(4, group, 0), "no error");
    });
}

TEST(SyncBatchNormMisuse, MemoryThatDoesNotFitIsNamed) {
    run_ranks(1, [](ProcessGroup& group) {
        std::vector<float> x(12, 1);
        std::vector<double> doubles(12, 1);
        std::vector<float> four(4, 1);
        std::vector<float> three(3, 1);
        const TensorView view(x.data(), {3, 4}, DType::float32);
        const auto forward = [&](const TensorView& input, const TensorView& output,
                                 const BatchNormState& state, const BatchNormOptions& options) {
            return usage_error_of(
                [&] { sync_batch_norm_forward(input, output, state, group, options); });
        };
        EXPECT_THAT(forward(x, x, {}, {}), HasSubstr("must be float32 or float64 [samples, chan"));
        EXPECT_THAT(forward({x.data(), {3, 4}, DType::int32}, view, {}, {}), HasSubstr("int32"));
        EXPECT_THAT(forward(view, {x.data(), {4, 3}, DType::float32}, {}, {}),
                    HasSubstr("the output is float32 [4, 3]"));
        EXPECT_THAT(forward(view, {doubles.data(), {3, 4}, DType::float64}, {}, {}),
                    HasSubstr("the output is float64"));
        EXPECT_THAT(forward(view, view, {.weight = three}, {}), HasSubstr("weight is float32 [3]"));
        EXPECT_THAT(forward(view, view, {.bias = doubles}, {}), HasSubstr("bias is float64"));
        EXPECT_THAT(forward(view, view, {.running_mean = four}, {}), HasSubstr("or neither"));
        EXPECT_THAT(forward(view, view, {.running_mean = four, .running_var = four},
                            {.momentum = std::nullopt}),
                    HasSubstr("give num_batches_tracked"));
        EXPECT_THAT(usage_error_of([&] { batch_norm_evaluate(view, view, {}); }),
                    HasSubstr("no running statistics"));
        const auto backward = [&](const BatchNormStatistics& statistics,
                                  const BatchNormGradients& gradients) {
            return usage_error_of(
                [&] { sync_batch_norm_backward(view, statistics, {}, gradients, group); });
        };
        const BatchNormStatistics good = sync_batch_norm_forward(view, view, {}, group);
        EXPECT_THAT(backward({}, {.output = view}), HasSubstr("the statistics are of 0 channels"));
        EXPECT_THAT(backward(good, {.output = x}), HasSubstr("the gradient of the output"));
        EXPECT_THAT(backward(good, {.output = view, .bias = three}),
                    HasSubstr("the gradient of bias"));
        EXPECT_EQ(backward(good, {.output = view}), "no error");
        std::vector<float> moments(9);
        EXPECT_THAT(usage_error_of([&] { all_gather_moments(moments, moments, group).wait(); }),
                    HasSubstr("float64"));
    });
}

}  // namespace
