// The batches of all ranks normalised as one: beside a batch norm of one process that has them
// concatenated.
#include <ddp/sync_batch_norm.hpp>

#include "support/seed_for_ranks.hpp"
#include "sync_batch_norm/reference.hpp"

#include <ddp/reducer.hpp>
#include <ddp/testing.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "support/host_backends.hpp"

namespace {

using ddp::testing::host_backends;
using namespace ddp;
using namespace ddp::sync_batch_norm_test;
using ddp::testing::run_ranks;

// What a test of a layer varies.
struct Case {
    Extents extents;            // of all ranks' samples
    std::vector<Share> shares;  // by rank
    BatchNormOptions options;
    bool affine = true;
    bool tracks = true;
    double low = -2;
    double high = 3;
    double spread = 1e-3;  // of doubles beside floats
};

Case random_case(Random& random, int ranks) {
    Case made;
    made.extents.channels = 1 + random.below(6);
    const std::size_t dims = random.below(4);
    for (std::size_t i = 0; i < dims; ++i) {
        made.extents.inner.push_back(1 + static_cast<std::int64_t>(random.below(5)));
    }
    for (int rank = 0; rank < ranks; ++rank) {
        std::size_t samples = random.once_in(4) ? 0 : random.below(7);
        if (rank + 1 == ranks && made.extents.samples + samples < 2) samples = 2;
        made.shares.push_back({made.extents.samples, samples});
        made.extents.samples += samples;
    }
    if (random.once_in(3)) made.options.momentum.reset();
    made.options.eps = random.once_in(2) ? 1e-5 : 1e-3;
    made.affine = !random.once_in(3);
    made.tracks = !random.once_in(3);
    return made;
}

template <class T>
class Layer {
public:
    explicit Layer(const Reference& reference, const Case& made)
        : options_(made.options),
          affine_(made.affine),
          tracks_(made.tracks),
          weight(reference.weight.begin(), reference.weight.end()),
          bias(reference.bias.begin(), reference.bias.end()),
          running_mean(reference.running_mean.begin(), reference.running_mean.end()),
          running_var(reference.running_var.begin(), reference.running_var.end()),
          weight_gradient(weight.size(), T{1}),
          bias_gradient(weight.size(), T{2}) {}

    BatchNormState state() {
        BatchNormState state{.num_batches_tracked = &batches};
        if (affine_) {
            state.weight = weight;
            state.bias = bias;
        }
        if (tracks_) {
            state.running_mean = running_mean;
            state.running_var = running_var;
        }
        return state;
    }

    std::vector<T> forward(std::vector<T>& input, const Shape& shape, ProcessGroup& group) {
        std::vector<T> output(input.size());
        statistics = sync_batch_norm_forward(view(input, shape), view(output, shape), state(),
                                             group, options_);
        return output;
    }
    std::vector<T> backward(std::vector<T>& input, std::vector<T>& gradient, const Shape& shape,
                            ProcessGroup& group) {
        std::vector<T> of_input(input.size());
        BatchNormGradients gradients{.output = view(gradient, shape),
                                     .input = view(of_input, shape)};
        if (affine_) {
            gradients.weight = weight_gradient;
            gradients.bias = bias_gradient;
        }
        sync_batch_norm_backward(view(input, shape), statistics, state(), gradients, group);
        return of_input;
    }
    static TensorView view(std::vector<T>& elements, const Shape& shape) {
        return {elements.data(), shape, dtype_of<T>()};
    }

private:
    BatchNormOptions options_;
    bool affine_;
    bool tracks_;

public:
    std::vector<T> weight, bias, running_mean, running_var, weight_gradient, bias_gradient;
    std::int64_t batches = 0;
    BatchNormStatistics statistics;
};

// The sum over ranks, less what each began with.
template <class T>
std::vector<double> total(const std::vector<T>& mine, double began_with, ProcessGroup& group) {
    std::vector<double> sum(mine.begin(), mine.end());
    group.all_reduce(sum).wait();
    for (double& value : sum) value -= began_with * group.size();
    return sum;
}

// Of an input's gradient, in parts of its channel's: what is added there is as large as that, and may
// cancel; of two samples a channel hardly anything is left.
template <class T>
double difference_by_channel(const std::vector<T>& actual, const Numbers& expected,
                             const Extents& extents, const Reference& reference) {
    if (actual.size() != expected.size()) return INFINITY;
    double most = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const std::size_t c = extents.channel_of(i);
        const double part = std::abs(reference.weight[c]) * reference.inverse_std[c];
        const double apart = std::abs(static_cast<double>(actual[i]) - expected[i]);
        if (!(apart <= INFINITY)) return INFINITY;
        most = std::max(most, part == 0 ? apart : apart / part);
    }
    return most;
}

