// Hooks: what a bucket looks like to them, and what becomes of what they throw.
#include <ddp/reducer.hpp>

#include "support/gradients.hpp"
#include "support/other_processes.hpp"
#include "support/seed_for_ranks.hpp"
#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using namespace std::chrono_literals;
using ddp::testing::backends_for_the_cpu;
using ddp::testing::gradient_is;
using ddp::testing::mark_with;
using ddp::testing::OtherProcesses;
using ddp::testing::run_ranks;
using ddp::testing::seed_for_ranks;
using ddp::testing::ToyNet;

TEST(CommHook, SeesEachBucketInOrder) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40, 40});
        std::vector<std::size_t> seen;
        const CommHook hook = [&](GradBucket& bucket, ProcessGroup& of, Stream stream) {
            EXPECT_EQ(bucket.index, seen.size());
            EXPECT_EQ(bucket.is_last, bucket.index == 2);
            EXPECT_EQ(bucket.divisor, 2U);
            EXPECT_EQ(bucket.buffer.as<float>()[0], static_cast<float>(of.rank()));
            EXPECT_EQ(bucket.parameters.size(), 1U);
            seen.push_back(bucket.parameters[0]);
            return BucketWork{of.all_reduce(bucket.buffer, ReduceOp::sum, stream), {}};
        };
        Reducer reducer(net.parameters(), group,
                        {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .comm_hook = hook});
        mark_with(net, reducer, {2, 1, 0}, static_cast<float>(group.rank()));
        EXPECT_TRUE(reducer.wait());
        EXPECT_EQ(seen, (std::vector<std::size_t>{2, 1, 0}));
        // Nothing but the hook has divided.
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 1));
    });
}

// It may be done before the ranks have told each other what they use.
TEST(CommHook, ThatIsDoneAtOnceGivesAParameterThatOthersUseItsGradientToo) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40, 40});
        const CommHook hook = [](GradBucket& bucket, ProcessGroup&, Stream) {
            for (float& value : bucket.buffer.as<float>()) value = 5;
            return BucketWork{};
        };
        Reducer reducer(net.parameters(), group,
                        {.find_unused_parameters = true, .comm_hook = hook});
        for (int step = 0; step < 20; ++step) {
            net.zero_grad();
            const std::vector<std::size_t> unused(group.rank() == 0 ? 1 : 0, std::size_t{1});
            reducer.start_backward(unused);
            if (group.rank() == 1) mark_with(net, reducer, {1}, 1);
            mark_with(net, reducer, {0}, 1);
            EXPECT_TRUE(reducer.wait());
            EXPECT_TRUE(gradient_is(net.parameters(), 0, 5)) << "step " << step;
            EXPECT_TRUE(gradient_is(net.parameters(), 1, 5)) << "step " << step;
        }
    });
}

TEST(CommHook, EndsWithWhatIsLeftToDo) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({40});
        const CommHook hook = [](GradBucket& bucket, ProcessGroup& of, Stream stream) {
            return BucketWork{of.all_reduce(bucket.buffer, ReduceOp::sum, stream),
                              [buffer = bucket.buffer](Stream) {
                                  for (float& value : buffer.as<float>()) value += 100;
                              }};
        };
        Reducer reducer(net.parameters(), group, {.comm_hook = hook});
        mark_with(net, reducer, {0}, 1);
        EXPECT_TRUE(reducer.wait());
        EXPECT_TRUE(gradient_is(net.parameters(), 0, 102));
    });
}

