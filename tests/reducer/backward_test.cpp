// Backwards that are not like the plain one: unused parameters, graphs that use one twice, another
// order on another rank, gradients that stay from step to step.
#include "reducer/backward_marks.hpp"

#include <ddp/reducer.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace ddp;
using ddp::testing::add_gradient;
using ddp::testing::gradient_is;
using ddp::testing::mark_with;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::HasSubstr;

using Indices = std::vector<std::size_t>;

// A bucket each.
ReducerOptions small_buckets(bool views) {
    return {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .gradient_as_bucket_view = views};
}

TEST(BackwardMarks, OrderTheParametersByTheirLastMarkAndPutTheUnusedLast) {
    ToyNet net({1, 1, 1, 1});
    reducer::BackwardMarks marks(net.parameters(), true);
    for (const std::size_t p : {0, 1, 0}) EXPECT_FALSE(marks.mark_ready(p));
    EXPECT_EQ(marks.order(), (Indices{1, 0, 3, 2}));
    marks.end_backward();
    marks.start_backward();
    EXPECT_FALSE(marks.mark_ready(0));
    EXPECT_TRUE(marks.mark_ready(0));
    EXPECT_TRUE(marks.mark_ready(1));
    EXPECT_EQ(marks.order(), (Indices{0, 1, 3, 2}));
}

TEST(BackwardMarks, KeepTheFirstOfTwoMistakes) {
    ToyNet net({1, 1});
    reducer::BackwardMarks marks(net.parameters(), false);
    for (const std::size_t p : {0, 0}) marks.mark_ready(p);
    EXPECT_THAT(marks.mistake(), HasSubstr("layer0 was marked ready twice"));
    marks.end_backward();
    EXPECT_THAT(marks.mistake(), HasSubstr("layer0 was marked ready twice"));
    marks.start_backward();
    marks.end_backward();
    EXPECT_THAT(marks.mistake(), HasSubstr("without a gradient for layer0, layer1;"));
}

TEST(BackwardMarks, NameAtMostEightParameters) {
    ToyNet net({1, 1, 1, 1, 1, 1, 1, 1, 1});
    Indices which{0, 1, 2, 3, 4, 5, 6, 7};
    const std::string eight = "layer0, layer1, layer2, layer3, layer4, layer5, layer6, layer7";
    EXPECT_EQ(reducer::list_names(net.parameters(), which), eight);
    which.push_back(8);
    EXPECT_EQ(reducer::list_names(net.parameters(), which), eight + " and 1 more");
}

TEST(UnusedParameters, GetTheAverageWhereAnotherRankUsesThem) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({40, 40, 40});
            ReducerOptions options = small_buckets(views);
            options.find_unused_parameters = true;
            Reducer reducer(net.parameters(), group, options);
            for (int step = 0; step < 3; ++step) {
                net.zero_grad();
                const bool first = group.rank() == 0;
                reducer.start_backward(first ? Indices{1} : Indices{2});
                mark_with(net, reducer, first ? Indices{2, 0} : Indices{1, 0}, 8);
                EXPECT_TRUE(reducer.wait());
                EXPECT_TRUE(gradient_is(net.parameters(), 0, 8));
                EXPECT_TRUE(gradient_is(net.parameters(), 1, 4));
                EXPECT_TRUE(gradient_is(net.parameters(), 2, 4));
            }
        });
    }
}

TEST(UnusedParameters, KeepTheirGradientsWhereNobodyUsesThem) {
    for (const bool views : {true, false}) {
        for (const double cap_mb : {0.0001, 1.0}) {  // with and without a bucket of its own
            run_ranks(2, [&](ProcessGroup& group) {
                ToyNet net({40, 40, 40});
                ReducerOptions options = small_buckets(views);
                options.bucket_cap_mb = options.first_bucket_mb = cap_mb;
                options.find_unused_parameters = true;
                Reducer reducer(net.parameters(), group, options);
                const auto own = static_cast<float>(group.rank() + 1);
                add_gradient(net.parameters(), 1, own);
                reducer.start_backward(Indices{1});
                mark_with(net, reducer, {2, 0}, own * 2);
                EXPECT_TRUE(reducer.wait());
                EXPECT_TRUE(gradient_is(net.parameters(), 0, 3));
                EXPECT_TRUE(gradient_is(net.parameters(), 1, own)) << "touched";
            });
        }
    }
}

TEST(UnusedParameters, CountAsUsedWhenAnEarlierBackwardUsedThem) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        ReducerOptions options = small_buckets(true);
        options.find_unused_parameters = true;
        Reducer reducer(net.parameters(), group, options);
        const auto own = static_cast<float>(2 * group.rank());
        {
            const auto guard = reducer.no_sync();
            reducer.start_backward();
            mark_with(net, reducer, {1, 0}, own);
            EXPECT_FALSE(reducer.wait());
        }
        reducer.start_backward(Indices{1});
        mark_with(net, reducer, {0}, own);
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 2));
        EXPECT_TRUE(gradient_is(net.parameters(), 1, 1)) << "the accumulated gradient was lost";
    });
}