// Some steps of one layer. `tolerance`: in parts of the largest number.
template <class T>
void compare_with_one_process(const Case& made, Random& random, double tolerance,
                              ProcessGroup& group) {
    Reference reference(made.extents.channels);
    reference.eps = made.options.eps;
    reference.momentum = made.options.momentum;
    if (made.affine) {
        reference.weight = random.numbers(made.extents.channels, -2, 2);
        reference.bias = random.numbers(made.extents.channels, -2, 2);
    }
    Layer<T> layer(reference, made);
    const Share& share = made.shares[static_cast<std::size_t>(group.rank())];
    Extents here = made.extents;
    here.samples = share.samples;
    Reference::Gradients sums{{}, Numbers(here.channels), Numbers(here.channels)};
    for (int step = 0; step < 2; ++step) {
        Numbers input = random.numbers(made.extents.numel(), made.low, made.high);
        if (std::is_same_v<T, double>) {
            for (double& value : input) value += random.between(0, made.spread);
        }
        const Numbers gradient = random.numbers(made.extents.numel(), -1, 1);
        const Numbers output = reference.forward(input, made.extents);
        const auto expected = reference.backward(input, gradient, made.extents);

        auto mine = share.of<T>(input, made.extents);
        auto my_gradient = share.of<T>(gradient, made.extents);
        EXPECT_LT(difference(layer.forward(mine, here.shape(), group),
                             share.of<double>(output, made.extents)),
                  tolerance);
        const auto got = layer.backward(mine, my_gradient, here.shape(), group);
        const auto wanted = share.of<double>(expected.input, made.extents);
        EXPECT_LT(difference_by_channel(got, wanted, here, reference), 10 * tolerance);
        EXPECT_EQ(layer.statistics.count, made.extents.values_a_channel());
        for (std::size_t c = 0; c < here.channels; ++c) {
            sums.weight[c] += expected.weight[c];
            sums.bias[c] += expected.bias[c];
        }
    }
    const Numbers none(here.channels, 0);
    EXPECT_LT(
        difference(total(layer.weight_gradient, 1, group), made.affine ? sums.weight : none, 1),
        10 * tolerance);
    EXPECT_LT(difference(total(layer.bias_gradient, 2, group), made.affine ? sums.bias : none, 1),
              10 * tolerance);
    if (!made.tracks) return;
    EXPECT_EQ(layer.batches, 2);
    // A mean may cancel: it is as exact as the numbers that it is made of.
    const double largest = std::max(std::abs(made.low), std::abs(made.high));
    EXPECT_LT(difference(layer.running_mean, reference.running_mean, largest), tolerance);
    EXPECT_LT(difference(layer.running_var, reference.running_var), tolerance);
}

class SyncBatchNorm : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Worlds, SyncBatchNorm, ::testing::Values(1, 2, 3, 4));

TEST_P(SyncBatchNorm, IsTheBatchNormOfOneProcessForRandomShapes) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    const int ranks = GetParam();
    run_ranks(ranks, [&](ProcessGroup& group) {
        Random random(seed);
        for (int i = 0; i < 100; ++i) {
            const Case made = random_case(random, ranks);
            SCOPED_TRACE("case " + std::to_string(i) + ", " + to_string(made.extents.shape()));
            compare_with_one_process<double>(made, random, 1e-10, group);
            compare_with_one_process<float>(made, random, 2e-6, group);
        }
    });
}

TEST_P(SyncBatchNorm, KeepsAVarianceThatIsSmallBesideTheMean) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    const int ranks = GetParam();
    run_ranks(ranks, [&](ProcessGroup& group) {
        Random random(seed);
        for (int i = 0; i < 10; ++i) {
            Case made = random_case(random, ranks);
            made.extents.inner.push_back(20);
            made.low = made.high = i % 2 == 0 ? 1e6 : -1e6;
            made.spread = 0.35;  // a standard deviation of 0.1
            SCOPED_TRACE("case " + std::to_string(i) + ", " + to_string(made.extents.shape()));
            compare_with_one_process<double>(made, random, 1e-6, group);
        }
    });
}

