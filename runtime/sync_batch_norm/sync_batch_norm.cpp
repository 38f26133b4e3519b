// The layer's arithmetic between the collectives: what is normalised by what.
#include <ddp/sync_batch_norm.hpp>

#include "sync_batch_norm/moments.hpp"

#include <ddp/error.hpp>

#include <cmath>
#include <string>
#include <utility>

namespace ddp {
namespace {

using sync_batch_norm::for_each_element;
using sync_batch_norm::GradientSums;
using sync_batch_norm::Layout;
using sync_batch_norm::Moments;

// f(a null pointer of the element type), as the checks have left two of them.
template <class F>
decltype(auto) with_type(DType dtype, const F& f) {
    return dtype == DType::float32 ? f(static_cast<float*>(nullptr))
                                   : f(static_cast<double*>(nullptr));
}

std::string describe(const TensorView& tensor) {
    return std::string(to_string(tensor.dtype)) + " " + to_string(tensor.shape) + " on " +
           to_string(tensor.device);
}

Layout layout_of(const TensorView& input) {
    const bool floats = input.dtype == DType::float32 || input.dtype == DType::float64;
    if (!floats || input.device.type != DeviceType::cpu || input.shape.dims() < 2) {
        throw UsageError("sync_batch_norm: the input is " + describe(input) +
                         "; it must be float32 or float64 [samples, channels, ...] on the CPU");
    }
    const auto extents = input.shape.extents();
    Layout layout{static_cast<std::size_t>(extents[0]), static_cast<std::size_t>(extents[1]), 1};
    for (const std::int64_t extent : extents.subspan(2)) {
        layout.inner *= static_cast<std::size_t>(extent);
    }
    return layout;
}

void require_like(const TensorView& tensor, const TensorView& input, const char* name) {
    if (tensor.dtype == input.dtype && tensor.device == input.device &&
        tensor.shape == input.shape) {
        return;
    }
    throw UsageError(std::string("sync_batch_norm: ") + name + " is " + describe(tensor) +
                     ", the input " + describe(input) + "; they must be alike");
}

// An empty batch has no memory either, but a shape.
bool is_there(const TensorView& tensor) {
    return tensor.data != nullptr || tensor.shape.dims() > 1;
}

void require_per_channel(const TensorView& tensor, const TensorView& input, const Layout& layout,
                         const char* name) {
    if (!is_there(tensor)) return;
    if (tensor.dtype == input.dtype && tensor.device == input.device &&
        tensor.numel() == layout.channels) {
        return;
    }
    throw UsageError(std::string("sync_batch_norm: ") + name + " is " + describe(tensor) +
                     "; it must have one element for each of the " +
                     std::to_string(layout.channels) + " channels of the input, " +
                     describe(input));
}

void require_state(const BatchNormState& state, const TensorView& input, const Layout& layout,
                   const BatchNormOptions& options) {
    require_per_channel(state.weight, input, layout, "weight");
    require_per_channel(state.bias, input, layout, "bias");
    require_per_channel(state.running_mean, input, layout, "running_mean");
    require_per_channel(state.running_var, input, layout, "running_var");
    if (is_there(state.running_mean) != is_there(state.running_var)) {
        throw UsageError("sync_batch_norm: give both running_mean and running_var, or neither");
    }
    if (is_there(state.running_mean) && !options.momentum && state.num_batches_tracked == nullptr) {
        throw UsageError(
            "sync_batch_norm: without momentum the running statistics are averages over all "
            "batches; give num_batches_tracked, or a momentum");
    }
}

std::vector<double> numbers_of(const TensorView& tensor, std::size_t channels, double otherwise) {
    std::vector<double> numbers(channels, otherwise);
    if (!is_there(tensor)) return numbers;
    with_type(tensor.dtype, [&]<class T>(T*) {
        const std::span<T> elements = tensor.as<T>();
        for (std::size_t c = 0; c < channels; ++c) numbers[c] = static_cast<double>(elements[c]);
    });
    return numbers;
}

// Each element: becomes f(it, now).
template <class F>
void update(const TensorView& tensor, const F& f) {
    with_type(tensor.dtype, [&]<class T>(T*) {
        const std::span<T> elements = tensor.as<T>();
        for (std::size_t c = 0; c < elements.size(); ++c) {
            elements[c] = static_cast<T>(f(static_cast<double>(elements[c]), c));
        }
    });
}

Moments moments_of_all(const TensorView& input, const Layout& layout, ProcessGroup& group) {
    Moments mine = with_type(input.dtype, [&]<class T>(T*) {
        return sync_batch_norm::moments_of(static_cast<const T*>(input.data), layout);
    });
    if (group.size() == 1) return mine;
    std::vector<double> row = sync_batch_norm::pack(mine);
    std::vector<double> rows(row.size() * static_cast<std::size_t>(group.size()));
    all_gather_moments(row, rows, group).wait();
    return sync_batch_norm::merge_rows(rows, layout.channels);
}

void track(const BatchNormState& state, const Moments& moments, const BatchNormOptions& options) {
    if (!is_there(state.running_mean)) return;
    if (state.num_batches_tracked != nullptr) ++*state.num_batches_tracked;
    if (moments.count == 0) return;
    const double part =
        options.momentum ? *options.momentum : 1 / static_cast<double>(*state.num_batches_tracked);
    update(state.running_mean, [&](double running, std::size_t c) {
        return (1 - part) * running + part * moments.mean[c];
    });
    const auto freedom = static_cast<double>(moments.count - 1);
    update(state.running_var, [&](double running, std::size_t c) {
        return (1 - part) * running + part * (moments.m2[c] / freedom);
    });
}

void normalise(const TensorView& input, const TensorView& output, const Layout& layout,
               const BatchNormState& state, const BatchNormStatistics& statistics) {
    std::vector<double> factors = numbers_of(state.weight, layout.channels, 1);
    for (std::size_t c = 0; c < layout.channels; ++c) factors[c] *= statistics.inverse_std[c];
    const std::vector<double> biases = numbers_of(state.bias, layout.channels, 0);
    with_type(input.dtype, [&]<class T>(T*) {
        const auto* const from = static_cast<const T*>(input.data);
        auto* const to = static_cast<T*>(output.data);
        for_each_element(layout, [&, to, from](std::size_t c) {
            const double mean = statistics.mean[c];
            const double factor = factors[c];
            const double bias = biases[c];
            return [=](std::size_t at) {
                to[at] = static_cast<T>((static_cast<double>(from[at]) - mean) * factor + bias);
            };
        });
    });
}

std::vector<double> inverse_std_of(std::vector<double> variance, double eps) {
    for (double& value : variance) value = 1 / std::sqrt(value + eps);
    return variance;
}

// By channel: the gradient of the input is
// (gradient - mean_gradient - normalised input * mean_product) * factor.
struct InputGradient {
    std::vector<double> mean_gradient;
    std::vector<double> mean_product;  // of gradient and normalised input
    std::vector<double> factor;
};

template <class T>
void write_input_gradient(const T* gradient, const T* input, T* written, const Layout& layout,
                          const BatchNormStatistics& statistics, const InputGradient& by) {
    for_each_element(layout, [&, gradient, input, written](std::size_t c) {
        const double mean = statistics.mean[c];
        const double slope = statistics.inverse_std[c] * by.mean_product[c];
        const double mean_gradient = by.mean_gradient[c];
        const double factor = by.factor[c];
        return [=](std::size_t at) {
            const double distance = static_cast<double>(input[at]) - mean;
            const double from = static_cast<double>(gradient[at]) - mean_gradient;
            written[at] = static_cast<T>((from - distance * slope) * factor);
        };
    });
}

// Through the statistics each element of a batch has a part in the losses of all ranks.
InputGradient input_gradient_of(const GradientSums& sums, const TensorView& weight,
                                const BatchNormStatistics& statistics, ProcessGroup& group) {
    const std::size_t channels = sums.gradient.size();
    InputGradient by{std::vector<double>(channels), std::vector<double>(channels),
                     numbers_of(weight, channels, 1)};
    for (std::size_t c = 0; c < channels; ++c) by.factor[c] *= statistics.inverse_std[c];
    if (statistics.count == 0) return by;
    std::vector<double> all = sums.gradient;
    all.insert(all.end(), sums.normalised.begin(), sums.normalised.end());
    if (group.size() > 1) all_reduce_gradient_sums(all, group).wait();
    for (std::size_t c = 0; c < channels; ++c) {
        by.mean_gradient[c] = all[c] / static_cast<double>(statistics.count);
        by.mean_product[c] = all[channels + c] / static_cast<double>(statistics.count);
    }
    return by;
}

void require_gradients(const BatchNormGradients& gradients, const TensorView& input,
                       const Layout& layout, const BatchNormStatistics& statistics) {
    require_like(gradients.output, input, "the gradient of the output");
    if (is_there(gradients.input)) {
        require_like(gradients.input, input, "the gradient of the input");
    }
    require_per_channel(gradients.weight, input, layout, "the gradient of weight");
    require_per_channel(gradients.bias, input, layout, "the gradient of bias");
    if (statistics.mean.size() == layout.channels &&
        statistics.inverse_std.size() == layout.channels) {
        return;
    }
    throw UsageError("sync_batch_norm: the statistics are of " +
                     std::to_string(statistics.mean.size()) + " channels, the input has " +
                     std::to_string(layout.channels) + "; pass what the forward of it returned");
}

}  // namespace

BatchNormStatistics sync_batch_norm_forward(const TensorView& input, const TensorView& output,
                                            const BatchNormState& state, ProcessGroup& group,
                                            const BatchNormOptions& options) {
    const Layout layout = layout_of(input);
    require_like(output, input, "the output");
    require_state(state, input, layout, options);
    require_whole_batches(group);
    Moments moments = moments_of_all(input, layout, group);
    if (moments.count == 1) {
        throw UsageError("sync_batch_norm: one value a channel, over all ranks, is no batch (" +
                         describe(input) + " on this rank); give more, or evaluate");
    }
    track(state, moments, options);
    for (double& m2 : moments.m2) {
        if (moments.count > 0) m2 /= static_cast<double>(moments.count);
    }
    BatchNormStatistics statistics{
        std::move(moments.mean), inverse_std_of(std::move(moments.m2), options.eps), moments.count};
    normalise(input, output, layout, state, statistics);
    return statistics;
}

BatchNormStatistics batch_norm_evaluate(const TensorView& input, const TensorView& output,
                                        const BatchNormState& state,
                                        const BatchNormOptions& options) {
    const Layout layout = layout_of(input);
    require_like(output, input, "the output");
    require_state(state, input, layout, options);
    if (!is_there(state.running_mean)) {
        throw UsageError(
            "batch_norm_evaluate: no running statistics to normalise with; give running_mean and "
            "running_var");
    }
    BatchNormStatistics statistics{
        numbers_of(state.running_mean, layout.channels, 0),
        inverse_std_of(numbers_of(state.running_var, layout.channels, 1), options.eps), 0};
    normalise(input, output, layout, state, statistics);
    return statistics;
}

void sync_batch_norm_backward(const TensorView& input, const BatchNormStatistics& statistics,
                              const BatchNormState& state, const BatchNormGradients& gradients,
                              ProcessGroup& group) {
    const Layout layout = layout_of(input);
    require_per_channel(state.weight, input, layout, "weight");
    require_gradients(gradients, input, layout, statistics);
    with_type(input.dtype, [&]<class T>(T*) {
        const auto* const values = static_cast<const T*>(input.data);
        const auto* const gradient = static_cast<const T*>(gradients.output.data);
        const GradientSums sums = sync_batch_norm::gradient_sums_of(
            gradient, values, layout, statistics.mean, statistics.inverse_std);
        if (is_there(gradients.input)) {
            const InputGradient by = input_gradient_of(sums, state.weight, statistics, group);
            write_input_gradient(gradient, values, static_cast<T*>(gradients.input.data), layout,
                                 statistics, by);
        }
        const auto add = [](const TensorView& to, const std::vector<double>& amounts) {
            if (!is_there(to)) return;
            update(to, [&](double old, std::size_t c) { return old + amounts[c]; });
        };
        add(gradients.weight, sums.normalised);
        add(gradients.bias, sums.gradient);
    });
}

}  // namespace ddp