TEST(UnusedParameters, NeedTheOptionAndAnIndexThatExists) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4});
        Reducer reducer(net.parameters(), group);
        EXPECT_THAT(usage_error_of([&] { reducer.start_backward(Indices{0}); }),
                    HasSubstr("set find_unused_parameters"));
        EXPECT_THAT(usage_error_of([&] { reducer.start_backward(Indices{7}); }),
                    HasSubstr("parameter 7 was said to be unused; there are 1"));
    });
}

TEST(UnusedParameters, MayNotBeMarkedReady) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group, {.find_unused_parameters = true});
        reducer.start_backward(Indices{1});
        mark_with(net, reducer, {1, 0}, 1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("layer1 was marked ready after it was said to be unused"));
    });
}

TEST(StaticGraph, CountsAParameterThatIsUsedTwice) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({40, 40, 40});
            ReducerOptions options = small_buckets(views);
            options.static_graph = true;
            Reducer reducer(net.parameters(), group, options);
            for (int step = 0; step < 3; ++step) {
                net.zero_grad();
                mark_with(net, reducer, {2, 1, 2, 0}, static_cast<float>(2 * group.rank()));
                EXPECT_TRUE(reducer.wait());
                EXPECT_TRUE(gradient_is(net.parameters(), 2, 2)) << "step " << step;
                EXPECT_TRUE(gradient_is(net.parameters(), 1, 1)) << "step " << step;
            }
            EXPECT_GT(reducer.statistics().buckets_before_last_gradient, 0U);
        });
    }
}

TEST(StaticGraph, LeavesWhatNoRankReachesUntouched) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40, 40});
        ReducerOptions options = small_buckets(true);
        options.static_graph = true;
        Reducer reducer(net.parameters(), group, options);
        const auto own = static_cast<float>(2 * group.rank());
        for (int step = 0; step < 3; ++step) {
            net.zero_grad();
            add_gradient(net.parameters(), 1, own);
            mark_with(net, reducer, group.rank() == 0 ? Indices{0} : Indices{2, 0}, own);
            EXPECT_TRUE(reducer.wait());
            EXPECT_TRUE(gradient_is(net.parameters(), 0, 1)) << "step " << step;
            EXPECT_TRUE(gradient_is(net.parameters(), 1, own)) << "step " << step;
            EXPECT_TRUE(gradient_is(net.parameters(), 2, 1)) << "step " << step;
        }
    });
}

TEST(StaticGraph, NamesAChange) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group, {.static_graph = true});
        mark_with(net, reducer, {1, 0}, 1);
        EXPECT_TRUE(reducer.wait());
        mark_with(net, reducer, group.rank() == 1 ? Indices{1, 1, 0} : Indices{1, 0}, 1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("on rank 1, the graph has changed though static_graph is set: the "
                              "gradient of layer1 was marked ready 2 times, in the first backward "
                              "1 times"));
        mark_with(net, reducer, group.rank() == 0 ? Indices{1} : Indices{1, 0}, 1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("on rank 0, the graph has changed"));
    });
}

TEST(OrderOfArrival, BecomesThatOfRankZero) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40, 40});
        Reducer reducer(net.parameters(), group, small_buckets(true));
        const Indices own = group.rank() == 0 ? Indices{1, 0, 2} : Indices{2, 0, 1};
        const Parameter& handle = net.parameters()[1];
        const void* before = handle.grad.data;
        for (int step = 0; step < 3; ++step) {
            net.zero_grad();
            mark_with(net, reducer, own, static_cast<float>(2 * group.rank()));
            EXPECT_TRUE(reducer.wait());
            for (std::size_t p : {0, 1, 2}) EXPECT_TRUE(gradient_is(net.parameters(), p, 1));
            EXPECT_EQ(reducer.describe(),
                      "bucket 0: 192 bytes of float32: layer1\nbucket 1: 192 bytes of float32: "
                      "layer0\nbucket 2: 192 bytes of float32: layer2\n");
        }
        EXPECT_NE(handle.grad.data, before) << "the handle does not follow its gradient";
    });
}

TEST(Accumulation, GoesOnOverBackwardsThatAreNotZeroed) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({40, 40});
            Reducer reducer(net.parameters(), group, small_buckets(views));
            for (int step = 1; step <= 3; ++step) {
                mark_with(net, reducer, {1, 0}, static_cast<float>(2 * group.rank()));
                EXPECT_TRUE(reducer.wait());
                EXPECT_TRUE(gradient_is(net.parameters(), 1, static_cast<float>(step)));
            }
        });
    }
}

