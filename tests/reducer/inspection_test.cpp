// What a reducer tells: drift between ranks, times, buckets; and the buffers of a wrapped net.
#include <ddp/distributed_data_parallel.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::add_gradient;
using ddp::testing::mark_with;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::HasSubstr;

void step(ToyNet& net, Reducer& reducer) {
    mark_with(net, reducer, {1, 0}, 1);
    EXPECT_TRUE(reducer.wait());
}

TEST(Checksum, NamesTheParameterThatChangedOnOneRank) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        Reducer reducer(net.parameters(), group, {.checksum_steps = 2});
        step(net, reducer);
        step(net, reducer);
        if (group.rank() == 2) net.parameters()[1].value.as<float>()[17] += 1;
        step(net, reducer);  // not looked at
        EXPECT_THAT(usage_error_of([&] { step(net, reducer); }),
                    HasSubstr("drifted apart: after step 4 the value of layer1 on rank 2 differs "
                              "from rank 0's"));
    });
}

TEST(Checksum, FindsAGradientThatCameTooLate) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        Reducer reducer(net.parameters(), group, {.checksum_steps = 1});
        step(net, reducer);
        // What a nested backward does that the reducer never hears of.
        if (group.rank() == 1) add_gradient(net.parameters(), 0, 0.5F);
        for (Parameter& parameter : net.parameters()) {
            parameter.value.as<float>()[3] -= parameter.grad.as<float>()[3];
        }
        EXPECT_THAT(usage_error_of([&] { step(net, reducer); }),
                    HasSubstr("after step 2 the value of layer0 on rank 1 differs"));
    });
}

TEST(Checksum, NamesAGradientThatAHookHasMadeDifferent) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        const CommHook hook = [](GradBucket& bucket, ProcessGroup& of, Stream stream) {
            return BucketWork{of.all_reduce(bucket.buffer, ReduceOp::avg, stream),
                              [buffer = bucket.buffer, &of](Stream) {
                                  buffer.as<float>()[0] += static_cast<float>(of.rank());
                              }};
        };
        Reducer reducer(net.parameters(), group, {.comm_hook = hook, .checksum_steps = 1});
        EXPECT_THAT(usage_error_of([&] { step(net, reducer); }),
                    HasSubstr("after step 1 the gradient of layer1 on rank 1 differs"));
    });
}

TEST(Statistics, CountWhatWasSentAndWhen) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({1000, 1000});
        Reducer reducer(net.parameters(), group,
                        {.bucket_cap_mb = 0.001, .first_bucket_mb = 0.001});
        EXPECT_EQ(reducer.statistics().step, 0U);
        for (int i = 0; i < 3; ++i) {
            reducer.start_forward();
            reducer.start_backward();
            step(net, reducer);
        }
        const StepStatistics& now = reducer.statistics();
        EXPECT_EQ(now.step, 3U);
        EXPECT_EQ(now.buckets, 2U);
        EXPECT_EQ(now.buckets_before_last_gradient, 1U);
        EXPECT_EQ(now.bytes, 2U * 1008 * 4);
        EXPECT_GT(now.communication.count(), 0);
        EXPECT_GT(now.backward.count(), 0);
        EXPECT_GT(now.exposed.count(), 0);
        EXPECT_GE(now.forward.count(), 0);
        EXPECT_GE(now.overlap, 0);
        EXPECT_LE(now.overlap, 1);
        const auto json = nlohmann::json::parse(to_json(now));
        EXPECT_EQ(json["step"], 3);
        EXPECT_EQ(json["buckets_before_last_gradient"], 1);
        EXPECT_EQ(json["bytes"], 2 * 1008 * 4);
        EXPECT_EQ(json["communication_ns"], now.communication.count());
    });
}

class NetWithBuffers : public ToyNet {
public:
    using ToyNet::ToyNet;
    std::vector<NamedTensor> buffers() { return {{"mean", mean}, {"count", count}}; }
    std::vector<float> mean = std::vector<float>(5);
    std::vector<std::int64_t> count = std::vector<std::int64_t>(1);
};
static_assert(HasBuffers<NetWithBuffers>);

TEST(Buffers, AreRankZerosBeforeEachForward) {
    run_ranks(3, [](ProcessGroup& group) {
        NetWithBuffers net({4});
        DistributedDataParallel model{net, group};
        for (int i = 0; i < 3; ++i) {
            net.mean[4] = static_cast<float>(10 * i + group.rank());
            net.count[0] = 100 * i + group.rank();
            model.forward(1.0F);
            EXPECT_EQ(net.mean[4], static_cast<float>(10 * i));
            EXPECT_EQ(net.count[0], 100 * i);
            EXPECT_TRUE(model.backward(1.0F));
        }
    });
}

TEST(Buffers, StayAfterAForwardUnderNoSyncAndWhenNotAsked) {
    run_ranks(2, [](ProcessGroup& group) {
        const auto own = static_cast<float>(group.rank());
        NetWithBuffers net({4});
        {
            DistributedDataParallel model{net, group};
            {
                const auto guard = model.no_sync();
                model.forward(1.0F);
                EXPECT_FALSE(model.backward(1.0F));
            }
            net.mean[0] = own;
            model.forward(1.0F);  // the one before was under no_sync
            EXPECT_EQ(net.mean[0], own);
            EXPECT_TRUE(model.backward(1.0F));
            model.forward(1.0F);
            EXPECT_EQ(net.mean[0], 0);
        }
        net.mean[0] = own;
        DistributedDataParallel model{net, group, {.broadcast_buffers = false}};
        model.forward(1.0F);
        EXPECT_EQ(net.mean[0], own);
    });
}

