// The batches of all ranks normalised as one, by torch's operators, with its gradient. Not for
// users.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/sync_batch_norm.hpp>
#include <ddp/torch/detail/batch_of_ranks.hpp>
#include <ddp/torch/detail/stream.hpp>
#include <ddp/torch/tensor.hpp>

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/types.h>

#include <cstdint>
#include <tuple>
#include <vector>

namespace ddp::libtorch::detail {

// For operators on an input: [1, channels, 1, ...] of its type.
inline torch::Tensor beside(const torch::Tensor& input, const torch::Tensor& of_channels) {
    std::vector<std::int64_t> sizes(static_cast<std::size_t>(input.dim()), 1);
    sizes[1] = of_channels.size(0);
    return of_channels.to(input.scalar_type()).view(sizes);
}

// What both directions know.
struct BatchNormPass : torch::CustomClassHolder {
    BatchNormPass(ProcessGroup& of_ranks, double epsilon) : group(of_ranks), eps(epsilon) {}

    ProcessGroup& group;
    double eps;
    BatchOfRanks batch;
    bool input_needs_gradient = false;
};
using BatchNormPassPtr = c10::intrusive_ptr<BatchNormPass>;

// Gradients of weight and bias, and perhaps of the input. Apart from the forward's node, so that a
// derivative of these gradients is refused and not left out.
class BatchNormGradient : public torch::autograd::Function<BatchNormGradient> {
public:
    static torch::autograd::variable_list forward(torch::autograd::AutogradContext* /*context*/,
                                                  const torch::Tensor& gradient,
                                                  const torch::Tensor& input,
                                                  const torch::Tensor& weight,
                                                  const BatchNormPassPtr& pass) {
        const torch::Tensor x = in_full_precision(input);
        const torch::Tensor dy = in_full_precision(gradient).contiguous(x.suggest_memory_format());
        const torch::Tensor mean = pass->batch.mean.to(x.scalar_type());
        const torch::Tensor variance = pass->batch.variance();
        torch::Tensor of_weight = torch::zeros_like(mean);
        torch::Tensor of_bias = torch::zeros_like(mean);
        if (x.numel() > 0) {
            std::tie(std::ignore, of_weight, of_bias) = torch::native_batch_norm_backward(
                dy, x, {}, mean, variance.to(x.scalar_type()), {}, {}, /*train=*/false, pass->eps,
                {false, true, true});
        }
        torch::autograd::variable_list gradients{of_weight.to(weight.scalar_type()),
                                                 of_bias.to(weight.scalar_type())};
        if (!pass->input_needs_gradient) return gradients;
        const torch::Tensor sums =
            torch::cat({of_bias.to(torch::kFloat64), of_weight.to(torch::kFloat64)});
        const Stream stream = current_stream(tensor_device(sums));
        all_reduce_gradient_sums(view(sums), pass->group, stream).wait(stream);
        const auto averages = (sums / pass->batch.count).view({2, -1});
        const torch::Tensor inverse_std = (variance + pass->eps).rsqrt();
        torch::Tensor of_input = (x - beside(x, pass->batch.mean))
                                     .mul_(beside(x, averages[1] * inverse_std))
                                     .neg_()
                                     .add_(dy)
                                     .sub_(beside(x, averages[0]));
        of_input.mul_(beside(x, inverse_std * weight.to(torch::kFloat64)));
        gradients.push_back(of_input.to(input.scalar_type()));
        return gradients;
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* /*context*/,
        const torch::autograd::variable_list& /*gradients*/) {
        throw UsageError(
            "libtorch: SyncBatchNorm has no second derivative; leave it out of what a gradient "
            "penalty goes through");
    }
};

class BatchNormOfRanks : public torch::autograd::Function<BatchNormOfRanks> {
public:
    static torch::Tensor forward(torch::autograd::AutogradContext* context,
                                 const torch::Tensor& input, const torch::Tensor& weight,
                                 const torch::Tensor& bias, const BatchNormPassPtr& pass) {
        pass->input_needs_gradient = input.requires_grad();
        context->save_for_backward({input, weight});
        context->saved_data["pass"] = at::IValue::make_capsule(pass);
        if (input.numel() == 0) return torch::empty_like(input);
        const torch::Tensor x = in_full_precision(input);
        const auto as_x = [&x](const torch::Tensor& tensor) { return tensor.to(x.scalar_type()); };
        return std::get<0>(torch::native_batch_norm(x, as_x(weight), as_x(bias),
                                                    as_x(pass->batch.mean),
                                                    as_x(pass->batch.variance()),
                                                    /*training=*/false, 0, pass->eps))
            .to(input.scalar_type());
    }
    static torch::autograd::variable_list backward(
        torch::autograd::AutogradContext* context,
        const torch::autograd::variable_list& gradients) {
        const auto saved = context->get_saved_variables();
        const auto pass = c10::static_intrusive_pointer_cast<BatchNormPass>(
            context->saved_data["pass"].toCapsule());
        const auto made = BatchNormGradient::apply(gradients[0], saved[0], saved[1], pass);
        return {made.size() > 2 ? made[2] : torch::Tensor(), made[0], made[1], torch::Tensor()};
    }
};

}  // namespace ddp::libtorch::detail
