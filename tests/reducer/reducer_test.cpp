// The reducer over raw parameters: averages, both memory modes, accumulation, misuse.
#include <ddp/reducer.hpp>

#include "support/gradients.hpp"
#include "support/toy_net.hpp"

#include <ddp/error.hpp>
#include <ddp/half.hpp>
#include <ddp/testing.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace {

using namespace ddp;
using ddp::testing::run_ranks;
using ddp::testing::ToyNet;
using ddp::testing::usage_error_of;
using ::testing::HasSubstr;

// One bucket, several, and gradients that are exactly averaged over 1, 2 and 4 ranks.
const std::vector<std::int64_t> layers{3, 1000, 0, 17, 50'000};

// Whether it sends.
bool train_by_hand(ToyNet& net, Reducer& reducer, float amount) {
    net.on_gradient_ready(
        [&](std::size_t index, Stream stream) { reducer.mark_ready(index, stream); });
    net.backward(amount);
    return reducer.wait();
}

void train_three_steps(ProcessGroup& group, const ReducerOptions& options) {
    ToyNet net(layers);
    Reducer reducer(net.parameters(), group, options);
    for (int step = 0; step < 3; ++step) {
        net.zero_grad();
        EXPECT_TRUE(train_by_hand(net, reducer, static_cast<float>(2 * group.rank() + step)));
        const float average = static_cast<float>(group.size() - 1 + step);
        EXPECT_TRUE(net.gradients_are(average))
            << "step " << step << ", " << group.size() << " ranks, buckets of "
            << options.bucket_cap_mb << " MB";
    }
}

TEST(Reducer, AveragesOverRanks) {
    for (const int ranks : {1, 2, 4}) {
        run_ranks(ranks, [](ProcessGroup& group) {
            for (const bool views : {true, false}) {
                for (const double cap_mb : {0.001, 0.1, 25.0}) {
                    train_three_steps(group, {.bucket_cap_mb = cap_mb,
                                              .first_bucket_mb = 0.001,
                                              .gradient_as_bucket_view = views});
                }
            }
        });
    }
}

TEST(Reducer, AveragesFloat16WhoseSumIsTooLarge) {
    run_ranks(2, [](ProcessGroup& group) {
        for (const CommHook& hook : {CommHook{}, all_reduce_hook()}) {
            std::array<float16, 3> value{};
            std::array<float16, 3> gradient{};
            std::vector<Parameter> parameters{{"layer", value, gradient}};
            Reducer reducer(parameters, group, {.comm_hook = hook});
            std::ranges::fill(gradient, float16(group.rank() == 0 ? 65'000.0F : 63'000.0F));
            reducer.mark_ready(0);
            EXPECT_TRUE(reducer.wait());
            for (const float16 average : gradient) {
                EXPECT_EQ(static_cast<float>(average), 64'000.0F);
            }
        }
    });
}

TEST(Reducer, SplitsIntoBuckets) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({1000, 1000, 1000});
        Reducer one(net.parameters(), group);
        EXPECT_EQ(one.num_buckets(), 1U);
    });
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({1000, 1000, 1000});
        Reducer three(net.parameters(), group, {.bucket_cap_mb = 0.001, .first_bucket_mb = 0.001});
        EXPECT_EQ(three.num_buckets(), 3U);
    });
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({1000, 1000, 1000});
        const double all = std::numeric_limits<double>::infinity();
        Reducer one(net.parameters(), group, {.bucket_cap_mb = all, .first_bucket_mb = all});
        EXPECT_EQ(one.num_buckets(), 1U);
    });
}

TEST(Reducer, StartsABucketBeforeTheLastGradientIsThere) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net({1000, 1000});
        Reducer reducer(
            net.parameters(), group,
            {.bucket_cap_mb = 0.001, .first_bucket_mb = 0.001, .gradient_as_bucket_view = true});
        auto parameters = net.parameters();
        for (float& grad : parameters[1].grad.as<float>()) grad = static_cast<float>(group.rank());
        reducer.mark_ready(1);
        // Only an all-reduce that runs now can make this rank's gradient the average.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
        const volatile float& last = parameters[1].grad.as<float>()[999];
        while (last != 0.5F && std::chrono::steady_clock::now() < end) {
        }
        EXPECT_EQ(last, 0.5F);
        reducer.mark_ready(0);
        EXPECT_TRUE(reducer.wait());
    });
}

TEST(Reducer, CopiesRankZerosValuesToAll) {
    run_ranks(3, [](ProcessGroup& group) {
        ToyNet net(layers, static_cast<float>(100 * group.rank()));
        Reducer reducer(net.parameters(), group);
        EXPECT_EQ(net.parameters()[1].value.as<float>()[999], 1.0F);
        EXPECT_EQ(net.parameters()[4].value.as<float>()[0], 4.0F);
    });
}

TEST(Reducer, KeepsGradientsWhenItMovesThem) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net(layers);
        net.backward(7);
        const void* before = net.parameters()[1].grad.data;
        {
            Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = true});
            EXPECT_NE(net.parameters()[1].grad.data, before);
            EXPECT_TRUE(net.gradients_are(7));
            net.backward(1);
        }
        EXPECT_EQ(net.parameters()[1].grad.data, before);
        EXPECT_EQ(net.own_gradient(1)[999], 7.0F + 1 + 1 + 1);
    });
}

