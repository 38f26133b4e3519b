// Ranks with different numbers of batches.
#include <ddp/distributed_data_parallel.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace {

using namespace ddp;
using ddp::testing::gradient_is;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::HasSubstr;

// With buffers, and an "optimiser" that moves each value by its gradient.
class BufferedNet : public ToyNet {
public:
    using ToyNet::ToyNet;
    std::vector<NamedTensor> buffers() { return {{"running", buffer_}}; }
    float& buffer() { return buffer_[0]; }
    void step() {
        for (Parameter& parameter : parameters()) {
            const auto values = parameter.value.as<float>();
            const auto grads = parameter.grad.as<float>();
            for (std::size_t i = 0; i < values.size(); ++i) values[i] -= grads[i];
        }
    }

private:
    std::vector<float> buffer_ = std::vector<float>(3);
};

struct Options {
    bool divide_by_initial = true;
    ReducerOptions reducer = {};
};

// Rank r trains r + first batches with gradients of 12. Returns the model's first value.
float train(ProcessGroup& group, int first, const Options& options) {
    BufferedNet net({40, 500});
    ReducerOptions reducer = options.reducer;
    reducer.bucket_cap_mb = reducer.first_bucket_mb = 0.0001;
    DistributedDataParallel model{net, group, reducer};
    model.join(
        [&] {
            for (int batch = 0; batch < group.rank() + first; ++batch) {
                net.zero_grad();
                model.forward(1.0F);
                net.buffer() += 1;
                EXPECT_TRUE(model.backward(12.0F));
                net.step();
            }
        },
        {.divide_by_initial_world_size = options.divide_by_initial});
    EXPECT_EQ(net.buffer(), static_cast<float>(group.size() - 1 + first));
    return net.parameters()[0].value.as<float>()[39];
}

TEST(Join, DividesByTheInitialNumberOfRanks) {
    for (const bool views : {true, false}) {
        run_ranks(3, [&](ProcessGroup& group) {
            // Batches with 3, 2, 1 ranks at work: 12, 8, 4.
            EXPECT_EQ(train(group, 1, {.reducer = {.gradient_as_bucket_view = views}}), -24.0F);
        });
    }
}

TEST(Join, DividesByTheRanksThatStillHaveInput) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_EQ(train(group, 1, {.divide_by_initial = false}), -36.0F);
    });
}

TEST(Join, WorksWithARankWithoutAnyInput) {
    for (const bool static_graph : {false, true}) {
        run_ranks(3, [&](ProcessGroup& group) {
            EXPECT_EQ(train(group, 0, {.reducer = {.static_graph = static_graph}}), -12.0F);
        });
    }
}

TEST(Join, WorksWithHooksAndUnusedParameters) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_EQ(train(group, 1, {.reducer = {.comm_hook = bf16_compress_hook()}}), -24.0F);
        EXPECT_EQ(train(group, 1, {.reducer = {.find_unused_parameters = true}}), -24.0F);
    });
}

TEST(Join, WorksWithAccumulationUnderNoSync) {
    run_ranks(2, [](ProcessGroup& group) {
        BufferedNet net({40});
        DistributedDataParallel model{net, group};
        model.join([&] {
            for (int step = 0; step <= group.rank(); ++step) {
                net.zero_grad();
                {
                    const auto guard = model.no_sync();
                    model.forward(1.0F);
                    EXPECT_FALSE(model.backward(4.0F));
                }
                model.forward(1.0F);
                EXPECT_TRUE(model.backward(4.0F));
                net.step();
            }
        });
        EXPECT_EQ(net.parameters()[0].value.as<float>()[39], -12.0F);  // 8, then half of it
    });
}

// Ranks 1 and 2 train to the end, with buffers of their own since the last forward.
TEST(Join, CopiesTheModelOfTheLargestOfTheRanksThatTrainedToTheEnd) {
    run_ranks(4, [](ProcessGroup& group) {
        const bool to_the_end = group.rank() == 1 || group.rank() == 2;
        BufferedNet net({40});
        DistributedDataParallel model{net, group};
        model.join([&] {
            for (int step = 0; step < (to_the_end ? 3 : 1); ++step) {
                net.zero_grad();
                model.forward(1.0F);
                net.buffer() = static_cast<float>(10 * step + group.rank());
                EXPECT_TRUE(model.backward(12.0F));
                net.step();
            }
            if (to_the_end) net.parameters()[0].value.as<float>()[0] = 7.0F * net.buffer();
        });
        EXPECT_EQ(net.buffer(), 22);
        EXPECT_EQ(net.parameters()[0].value.as<float>()[0], 7 * 22);
    });
}

