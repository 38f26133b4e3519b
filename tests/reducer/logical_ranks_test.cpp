// The same bits for every number of ranks that does the work of eight: gradients of random floats,
// so that any other order of additions would show.
#include <ddp/distributed_data_parallel.hpp>

#include "process_group/group_access.hpp"
#include "reducer/logical_sum.hpp"
#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/half.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Parameters of one dtype, with gradients that depend on nothing but logical rank, step and place.
template <TensorElement T>
class RandomNet {
public:
    explicit RandomNet(const std::vector<std::size_t>& sizes) {
        for (const std::size_t size : sizes) {
            values_.emplace_back(size);
            grads_.emplace_back(size);
        }
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            parameters_.push_back({"p" + std::to_string(i), values_[i], grads_[i]});
        }
    }
    RandomNet(const RandomNet&) = delete;
    RandomNet& operator=(const RandomNet&) = delete;

    std::span<Parameter> parameters() { return parameters_; }
    void on_gradient_ready(GradientReady hook) { hook_ = std::move(hook); }
    std::vector<NamedTensor> buffers() { return {{"seen", seen_}}; }
    std::vector<NamedTensor> random_state() { return {{"state", random_state_}}; }

    void forward(std::size_t logical_rank) {
        if (random_state_[0] == 0) random_state_[0] = static_cast<std::int64_t>(logical_rank) + 1;
        random_state_[0] = random_state_[0] * 1103515245 % 2147483647;
        seen_[0] = static_cast<float>(random_state_[0] % 1000) + seen_[0] * 0.5F;
    }
    void backward() {
        std::mt19937 random(static_cast<std::uint32_t>(random_state_[0]));
        for (std::size_t i = 0; i < parameters_.size(); ++i) {
            const std::size_t p = forward_order ? i : parameters_.size() - 1 - i;
            for (T& grad : parameters_[p].grad.as<T>()) add(grad, random);
            hook_(p, Stream{});
        }
    }
    void zero_grad() {
        for (Parameter& parameter : parameters_) {
            std::memset(parameter.grad.data, 0, parameter.grad.bytes());
        }
    }
    float seen() const { return seen_[0]; }
    bool forward_order = false;

private:
    void add(T& grad, std::mt19937& random) const {
        const auto amount = static_cast<float>(random() % 20'000) / 777.0F - 10 + seen_[0];
        if constexpr (std::is_integral_v<T>) {  // may be more than T has room for: it wraps
            grad = static_cast<T>(grad + static_cast<T>(static_cast<std::int64_t>(amount)));
        } else if constexpr (std::is_floating_point_v<T>) {
            grad += static_cast<T>(amount);
        } else {
            grad = T(static_cast<float>(grad) + amount);
        }
    }

    std::vector<std::vector<T>> values_;
    std::vector<std::vector<T>> grads_;
    std::vector<Parameter> parameters_;
    std::vector<float> seen_ = std::vector<float>(1);
    std::vector<std::int64_t> random_state_ = std::vector<std::int64_t>(1);
    GradientReady hook_;
};

struct Run {
    std::size_t logical_ranks = 8;
    std::size_t accumulated = 1;
    bool views = true;
    bool zero = true;
    bool broadcast_buffers = true;
    bool forward_order = false;  // gradients come first parameter first: buckets are rebuilt
    ReducerOptions more = {};
};

ReducerOptions options_of(const Run& run) {
    ReducerOptions options = run.more;
    if (options.bucket_cap_mb != ddp::autotune) options.bucket_cap_mb = 0.001;
    options.first_bucket_mb = 0.001;
    options.gradient_as_bucket_view = run.views;
    options.broadcast_buffers = run.broadcast_buffers;
    options.logical_ranks = run.logical_ranks;
    return options;
}