TEST(CommHook, ThatThrowsEndsTheGroupForAll) {
    for (const bool at_the_end : {false, true}) {
        run_ranks(3, [&](ProcessGroup& group) {
            ToyNet net({40, 40});
            const CommHook hook = [&](GradBucket& bucket, ProcessGroup& of, Stream stream) {
                const bool bad = of.rank() == 1 && bucket.index == 1;
                if (bad && !at_the_end) throw std::runtime_error("no bandwidth today");
                return BucketWork{of.all_reduce(bucket.buffer, ReduceOp::sum, stream),
                                  [bad](Stream) {
                                      if (bad) throw std::runtime_error("no bandwidth today");
                                  }};
            };
            Reducer reducer(
                net.parameters(), group,
                {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .comm_hook = hook});
            try {
                mark_with(net, reducer, {1, 0}, 1);
                EXPECT_TRUE(reducer.wait());
                ADD_FAILURE() << "rank " << group.rank() << " saw nothing";
            } catch (const PeerError&) {
                EXPECT_NE(group.rank(), 1);
            } catch (const std::runtime_error& error) {
                EXPECT_EQ(group.rank(), 1);
                EXPECT_STREQ(error.what(), "no bandwidth today");
                // The group has failed, not only this call.
                EXPECT_ANY_THROW(group.barrier().wait());
            }
        });
    }
}

// The others hear of it from the backend: no process ends before they do.
TEST(CommHook, ThatThrowsIsHeardOfSoonWhereItsRankStaysAlive) {
    constexpr auto promised = 2s;
    std::mt19937 random(seed_for_ranks());
    for (const Backend backend : backends_for_the_cpu()) {
        for (int round = 0; round < 3; ++round) {
            const int ranks = 2 + static_cast<int>(random() % 3);
            const int bad = static_cast<int>(random() % static_cast<unsigned>(ranks));
            const std::size_t bad_bucket = random() % 3;
            SCOPED_TRACE("rank " + std::to_string(bad) + " of " + std::to_string(ranks));
            run_ranks(
                ranks,
                [&](ProcessGroup& group) {
                    const OtherProcesses others(group);
                    ToyNet net({40, 40, 40});
                    const CommHook hook = [&](GradBucket& bucket, ProcessGroup& of, Stream stream) {
                        if (of.rank() == bad && bucket.index == bad_bucket) {
                            throw std::runtime_error("no bandwidth today");
                        }
                        return BucketWork{of.all_reduce(bucket.buffer, ReduceOp::sum, stream), {}};
                    };
                    Reducer reducer(
                        net.parameters(), group,
                        {.bucket_cap_mb = 0.0001, .first_bucket_mb = 0.0001, .comm_hook = hook});
                    try {
                        mark_with(net, reducer, {2, 1, 0}, 1);
                        EXPECT_TRUE(reducer.wait());
                        ADD_FAILURE() << "rank " << group.rank() << " saw nothing";
                    } catch (const PeerError& error) {
                        EXPECT_EQ(error.rank(), bad);
                    } catch (const std::runtime_error& error) {
                        EXPECT_STREQ(error.what(), "no bandwidth today");
                        others.wait_for_their_end();
                    }
                },
                {.init = {.backend = backend, .timeout = 10 * promised}});
        }
    }
}

TEST(CommHook, CompressionRoundsToHalves) {
    for (const bool bfloat : {false, true}) {
        run_ranks(2, [&](ProcessGroup& group) {
            std::vector<double> values(100);
            std::vector<double> grads(100);
            std::vector<std::int32_t> counts(7);
            std::vector<std::int32_t> count_grads(7, 2 * group.rank());
            std::vector<Parameter> parameters{{"weights", values, grads},
                                              {"counts", counts, count_grads}};
            Reducer reducer(parameters, group,
                            {.comm_hook = bfloat ? bf16_compress_hook() : fp16_compress_hook()});
            for (double& grad : parameters[0].grad.as<double>()) grad = 1.0 + group.rank() * 0.1;
            for (const std::size_t p : {0, 1}) reducer.mark_ready(p);
            EXPECT_TRUE(reducer.wait());
            const double precision = bfloat ? 0x1p-8 : 0x1p-11;
            for (const double grad : parameters[0].grad.as<double>()) {
                EXPECT_NEAR(grad, 1.05, 1.05 * 2 * precision);
                EXPECT_NE(grad, 1.05);
            }
            for (const std::int32_t grad : parameters[1].grad.as<std::int32_t>()) {
                EXPECT_EQ(grad, 1) << "integers go uncompressed";
            }
        });
    }
}

}  // namespace