TEST(Join, TheFirstRankThatTrainsGivesTheBuffers) {
    run_ranks(3, [](ProcessGroup& group) {
        BufferedNet net({40});
        DistributedDataParallel model{net, group};
        model.join([&] {
            for (int left = group.size() - group.rank(); left > 0; --left) {
                net.zero_grad();
                net.buffer() = static_cast<float>(10 + group.rank());
                model.forward(1.0F);
                EXPECT_EQ(net.buffer(), 10);
                EXPECT_TRUE(model.backward(12.0F));
            }
        });
    });
}

TEST(Join, LeavesAStaticGraphAsTheOthersSawIt) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group, {.static_graph = true});
        const auto step = [&] {
            reducer.start_forward();
            for (const std::size_t p : {1, 0, 1}) reducer.mark_ready(p);
            EXPECT_TRUE(reducer.wait());
        };
        reducer.join([&] {
            if (group.rank() == 1) step();
        });
        reducer.join(step);
    });
}

TEST(Join, DoesNothingMoreForEqualNumbers) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4});
        DistributedDataParallel model{net, group};
        model.join([&] {
            model.forward(1.0F);
            EXPECT_TRUE(model.backward(3.0F));
        });
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 3));
        EXPECT_TRUE(model.backward(3.0F));  // outside of it, as before
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 6));
    });
}

TEST(Join, ThrowsOnEveryRankWhenOneIsThroughAndThatIsWanted) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net({4});
        DistributedDataParallel model{net, group};
        const auto train_all = [&] {
            for (int batch = 0; batch < (group.rank() == 1 ? 1 : 2); ++batch) {
                model.forward(1.0F);
                EXPECT_TRUE(model.backward(1.0F));
            }
        };
        EXPECT_THAT(
            usage_error_of([&] { model.join(train_all, {.throw_on_early_termination = true}); }),
            HasSubstr("rank 1 has no more input"));
        EXPECT_TRUE(model.backward(1.0F));
    });
}

// Without join(): rank 0 has one batch, rank 1 two.
std::string error_of_uneven_batches(ProcessGroup& group, auto&& net) {
    DistributedDataParallel model{net, group};
    try {
        for (int batch = 0; batch <= group.rank(); ++batch) {
            model.forward(1.0F);
            EXPECT_TRUE(model.backward(1.0F));
        }
    } catch (const PeerError& error) {
        EXPECT_EQ(error.rank(), 0);
        return error.what();
    }
    return "no error";
}

TEST(Join, IsAdvisedWhereARankRunsOutOfBatchesInAForwardOrABackward) {
    run_ranks(2, [](ProcessGroup& world) {
        const std::string error = error_of_uneven_batches(world, BufferedNet({4}));
        if (world.rank() == 0) return;
        EXPECT_THAT(error, HasSubstr("; this forward lacks rank 0's buffers; if it ran out of "
                                     "batches before the others, put the loop into join()"));
    });
    run_ranks(2, [](ProcessGroup& world) {
        const std::string error = error_of_uneven_batches(world, ToyNet({4}));
        if (world.rank() == 0) return;
        EXPECT_THAT(error, HasSubstr("its part of the averages is missing, first of layer0; if "
                                     "it ran out of batches before the others, put the loop"));
    });
}

TEST(Join, PassesOnWhatTheLoopThrows) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4});
        DistributedDataParallel model{net, group};
        EXPECT_THROW(model.join([] { throw std::runtime_error("bad batch"); }), std::runtime_error);
        model.join([] {});
    });
}

TEST(CheckBatches, NamesTheShortRank) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net({4});
        DistributedDataParallel model{net, group};
        model.check_batches(10);
        EXPECT_THAT(usage_error_of([&] { model.check_batches(group.rank() == 2 ? 9 : 10); }),
                    HasSubstr("rank 2 has 9 batches in this epoch, rank 0 has 10"));
    });
}

}  // namespace