TEST_P(SyncBatchNorm, GivesTheSameBitsOnAllRanksAndInEachRun) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    const int ranks = GetParam();
    run_ranks(ranks, [&](ProcessGroup& group) {
        Random random(seed);
        for (int i = 0; i < 20; ++i) {
            const Case made = random_case(random, ranks);
            const Numbers input = random.numbers(made.extents.numel(), -2, 3);
            const Share& share = made.shares[static_cast<std::size_t>(group.rank())];
            Extents here = made.extents;
            here.samples = share.samples;
            auto mine = share.of<float>(input, made.extents);
            const Reference reference(here.channels);
            Layer<float> layer(reference, made);
            const auto output = layer.forward(mine, here.shape(), group);
            const auto of_rank_zero = [&](const Numbers& numbers) {
                Numbers copy = numbers;
                group.broadcast(copy).wait();
                return copy;
            };
            EXPECT_EQ(layer.statistics.mean, of_rank_zero(layer.statistics.mean));
            EXPECT_EQ(layer.statistics.inverse_std, of_rank_zero(layer.statistics.inverse_std));
            Layer<float> again(reference, made);
            EXPECT_EQ(again.forward(mine, here.shape(), group), output);
            EXPECT_EQ(again.running_var, layer.running_var);
        }
    });
}

TEST_P(SyncBatchNorm, EvaluatesByRunningStatisticsWithoutTheOthers) {
    run_ranks(GetParam(), [](ProcessGroup& group) {
        if (group.rank() != 0) return;
        Extents extents{3, 2, {4}};
        Random random(17);
        Reference reference(2);
        reference.mean = {1.5, -2};
        reference.weight = {3, 0.5};
        reference.bias = {0.25, 1};
        reference.inverse_std = {1 / std::sqrt(4 + 1e-5), 1 / std::sqrt(0.25 + 1e-5)};
        std::vector<double> running_mean = reference.mean;
        std::vector<double> running_var{4, 0.25};
        std::int64_t batches = 5;
        const BatchNormState state{reference.weight, reference.bias, running_mean, running_var,
                                   &batches};
        Numbers input = random.numbers(extents.numel(), -2, 3);
        Numbers output(input.size());
        const auto view = [&](Numbers& numbers) {
            return TensorView(numbers.data(), extents.shape(), DType::float64);
        };
        const auto statistics = batch_norm_evaluate(view(input), view(output), state);
        EXPECT_LT(difference(output, reference.normalise(input, extents)), 1e-14);
        EXPECT_EQ(running_mean, reference.mean);
        EXPECT_EQ(batches, 5);

        Numbers gradient = random.numbers(extents.numel(), -1, 1);
        Numbers expected = gradient;
        for (std::size_t i = 0; i < expected.size(); ++i) {
            const std::size_t c = extents.channel_of(i);
            expected[i] *= reference.inverse_std[c] * reference.weight[c];
        }
        Numbers weight_gradient(2, 0);
        sync_batch_norm_backward(
            view(input), statistics, state,
            {.output = view(gradient), .input = view(gradient), .weight = weight_gradient}, group);
        EXPECT_LT(difference(gradient, expected), 1e-14);
        EXPECT_NE(weight_gradient[0], 0);
    });
}

Numbers squares_of(const Numbers& numbers) {
    Numbers squares = numbers;
    for (double& number : squares) number *= number;
    return squares;
}
void through_squares(Numbers& gradient, const Numbers& numbers) {
    for (std::size_t i = 0; i < numbers.size(); ++i) gradient[i] *= 2 * numbers[i];
}

// x -> batch norm -> squares -> batch norm -> sum(gradient * y), each norm with weight and bias:
// four parameters.
class TwoNorms {
public:
    explicit TwoNorms(const Extents& extents)
        : extents_(extents), values_(4, Numbers(extents.channels)), gradients_(values_) {
        for (std::size_t p = 0; p < 4; ++p) {
            for (std::size_t c = 0; c < extents.channels; ++c) {
                values_[p][c] = 0.5 + 0.25 * static_cast<double>(p + c);
            }
            parameters.push_back({"p" + std::to_string(p), values_[p], gradients_[p]});
        }
    }
    TwoNorms(const TwoNorms&) = delete;
    TwoNorms& operator=(const TwoNorms&) = delete;

    // Then f(parameter) as each gradient comes.
    template <class F>
    void step(Numbers input, Numbers gradient, ProcessGroup& group, const F& f) {
        Numbers middle(input.size());
        const auto first = sync_batch_norm_forward(view(input), view(middle), state(0), group);
        Numbers squares = squares_of(middle);
        Numbers output(input.size());
        const auto second = sync_batch_norm_forward(view(squares), view(output), state(2), group);
        sync_batch_norm_backward(view(squares), second, state(2), gradients(2, gradient), group);
        f(2);
        f(3);
        through_squares(gradient, middle);
        sync_batch_norm_backward(view(input), first, state(0), gradients(0, gradient), group);
        f(0);
        f(1);
    }
    Numbers gradient(std::size_t p) const {
        const auto elements = parameters[p].grad.as<double>();
        return {elements.begin(), elements.end()};
    }
    const Numbers& value(std::size_t p) const { return values_[p]; }

