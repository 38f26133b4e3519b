// The example's layers: gradients against finite differences, the order of the hooks, and SGD's
// rule.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ddp/ddp.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "nn/mlp.hpp"
#include "nn/relu.hpp"
#include "nn/sgd.hpp"
#include "nn/softmax_cross_entropy.hpp"

namespace {

struct Samples {
    std::vector<float> images;
    std::vector<std::int32_t> labels;
};

Samples random_samples(std::size_t rows, std::size_t inputs, int classes) {
    std::mt19937 random{5};
    Samples samples;
    for (std::size_t i = 0; i < rows * inputs; ++i) {
        samples.images.push_back(static_cast<float>(random() % 1000) / 500 - 1);
    }
    for (std::size_t row = 0; row < rows; ++row) {
        samples.labels.push_back(static_cast<std::int32_t>(row) % classes);
    }
    return samples;
}

}  // namespace

TEST(Mlp, HasTheGradientsOfFiniteDifferences) {
    const auto [images, labels] = random_samples(6, 5, 3);
    nn::Mlp net{5, 7, 4, 3};
    net.forward(images, labels);
    net.backward();
    int checked = 0;
    for (const ddp::Parameter& parameter : net.parameters()) {
        const auto values = parameter.value.as<float>();
        const auto gradients = parameter.grad.as<float>();
        for (std::size_t i = 0; i < values.size(); ++i, ++checked) {
            constexpr float step = 1e-3F;  // small, so that no rectifier switches
            const float before = values[i];
            values[i] = before + step;
            const double above = net.forward(images, labels);
            values[i] = before - step;
            const double below = net.forward(images, labels);
            values[i] = before;
            EXPECT_NEAR(gradients[i], (above - below) / (2 * double{step}), 2e-3)
                << parameter.name << "[" << i << "]";
        }
    }
    EXPECT_EQ(checked, 5 * 7 + 7 + 7 * 4 + 4 + 4 * 3 + 3);
}

TEST(Mlp, AddsToTheGradientsAtWhereverTheyAre) {
    const auto [images, labels] = random_samples(4, 3, 2);
    nn::Mlp net{3, 2};
    net.forward(images, labels);
    net.backward();
    const auto first = net.parameters()[0].grad.as<float>();
    std::vector<float> once(first.begin(), first.end());
    std::vector<float> moved = once;
    net.parameters()[0].grad.data = moved.data();
    net.backward();
    for (std::size_t i = 0; i < once.size(); ++i) EXPECT_FLOAT_EQ(moved[i], 2 * once[i]);
    EXPECT_TRUE(std::ranges::equal(first, once));
}

TEST(Mlp, CallsTheHookOncePerParameterLastLayerFirstWhenTheGradientIsComplete) {
    const auto [images, labels] = random_samples(4, 3, 2);
    nn::Mlp net{3, 5, 2};
    std::vector<std::size_t> order;
    std::vector<std::vector<float>> at_hook(4);
    net.on_gradient_ready([&](std::size_t parameter, ddp::Stream) {
        order.push_back(parameter);
        const auto gradient = net.parameters()[parameter].grad.as<float>();
        at_hook[parameter].assign(gradient.begin(), gradient.end());
    });
    net.forward(images, labels);
    net.backward();
    EXPECT_THAT(order, testing::ElementsAre(3, 2, 1, 0));
    for (std::size_t p = 0; p < 4; ++p) {
        EXPECT_THAT(net.parameters()[p].grad.as<float>(), testing::ElementsAreArray(at_hook[p]));
    }
    net.on_gradient_ready({});
    net.backward();
    EXPECT_EQ(order.size(), 4U);
}

TEST(Mlp, BeginsWithTheSameWeightsEachTime) {
    const nn::Mlp first{64, 128, 10};
    nn::Mlp second{64, 128, 10};
    EXPECT_EQ(digest(first), digest(second));
    const auto weights = second.parameters()[0].value.as<float>();
    EXPECT_LE(*std::ranges::max_element(weights), 0.125F);  // 1 / sqrt(64)
    EXPECT_GT(*std::ranges::max_element(weights), 0.12F);
    EXPECT_LT(*std::ranges::min_element(weights), -0.12F);
    weights[0] = std::nextafter(weights[0], 1.0F);
    EXPECT_NE(digest(first), digest(second));
}

TEST(Mlp, TreatsASampleAlikeInAnyBatch) {
    const auto [images, labels] = random_samples(8, 5, 3);
    nn::Mlp net{5, 7, 3};
    const auto together = net.predict(images);
    for (std::size_t row = 0; row < 8; ++row) {
        EXPECT_EQ(net.predict(std::span(images).subspan(5 * row, 5)).front(), together[row]);
    }
}

TEST(Relu, KeepsANan) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> values{-1, 0, 2, nan};
    nn::relu(values);
    EXPECT_THAT(values, testing::ElementsAre(0, 0, 2, testing::IsNan()));
    std::vector<float> gradients{1, 1, 1, 1};
    nn::relu_backward(values, gradients);
    EXPECT_THAT(gradients, testing::ElementsAre(0, 0, 1, 1));
}

TEST(SoftmaxCrossEntropy, IsTheMeanNegativeLogLikelihood) {
    const std::vector<float> logits{0, 0, 1000, -1000};
    const std::vector<std::int32_t> labels{1, 0};
    std::vector<float> gradient(4);
    EXPECT_DOUBLE_EQ(nn::softmax_cross_entropy(logits, labels, gradient), std::log(2.0) / 2);
    EXPECT_THAT(gradient, testing::ElementsAre(0.25F, -0.25F, 0, 0));
}

TEST(Sgd, FollowsTorchsRule) {
    std::vector<float> value{1};
    std::vector<float> grad{0.5F};
    std::vector<ddp::Parameter> parameters{{"w", value, grad}};
    nn::Sgd sgd{parameters, {.learning_rate = 0.5F, .momentum = 0.5F}};
    sgd.step();  // velocity 0.5
    EXPECT_EQ(value[0], 0.75F);
    sgd.step();  // velocity 0.75
    EXPECT_EQ(value[0], 0.375F);
    const auto state = sgd.state_dict();
    ASSERT_EQ(state.size(), 1U);
    EXPECT_EQ(state[0].name, "momentum.w");
    EXPECT_EQ(state[0].tensor.as<float>()[0], 0.75F);
    sgd.zero_grad();
    EXPECT_EQ(grad[0], 0);
}

// Wrapping a net moves its gradients; an optimiser must not notice.
TEST(Sgd, GivesTheSameBitsWhenMadeBeforeAndAfterWrapping) {
    const auto [images, labels] = random_samples(6, 5, 3);
    auto group = ddp::init_process_group();
    std::vector<std::uint64_t> digests;
    for (const bool before : {true, false}) {
        nn::Mlp net{5, 7, 4, 3};
        std::optional<nn::Sgd> optimizer;
        const nn::SgdOptions options{.learning_rate = 0.1F, .momentum = 0.9F};
        if (before) optimizer.emplace(net.parameters(), options);
        ddp::DistributedDataParallel model{net, group};
        if (!before) optimizer.emplace(net.parameters(), options);
        for (int step = 0; step < 5; ++step) {
            optimizer->zero_grad();
            model.forward(images, labels);
            EXPECT_TRUE(model.backward());
            optimizer->step();
        }
        digests.push_back(digest(net));
    }
    EXPECT_EQ(digests[0], digests[1]);
}