TEST(Buffers, ThatDifferBetweenRanksAreRefused) {
    run_ranks(2, [](ProcessGroup& group) {
        NetWithBuffers net({4});
        if (group.rank() == 1) net.mean.resize(6);
        EXPECT_THAT(usage_error_of([&] { DistributedDataParallel model(net, group); }),
                    HasSubstr("the ranks hold different models; rank 0 has buffer mean [5] "
                              "float32, rank 1 has buffer mean [6] float32"));
    });
}

class NetWithUnused : public ToyNet {
public:
    using ToyNet::ToyNet;
    std::vector<std::size_t> unused_parameters() const { return unused; }
    void backward(float amount) {
        for (std::size_t p = parameters().size(); p-- > 0;) {
            if (std::ranges::find(unused, p) != unused.end()) continue;
            add_gradient(parameters(), p, amount);
            hook(p, Stream{});
        }
    }
    void on_gradient_ready(GradientReady ready) { hook = std::move(ready); }
    std::vector<std::size_t> unused;
    GradientReady hook;
};

TEST(UnusedParameters, AreAskedForByTheWrapper) {
    run_ranks(2, [](ProcessGroup& group) {
        NetWithUnused net({4, 4});
        DistributedDataParallel model{net, group, {.find_unused_parameters = true}};
        if (group.rank() == 1) net.unused = {1};
        EXPECT_TRUE(model.backward(4.0F));
        EXPECT_TRUE(ddp::testing::gradient_is(net.parameters(), 1, 2));
        EXPECT_TRUE(ddp::testing::gradient_is(net.parameters(), 0, 4));
    });
}

TEST(Autotune, ChoosesOneSizeOnAllRanksAndKeepsTheGradients) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({700'000, 700'000, 200'000});  // 6.1 MiB
        Reducer reducer(net.parameters(), group, {.bucket_cap_mb = ddp::autotune});
        std::set<double> tried;
        for (int i = 1; i <= 40; ++i) {
            EXPECT_EQ(reducer.is_tuned(), i > 21) << "step " << i;
            tried.insert(reducer.bucket_cap_mb());
            mark_with(net, reducer, {2, 1, 0}, static_cast<float>(2 * group.rank()));
            EXPECT_TRUE(reducer.wait());
            EXPECT_TRUE(ddp::testing::gradient_is(net.parameters(), 1, static_cast<float>(i)));
        }
        EXPECT_EQ(tried, (std::set<double>{1, 5, 25}));
        const double chosen = reducer.bucket_cap_mb();
        EXPECT_EQ(group.all_reduce(chosen, ReduceOp::min), chosen);
        EXPECT_EQ(reducer.state_dict().at(0).tensor.as<double>()[0], chosen);
    });
}

TEST(Autotune, TakesTheChoiceOfACheckpoint) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({700'000, 700'000});
        Reducer reducer(net.parameters(), group, {.bucket_cap_mb = ddp::autotune});
        EXPECT_EQ(reducer.num_buckets(), 2U);
        reducer.state_dict().at(0).tensor.as<double>()[0] = 100;
        step(net, reducer);
        EXPECT_TRUE(reducer.is_tuned());
        EXPECT_EQ(reducer.bucket_cap_mb(), 100);
        Reducer plain(std::span<Parameter>(), group);
        EXPECT_TRUE(plain.state_dict().empty());
    });
}

TEST(Autotune, KeepsTheOrderInWhichGradientsCame) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({10, 10, 10});
        Reducer reducer(net.parameters(), group, {.bucket_cap_mb = ddp::autotune});
        EXPECT_THAT(reducer.describe(), HasSubstr(": layer2 layer1 layer0\n"));
        reducer.state_dict().at(0).tensor.as<double>()[0] = 100;
        mark_with(net, reducer, {0, 2, 1}, 1);
        EXPECT_TRUE(reducer.wait());
        EXPECT_EQ(reducer.bucket_cap_mb(), 100);
        EXPECT_THAT(reducer.describe(), HasSubstr(": layer0 layer2 layer1\n"));
    });
}

// Proportional set size of this process, in bytes. Without that of files: its share of the program
// grows when another process of the same program ends.
std::size_t pss() {
    std::size_t sum = 0;
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with("Pss_Anon:") && !line.starts_with("Pss_Shmem:")) continue;
        sum += std::stoul(line.substr(line.find(':') + 1)) * 1024;
    }
    return sum;
}

TEST(Memory, IsThatOfThePlainNetInViewsModeAndOneCopyMoreElse) {
    constexpr std::size_t gradients = 8 * 4'000'000;
    constexpr std::size_t allowance = 4 << 20;
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({3'000'000, 2'000'000, 3'000'000});
            for (const std::size_t p : {0, 1, 2}) add_gradient(net.parameters(), p, 1);
            const std::size_t plain = pss();
            ASSERT_GT(plain, 2 * gradients);
            Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = views});
            for (int step = 0; step < 2; ++step) {
                mark_with(net, reducer, {2, 1, 0}, 1);
                EXPECT_TRUE(reducer.wait());
            }
            group.barrier().wait();
            const std::size_t wrapped = pss();
            group.barrier().wait();
            const std::size_t limit = plain + plain / 50 + allowance + (views ? 0 : gradients);
            EXPECT_LE(wrapped, limit) << "plain " << plain;
        });
    }
}

}  // namespace