// A program whose optimiser, and backward, use pointers that were taken before.
TEST(Reducer, LeavesMemoryInPlaceUnlessAsked) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(5'000, 1), gradients(5'000, 0);
        std::vector<Parameter> parameters{{"all", values, gradients}};
        Reducer reducer(parameters, group);
        std::ranges::fill(gradients, static_cast<float>(group.rank()));
        reducer.mark_ready(0);
        EXPECT_TRUE(reducer.wait());
        EXPECT_EQ(std::ranges::count(gradients, 0.5F), 5'000);
    });
}

TEST(Reducer, HasTheOnlyMemoryOfGradientsThatHadNone) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(5'000, 1);
        const TensorView nowhere(nullptr, {5'000}, DType::float32);
        std::vector<Parameter> parameters{{"all", values, nowhere}};
        EXPECT_THAT(usage_error_of([&] { const Reducer reducer(parameters, group); }),
                    HasSubstr("the gradient of all has no memory (data is null)"));
        {
            Reducer reducer(parameters, group, {.gradient_as_bucket_view = true});
            const auto gradients = parameters[0].grad.as<float>();
            EXPECT_EQ(std::ranges::count(gradients, 0.0F), 5'000);
            std::ranges::fill(gradients, static_cast<float>(group.rank()));
            reducer.mark_ready(0);
            EXPECT_TRUE(reducer.wait());
            EXPECT_EQ(std::ranges::count(parameters[0].grad.as<float>(), 0.5F), 5'000);
        }
        EXPECT_EQ(parameters[0].grad.data, nullptr);
    });
}

TEST(Reducer, NamesAGradientThatIsWrittenWhereItWas) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> values(5'000, 1), gradients(5'000, 0);
        std::vector<Parameter> parameters{{"all", values, gradients}};
        Reducer reducer(parameters, group, {.gradient_as_bucket_view = true});
        if (group.rank() == 1) std::ranges::fill(gradients, 1.0F);
        reducer.mark_ready(0);
        try {
            EXPECT_FALSE(reducer.wait());
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("on rank 1, the gradient of all was written where "
                                                "it was before the reducer moved it"));
            return;
        }
        ADD_FAILURE() << "the averages of nothing";
    });
}

struct Mapped {
    explicit Mapped(std::size_t floats)
        : bytes(floats * sizeof(float)),
          data(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    }
    std::span<float> floats() const { return {static_cast<float*>(data), bytes / sizeof(float)}; }
    std::size_t bytes;
    void* data;
};

TEST(Reducer, OutlivesTheMemoryThatGradientsWereIn) {
    run_ranks(1, [](ProcessGroup& group) {
        std::vector<float> values(5'000, 1);
        const Mapped gradients(5'000);
        std::vector<Parameter> parameters{{"all", values, gradients.floats()}};
        Reducer reducer(parameters, group, {.gradient_as_bucket_view = true});
        ::munmap(gradients.data, gradients.bytes);
        reducer.mark_ready(0);
        EXPECT_TRUE(reducer.wait());
    });
}

TEST(Reducer, IsNoMoreOfUseOnceItsParametersAreDestroyed) {
    run_ranks(2, [](ProcessGroup& group) {
        auto net = std::make_unique<ToyNet>(layers);
        Reducer reducer(net->parameters(), group, {.gradient_as_bucket_view = true});
        net.reset();
        EXPECT_THROW(reducer.start_forward(), UsageError);
        EXPECT_THROW(reducer.start_backward(), UsageError);
        EXPECT_THROW(reducer.mark_ready(0), UsageError);
        EXPECT_THROW((void)reducer.wait(), UsageError);
    });
}

TEST(Reducer, IsNoMoreOfUseOnceItsGroupIsDestroyed) {
    run_ranks(2, [](ProcessGroup& group) {
        ToyNet net(layers);
        std::optional<ProcessGroup> part = group.split({.color = 0});
        Reducer reducer(net.parameters(), *part, {.gradient_as_bucket_view = true});
        net.backward(1);
        part.reset();
        EXPECT_THROW(reducer.start_forward(), UsageError);
        EXPECT_THROW((void)reducer.wait(), UsageError);
    });
}

TEST(Reducer, LeavesMemoryInPlaceWhenAsked) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net(layers);
        const void* before = net.parameters()[1].grad.data;
        Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = false});
        EXPECT_EQ(net.parameters()[1].grad.data, before);
    });
}

TEST(Reducer, SendsTheSumOfWhatAccumulatedUnderNoSync) {
    for (const bool views : {true, false}) {
        run_ranks(2, [&](ProcessGroup& group) {
            ToyNet net({10});
            Reducer reducer(net.parameters(), group, {.gradient_as_bucket_view = views});
            const auto mine = static_cast<float>(group.rank());
            {
                const auto guard = reducer.no_sync();
                EXPECT_FALSE(train_by_hand(net, reducer, 10 + mine));
                EXPECT_TRUE(net.gradients_are(10 + mine)) << "synchronised under no_sync";
            }
            EXPECT_TRUE(train_by_hand(net, reducer, 20 + mine));
            EXPECT_TRUE(net.gradients_are(31));  // 30 + 2 * rank, averaged
        });
    }
}

