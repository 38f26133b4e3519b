// The wrapper: a net's own forward and backward, with gradients that are averages afterwards.
#include <ddp/distributed_data_parallel.hpp>

#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gtest/gtest.h>

namespace {

using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;

static_assert(Trainable<ToyNet>);

TEST(DistributedDataParallel, AveragesGradientsInBackward) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({5, 300'000});
        DistributedDataParallel model{net, group};
        EXPECT_TRUE(model.backward(static_cast<float>(2 * group.rank())));
        EXPECT_TRUE(net.gradients_are(1));
    });
}

TEST(DistributedDataParallel, ForwardsToTheNet) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({5});
        DistributedDataParallel model{net, group};
        EXPECT_EQ(model.forward(21.0F), 42.0F);
        EXPECT_EQ(&model.module(), &net);
    });
}

TEST(DistributedDataParallel, AccumulatesUnderNoSync) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({5});
        DistributedDataParallel model{net, group};
        {
            const auto guard = model.no_sync();
            EXPECT_FALSE(model.backward(static_cast<float>(group.rank())));
        }
        EXPECT_TRUE(model.backward(static_cast<float>(group.rank())));
        EXPECT_TRUE(net.gradients_are(1));
    });
}

TEST(DistributedDataParallel, LeavesTheNetAloneWhenItGoes) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({5});
        { DistributedDataParallel model{net, group}; }
        net.backward(3);  // would call a hook into a destroyed wrapper
        EXPECT_TRUE(net.gradients_are(3));
    });
}

}  // namespace