TEST(Misuse, ASecondReducerIsRefusedOnEveryRank) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4});
        {
            Reducer reducer(net.parameters(), group);
            EXPECT_THAT(usage_error_of([&] { Reducer second(net.parameters(), group); }),
                        HasSubstr("layer0 already belongs to another reducer"));
        }
        EXPECT_EQ(usage_error_of([&] { Reducer second(net.parameters(), group); }), "no error");
    });
}

TEST(Misuse, AGradientThatWasTakenElsewhereIsNamed) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        std::vector<float> elsewhere(4);
        Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = true});
        void* const own = net.parameters()[1].grad.data;
        if (group.rank() == 1) net.parameters()[1].grad.data = elsewhere.data();
        mark_with(net, reducer, {1, 0}, 1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("on rank 1, the gradient of layer1 is no longer where"));
        net.parameters()[1].grad.data = own;
    });
}

TEST(Misuse, AGradientOfAnotherShapeIsNamed) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = false});
        if (group.rank() == 0) net.parameters()[0].grad.shape = Shape{2};
        mark_with(net, reducer, {1, 0}, 1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                    HasSubstr("on rank 0, the gradient of layer0 is no longer where the reducer "
                              "has put it, or of another size: [2]"));
    });
}

TEST(Misuse, ABackwardThatIsStartedTwiceIsRefused) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group);
        mark_with(net, reducer, {1}, 1);
        EXPECT_THAT(usage_error_of([&] { reducer.start_backward(); }),
                    HasSubstr("in the middle of a backward"));
    });
}

TEST(Misuse, ARankThatStopsEarlyIsNamedByTheOthers) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net({4});
        Reducer reducer(net.parameters(), group);
        const int steps = group.rank() == 1 ? 2 : 3;
        for (int step = 0; step < steps; ++step) {
            mark_with(net, reducer, {0}, 1);
            if (group.rank() == 1 || step < 2) {
                EXPECT_TRUE(reducer.wait());
                continue;
            }
            try {
                EXPECT_TRUE(reducer.wait());
                ADD_FAILURE() << "no error";
            } catch (const PeerError& error) {
                // Or a rank that has left because of it.
                EXPECT_NE(error.rank(), group.rank());
                EXPECT_GE(error.rank(), 0);
                EXPECT_LT(error.rank(), 3);
                EXPECT_THAT(error.what(),
                            AllOf(HasSubstr("bucket 0 of backward 3 of reducer 1"),
                                  HasSubstr("the averages is missing, first of layer0; if it ran "
                                            "out of batches before the others, put the loop "
                                            "into join()")));
            }
        }
    });
}

TEST(Misuse, AGradientThatGrewIsNamedBeforeItIsCopied) {
    for (const std::size_t logical_ranks : {2, 4}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({4, 4});
            std::vector<double> wide(4);
            Reducer reducer(net.parameters(), group,
                            {.gradient_as_bucket_view = false, .logical_ranks = logical_ranks});
            const TensorView own = net.parameters()[0].grad;
            if (group.rank() == 0) net.parameters()[0].grad = wide;
            for (std::size_t turn = 0; turn < logical_ranks / 2; ++turn) {
                reducer.start_backward();
                for (const std::size_t p : {1, 0}) reducer.mark_ready(p);
                if (turn + 1 < logical_ranks / 2) {
                    EXPECT_FALSE(reducer.wait());
                }
            }
            EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.wait()); }),
                        HasSubstr("on rank 0, the gradient of layer0 is no longer where"));
            net.parameters()[0].grad = own;
        });
    }
}

// Rank 0 leaves in the middle of a backward, with a bucket in flight, and the group with it.
TEST(Misuse, AReducerMayGoInTheMiddleOfABackward) {
    for (const bool hook : {false, true}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({100'000, 40});
            ReducerOptions options = small_buckets(true);
            if (hook) options.comm_hook = bf16_compress_hook();
            Reducer reducer(net.parameters(), group, options);
            reducer.mark_ready(1);
            if (group.rank() == 1) reducer.mark_ready(0);
        });
    }
}

TEST(Misuse, ANoSyncThatEndsInTheMiddleOfABackwardStillHoldsForIt) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group, {.find_unused_parameters = true});
        const auto own = static_cast<float>(2 * group.rank());
        {
            const auto guard = reducer.no_sync();
            reducer.start_backward(Indices{1});
            mark_with(net, reducer, {0}, own);
        }
        EXPECT_FALSE(reducer.wait());
        reducer.start_backward(Indices{1});
        mark_with(net, reducer, {0}, own);
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 2));
    });
}

TEST(Misuse, ABackwardThatNeverCameToAGradientMayBeStartedAnew) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4});
        Reducer reducer(net.parameters(), group, {.find_unused_parameters = true});
        reducer.start_backward();
        reducer.start_backward();
        mark_with(net, reducer, {0}, 1);
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 1));
    });
}

}  // namespace