// What a mistake on rank 1 makes every rank throw; afterwards the reducer still works.
void expect_mistake_on_every_rank(const std::string& part,
                                  const std::function<void(Reducer&)>& backward_of_rank_1,
                                  const ReducerOptions& options = {}) {
    run_ranks(3, [&](ProcessGroup& group) {
        ToyNet net({4, 4, 4});
        Reducer reducer(net.parameters(), group, options);
        if (group.rank() == 1) {
            backward_of_rank_1(reducer);
        } else {
            for (const std::size_t parameter : {2, 1, 0}) reducer.mark_ready(parameter);
        }
        try {
            EXPECT_FALSE(reducer.wait());
        } catch (const UsageError& error) {
            EXPECT_THAT(error.what(), HasSubstr("on rank 1, " + part));
            EXPECT_EQ(error.culprit(), 1);  // whom the launcher is to blame
        }
        net.zero_grad();
        EXPECT_TRUE(train_by_hand(net, reducer, static_cast<float>(group.rank())));
        EXPECT_TRUE(net.gradients_are(1));
    });
}

TEST(Reducer, NamesAGradientMarkedTwiceOnEveryRank) {
    expect_mistake_on_every_rank("the gradient of layer1 was marked ready twice in one backward",
                                 [](Reducer& reducer) {
                                     for (const std::size_t parameter : {2, 1, 1, 0}) {
                                         reducer.mark_ready(parameter);
                                     }
                                 });
}

TEST(Reducer, NamesGradientsThatNeverCameOnEveryRank) {
    expect_mistake_on_every_rank("backward ended without a gradient for layer0, layer2",
                                 [](Reducer& reducer) { reducer.mark_ready(1); });
    expect_mistake_on_every_rank("backward ended without a gradient for layer0, layer1, layer2",
                                 [](Reducer&) {});
}

TEST(Reducer, RefusesAParameterThatThereIsNot) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group);
        EXPECT_THAT(usage_error_of([&] { reducer.mark_ready(2); }),
                    HasSubstr("parameter 2 was marked ready; there are 2"));
    });
}

// All calls of a reducer that has outlived its parameters or its group.
void expect_all_calls_refused(Reducer& reducer, const std::string& why) {
    using Call = std::function<void()>;
    const std::vector<std::pair<const char*, Call>> calls{
        {"start_forward", [&] { reducer.start_forward(); }},
        {"start_backward", [&] { reducer.start_backward(); }},
        {"mark_ready", [&] { reducer.mark_ready(0); }},
        {"wait", [&] { static_cast<void>(reducer.wait()); }},
        {"no_sync", [&] { static_cast<void>(reducer.no_sync()); }},
        {"join", [&] { reducer.join([] {}); }},
        {"check_batches", [&] { reducer.check_batches(1); }},
        {"logical_rank", [&] { static_cast<void>(reducer.logical_rank()); }},
        {"state_dict", [&] { static_cast<void>(reducer.state_dict()); }},
        {"load_state_dict", [&] { reducer.load_state_dict(); }},
        {"describe", [&] { static_cast<void>(reducer.describe()); }},
    };
    for (const auto& [name, call] : calls)
        EXPECT_THAT(usage_error_of(call), HasSubstr(why)) << name;
    EXPECT_EQ(reducer.num_buckets(), 1U);
    EXPECT_TRUE(reducer.was_averaged(0));
    EXPECT_EQ(reducer.statistics().step, 1U);
}

TEST(Reducer, RefusesAllCallsOnceItsParametersOrItsGroupAreGone) {
    for (const bool group_goes : {false, true}) {
        run_ranks(2, [=](ProcessGroup& world) {
            std::optional<ProcessGroup> group = world.split({.color = 0});
            std::optional<ToyNet> net(std::in_place, std::vector<std::int64_t>{4, 4});
            Reducer reducer(net->parameters(), *group);
            EXPECT_TRUE(train_by_hand(*net, reducer, 1));
            if (group_goes) {
                group.reset();
                expect_all_calls_refused(reducer, "its process group was destroyed");
            } else {
                net.reset();
                expect_all_calls_refused(reducer, "parameters were destroyed");
            }
        });
    }
}

TEST(Reducer, RefusesASecondNoSyncAndOneInTheMiddleOfABackward) {
    run_ranks(1, [](ProcessGroup& group) {
        ToyNet net({4, 4});
        Reducer reducer(net.parameters(), group);
        {
            const auto guard = reducer.no_sync();
            EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.no_sync()); }),
                        HasSubstr("another no_sync() guard lives"));
        }
        reducer.mark_ready(1);
        EXPECT_THAT(usage_error_of([&] { static_cast<void>(reducer.no_sync()); }),
                    HasSubstr("in the middle of a backward"));
    });
}

}  // namespace