// A digest of the gradients of some steps; the same on all ranks of a run.
template <TensorElement T>
std::int64_t digest_of_steps(ProcessGroup& group, const Run& run) {
    RandomNet<T> net({3, 700, 40});
    DistributedDataParallel model{net, group, options_of(run)};
    net.forward_order = run.forward_order;
    std::int64_t digest = 0;
    for (int step = 0; step < 4; ++step) {
        if (run.zero) net.zero_grad();
        bool averaged = false;
        for (std::size_t i = 0; i + 1 < run.accumulated; ++i) {
            const auto guard = model.no_sync();
            for (std::size_t t = 0; t < run.logical_ranks; t += group.shard().count) {
                model.forward(model.reducer().logical_rank().index);
                EXPECT_FALSE(model.backward());
            }
        }
        while (!averaged) {
            model.forward(model.reducer().logical_rank().index);
            averaged = model.backward();
        }
        for (const Parameter& parameter : net.parameters()) {
            const auto* bytes = static_cast<const unsigned char*>(parameter.grad.data);
            for (std::size_t i = 0; i < parameter.grad.bytes(); ++i) {
                digest = static_cast<std::int64_t>((static_cast<std::uint64_t>(digest) ^ bytes[i]) *
                                                   0x100000001B3U);
            }
        }
    }
    EXPECT_EQ(group.all_reduce(digest, ReduceOp::min), digest);
    EXPECT_EQ(group.all_reduce(digest, ReduceOp::max), digest);
    return digest;
}

// The ranks of each run compare with runs that groups of `fewer` ranks among them do.
template <TensorElement T>
void expect_same_bits(const Run& run, const std::vector<int>& worlds = {1, 2, 4, 8},
                      int fewer = 1) {
    for (const int ranks : worlds) {
        run_ranks(ranks, [&](ProcessGroup& group) {
            const std::int64_t together = digest_of_steps<T>(group, run);
            for (int first = 0; first < group.size(); first += fewer) {
                std::vector<int> members(static_cast<std::size_t>(fewer));
                std::iota(members.begin(), members.end(), first);
                auto some = group.new_group(members);
                if (!some) continue;
                EXPECT_EQ(digest_of_steps<T>(*some, run), together)
                    << group.size() << " ranks and " << fewer;
            }
        });
    }
}

TEST(LogicalRanks, GiveTheSameBitsForEveryNumberOfRanks) { expect_same_bits<float>({}); }

TEST(LogicalRanks, DoSoForEveryType) {
    expect_same_bits<double>({});
    expect_same_bits<float16>({});
    expect_same_bits<bfloat16>({});
    expect_same_bits<std::int32_t>({});
    expect_same_bits<std::int8_t>({});
}

TEST(LogicalRanks, DoSoForNumbersThatAreNoPowerOfTwo) {
    expect_same_bits<float>({.logical_ranks = 6}, {6}, 3);
    expect_same_bits<float16>({.logical_ranks = 12}, {6, 12}, 3);
}

TEST(LogicalRanks, DoSoWithCopiesAccumulationAndGradientsThatStay) {
    expect_same_bits<float>({.views = false});
    expect_same_bits<float>({.accumulated = 3});
    expect_same_bits<float>({.accumulated = 2, .views = false});
    expect_same_bits<float>({.zero = false});
    expect_same_bits<float>({.broadcast_buffers = false});
}

TEST(LogicalRanks, DoSoWithBucketsThatAreRebuiltAndOtherOptions) {
    expect_same_bits<float>({.forward_order = true});
    expect_same_bits<float16>({.views = false, .forward_order = true});
    expect_same_bits<float>({.more = {.static_graph = true}});
    expect_same_bits<float>({.more = {.find_unused_parameters = true}});
    expect_same_bits<float>({.more = {.bucket_cap_mb = ddp::autotune}});
    expect_same_bits<float>({.more = {.checksum_steps = 1}});
}

TEST(LogicalRanks, DoSoOnEveryBackend) {
    if (!HAS_GLOO) GTEST_SKIP() << "this build has no backend gloo";
    run_ranks(2, [](ProcessGroup& group) {
        auto gloo = init_process_group({.backend = Backend::gloo});
        EXPECT_EQ(digest_of_steps<float>(gloo, {}), digest_of_steps<float>(group, {}));
        EXPECT_EQ(digest_of_steps<float16>(gloo, {}), digest_of_steps<float16>(group, {}));
    });
}

