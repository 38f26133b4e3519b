// A batch norm of one process, written down once more in long double and without any cleverness;
// and batches that ranks share.
#pragma once

#include <ddp/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

namespace ddp::sync_batch_norm_test {

using Numbers = std::vector<double>;

// Elements [samples, channels, inner].
struct Extents {
    std::size_t samples = 0;
    std::size_t channels = 0;
    std::vector<std::int64_t> inner;

    std::size_t inner_size() const {
        return static_cast<std::size_t>(
            std::accumulate(inner.begin(), inner.end(), std::int64_t{1}, std::multiplies<>{}));
    }
    std::size_t sample_size() const { return channels * inner_size(); }
    std::size_t numel() const { return samples * sample_size(); }
    Shape shape() const {
        std::vector<std::int64_t> all{static_cast<std::int64_t>(samples),
                                      static_cast<std::int64_t>(channels)};
        all.insert(all.end(), inner.begin(), inner.end());
        return Shape(std::span<const std::int64_t>(all));
    }
    std::size_t channel_of(std::size_t element) const { return element / inner_size() % channels; }
    double values_a_channel() const { return static_cast<double>(samples * inner_size()); }
};

struct Reference {
    Numbers weight;
    Numbers bias;
    Numbers running_mean;
    Numbers running_var;
    std::int64_t batches = 0;
    double eps = 1e-5;
    std::optional<double> momentum = 0.1;

    explicit Reference(std::size_t channels)
        : weight(channels, 1),
          bias(channels, 0),
          running_mean(channels, 0),
          running_var(channels, 1) {}

    Numbers mean;
    Numbers inverse_std;

    Numbers forward(const Numbers& input, const Extents& extents) {
        std::vector<long double> middle(extents.channels, 0);
        std::vector<long double> squares(extents.channels, 0);
        const long double count = extents.values_a_channel();
        for (std::size_t i = 0; i < input.size(); ++i) {
            middle[extents.channel_of(i)] += input[i] / count;
        }
        for (std::size_t i = 0; i < input.size(); ++i) {
            const long double distance = input[i] - middle[extents.channel_of(i)];
            squares[extents.channel_of(i)] += distance * distance;
        }
        mean.assign(middle.begin(), middle.end());
        inverse_std.clear();
        for (const long double m2 : squares) {
            inverse_std.push_back(static_cast<double>(1 / std::sqrt(m2 / count + eps)));
        }
        ++batches;
        const double part = momentum ? *momentum : 1 / static_cast<double>(batches);
        for (std::size_t c = 0; c < extents.channels && count > 0; ++c) {
            running_mean[c] = (1 - part) * running_mean[c] + part * mean[c];
            running_var[c] =
                (1 - part) * running_var[c] + part * static_cast<double>(squares[c] / (count - 1));
        }
        return normalise(input, extents);
    }
    Numbers normalise(const Numbers& input, const Extents& extents) const {
        Numbers output(input.size());
        for (std::size_t i = 0; i < input.size(); ++i) {
            const std::size_t c = extents.channel_of(i);
            output[i] = (input[i] - mean[c]) * inverse_std[c] * weight[c] + bias[c];
        }
        return output;
    }

    struct Gradients {
        Numbers input;
        Numbers weight;
        Numbers bias;
    };
    // Of the last forward.
    Gradients backward(const Numbers& input, const Numbers& gradient,
                       const Extents& extents) const {
        Gradients result{Numbers(input.size()), Numbers(extents.channels),
                         Numbers(extents.channels)};
        for (std::size_t i = 0; i < input.size(); ++i) {
            const std::size_t c = extents.channel_of(i);
            result.weight[c] += gradient[i] * (input[i] - mean[c]) * inverse_std[c];
            result.bias[c] += gradient[i];
        }
        const double count = extents.values_a_channel();
        for (std::size_t i = 0; i < input.size(); ++i) {
            const std::size_t c = extents.channel_of(i);
            const double normalised = (input[i] - mean[c]) * inverse_std[c];
            result.input[i] =
                (gradient[i] - result.bias[c] / count - normalised * result.weight[c] / count) *
                inverse_std[c] * weight[c];
        }
        return result;
    }
};

// The samples of one rank in a batch that ranks share.
struct Share {
    std::size_t first;
    std::size_t samples;

    template <class T>
    std::vector<T> of(const Numbers& whole, const Extents& extents) const {
        const auto begin =
            whole.begin() + static_cast<std::ptrdiff_t>(first * extents.sample_size());
        const auto size = static_cast<std::ptrdiff_t>(samples * extents.sample_size());
        std::vector<T> part;
        std::transform(begin, begin + size, std::back_inserter(part),
                       [](double value) { return static_cast<T>(value); });
        return part;
    }
};

// The same numbers on all ranks, whatever the standard library; floats, so that both types hold
// them.
class Random {
public:
    explicit Random(std::uint64_t seed) : engine_(seed) {}
    std::size_t below(std::size_t count) { return engine_() % count; }
    bool once_in(std::size_t count) { return below(count) == 0; }
    double between(double low, double high) {
        return low + (high - low) * static_cast<double>(engine_() >> 11) * 0x1p-53;
    }
    Numbers numbers(std::size_t count, double low, double high) {
        Numbers all(count);
        for (double& number : all) number = static_cast<float>(between(low, high));
        return all;
    }

private:
    std::mt19937_64 engine_;
};

// The largest difference, in parts of the largest expected number, or of `least` if that is more.
template <class T>
double difference(const std::vector<T>& actual, const std::vector<double>& expected,
                  double least = 0) {
    if (actual.size() != expected.size()) return INFINITY;
    double largest = least;
    double most = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
        const double apart = std::abs(static_cast<double>(actual[i]) - expected[i]);
        if (std::isnan(apart)) return INFINITY;
        most = std::max(most, apart);
        largest = std::max(largest, std::abs(expected[i]));
    }
    return most == 0 ? 0 : most / largest;
}

}  // namespace ddp::sync_batch_norm_test