    std::vector<Parameter> parameters;

private:
    TensorView view(Numbers& numbers) const {
        return {numbers.data(), extents_.shape(), DType::float64};
    }
    BatchNormState state(std::size_t p) {
        return {.weight = parameters[p].value, .bias = parameters[p + 1].value};
    }
    BatchNormGradients gradients(std::size_t p, Numbers& gradient) {
        return {view(gradient), view(gradient), parameters[p].grad, parameters[p + 1].grad};
    }

    Extents extents_;
    std::vector<Numbers> values_;
    std::vector<Numbers> gradients_;
};

// As one process has them, by parameter.
std::vector<Numbers> gradients_of_one_process(const TwoNorms& net, const Numbers& input,
                                              const Numbers& gradient, const Extents& extents) {
    Reference first(extents.channels);
    Reference second(extents.channels);
    first.weight = net.value(0);
    first.bias = net.value(1);
    second.weight = net.value(2);
    second.bias = net.value(3);
    const Numbers middle = first.forward(input, extents);
    const Numbers squares = squares_of(middle);
    second.forward(squares, extents);
    auto upper = second.backward(squares, gradient, extents);
    through_squares(upper.input, middle);
    const auto lower = first.backward(input, upper.input, extents);
    return {lower.weight, lower.bias, upper.weight, upper.bias};
}

TEST(SyncBatchNormInTraining, GivesAReducerTheGradientsOfOneProcess) {
    const unsigned seed = ddp::testing::seed_for_ranks();
    for (const InitOptions& init : host_backends()) {
        const auto body = [&](ProcessGroup& group) {
            Random random(seed);
            const Case made = random_case(random, group.size());
            const Share& share = made.shares[static_cast<std::size_t>(group.rank())];
            Extents here = made.extents;
            here.samples = share.samples;
            TwoNorms net(here);
            Reducer reducer(net.parameters, group,
                            {.bucket_cap_mb = 1e-6, .first_bucket_mb = 1e-6});
            EXPECT_EQ(reducer.num_buckets(), 4U);
            std::vector<Numbers> expected(4, Numbers(here.channels));
            for (int step = 0; step < 5; ++step) {
                const Numbers input = random.numbers(made.extents.numel(), -2, 3);
                const Numbers gradient = random.numbers(made.extents.numel(), -1, 1);
                auto mine = share.of<double>(gradient, made.extents);
                for (double& value : mine) value *= group.size();
                net.step(share.of<double>(input, made.extents), mine, group,
                         [&](std::size_t p) { reducer.mark_ready(p); });
                EXPECT_TRUE(reducer.wait());
                const auto added = gradients_of_one_process(net, input, gradient, made.extents);
                for (std::size_t p = 0; p < 4; ++p) {
                    for (std::size_t c = 0; c < here.channels; ++c) expected[p][c] += added[p][c];
                    EXPECT_LT(difference(net.gradient(p), expected[p]), 1e-9) << "parameter " << p;
                }
            }
        };
        run_ranks(3, body, {.init = init});
    }
}

TEST(SyncBatchNormInTraining, WorksOnAGroupOfItsOwnWhereBucketsHaveNoPlace) {
    for (const InitOptions& init : host_backends()) {
        const auto body = [](ProcessGroup& group) {
            ProcessGroup of_norms = group.split({});
            const Extents extents{4, 3, {}};
            Random random(17);
            TwoNorms net(extents);
            Numbers other(50, 0);
            Numbers gradient_of_other(50, 0);
            std::vector<Parameter> others{{"other", other, gradient_of_other}};
            Reducer reducer(others, group, {.find_unused_parameters = true});
            for (int step = 0; step < 10; ++step) {
                // Rank 0 sends before the norms' collectives, rank 1 after them.
                gradient_of_other.assign(50, group.rank());
                reducer.start_backward();
                if (group.rank() == 0) reducer.mark_ready(0);
                net.step(random.numbers(extents.numel(), -2, 3),
                         random.numbers(extents.numel(), -1, 1), of_norms, [](std::size_t) {});
                if (group.rank() == 1) reducer.mark_ready(0);
                EXPECT_TRUE(reducer.wait());
                EXPECT_EQ(gradient_of_other.front(), 0.5);
            }
        };
        run_ranks(2, body, {.init = init});
    }
}

}  // namespace