TEST(LogicalRanks, TakeTurnsWithStateOfTheirOwn) {
    run_ranks(2, [](ProcessGroup& group) {
        RandomNet<float> net({4});
        DistributedDataParallel model{net, group, {.broadcast_buffers = false, .logical_ranks = 4}};
        std::vector<float> seen;
        for (std::size_t turn = 0; turn < 4; ++turn) {
            const Shard logical = model.reducer().logical_rank();
            EXPECT_EQ(logical.index, static_cast<std::size_t>(group.rank()) * 2 + turn % 2);
            EXPECT_EQ(logical.count, 4U);
            const float before = net.seen();
            if (turn >= 2) {
                EXPECT_EQ(before, seen[turn - 2]) << "the buffers are another's";
            }
            model.forward(logical.index);
            seen.push_back(net.seen());
            EXPECT_EQ(model.backward(), turn % 2 == 1);
        }
    });
}

template <class... Ts>
void expect_quotients() {
    const auto of_type = [](auto element) {
        using T = decltype(element);
        std::vector<T> sums{T(12), T(30)};
        std::vector<T> averages(2);
        reducer::divide(sums, averages, 3);
        EXPECT_THAT(averages, ElementsAre(T(4), T(10)));
        EXPECT_THAT(sums, ElementsAre(T(12), T(30)));
        reducer::divide(sums, sums, 3);
        EXPECT_EQ(sums, averages);
    };
    (of_type(Ts{}), ...);
}

TEST(LogicalRanks, AreDividedIntoOtherMemoryOrTheSame) {
    expect_quotients<float, double, float16, bfloat16, std::int8_t, std::uint8_t, std::int16_t,
                     std::int32_t, std::int64_t>();
}

TEST(LogicalRanks, RefuseNumbersThatAreNoMultipleByAPowerOfTwo) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4});
        for (const std::size_t wrong : {1, 3, 6, 10}) {
            EXPECT_THAT(usage_error_of([&] {
                            Reducer reducer(net.parameters(), group, {.logical_ranks = wrong});
                        }),
                        HasSubstr("logical_ranks is " + std::to_string(wrong) +
                                  ", but the group has 2 ranks"));
        }
    });
}

TEST(LogicalRanks, RefuseMoreTurnsThanOneSumTakes) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({4});
        EXPECT_THAT(usage_error_of([&] {
                        Reducer reducer(net.parameters(), group, {.logical_ranks = 131'072});
                    }),
                    HasSubstr("logical_ranks is 131072, more than 4096 for each of 2 ranks"));
    });
}

TEST(LogicalRanks, NeedTheStartOfEachBackward) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4});
        Reducer reducer(net.parameters(), group, {.logical_ranks = 2});
        EXPECT_THAT(usage_error_of([&] { reducer.mark_ready(0); }),
                    HasSubstr("without start_backward()"));
    });
}

// SyncBatchNorm asks for it, which cannot do the work of several ranks.
TEST(LogicalRanks, AreKnownToTheGroupAsLongAsAReducerHasThem) {
    run_ranks(1, [](ProcessGroup& group) {
        const auto& reducers = process_group::GroupAccess(group).reducers_with_logical_ranks();
        ToyNet plain({4});
        ToyNet net({4});
        const Reducer without(plain.parameters(), group);
        EXPECT_EQ(*reducers, 0);
        {
            const Reducer with(net.parameters(), group, {.logical_ranks = 2});
            EXPECT_EQ(*reducers, 1);
        }
        EXPECT_EQ(*reducers, 0);
    });
}

TEST(LogicalRanks, ExcludeJoin) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4});
        Reducer reducer(net.parameters(), group, {.logical_ranks = 2});
        EXPECT_THAT(usage_error_of([&] { reducer.join([] {}); }),
                    HasSubstr("join() with logical_ranks"));
    });
}

}  // namespace
