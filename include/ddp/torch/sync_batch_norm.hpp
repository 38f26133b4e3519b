// SyncBatchNorm for LibTorch: batch norm over the batches of all ranks, as if they were one.
// Source: torch.nn.SyncBatchNorm and its convert_sync_batchnorm; computed as sync_batch_norm.hpp
// says, which has more on order, groups and errors.
//
//     torch::nn::Sequential net(torch::nn::Conv2d(3, 8, 3), torch::nn::BatchNorm2d(8));
//     ddp::libtorch::convert_sync_batchnorm(net, group);       // before it is wrapped
//     ddp::libtorch::DistributedDataParallel model{net, group};
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/sync_batch_norm.hpp>
#include <ddp/torch/detail/batch_norm_of_ranks.hpp>
#include <ddp/torch/detail/module.hpp>
#include <ddp/torch/detail/replace_batch_norms.hpp>
#include <ddp/torch/tensor.hpp>

#include <c10/util/StringUtil.h>
#include <torch/nn/functional/batchnorm.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <memory>
#include <ostream>
#include <string>

namespace ddp::libtorch {

// As torch::nn::BatchNorm1d, 2d and 3d in one: input [samples, channels, ...] of any floating type
// (statistics of half types in float32), on the CPU or on group.device(); the same options,
// parameters, buffers and names. In training each forward is one collective of the group, and each
// backward that a gradient of the input comes of is one; all ranks do both equally often, a rank
// with an empty batch too. In evaluation, with a group of one and without a group it is torch's own
// batch norm. Not inside join() once a rank has run out of batches.
//
// The group is borrowed: it outlives the module's use and each graph that it is part of. Throws
// UsageError as sync_batch_norm.hpp says, and in a backward through gradients (create_graph).
class SyncBatchNormImpl
    : public torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions> {
    using Base = torch::nn::NormImplBase<0, SyncBatchNormImpl, torch::nn::BatchNormOptions>;

public:
    // Without a group until convert_sync_batchnorm gives it one.
    explicit SyncBatchNormImpl(const torch::nn::BatchNormOptions& of) : Base(of) {}
    SyncBatchNormImpl(const torch::nn::BatchNormOptions& of, ProcessGroup& group)
        : Base(of), group_(&group) {}
    // In place of a torch::nn::BatchNorm: its options and mode, the same tensors as parameters and
    // the same memory of buffers.
    template <detail::TorchModule BatchNorm>
    SyncBatchNormImpl(const BatchNorm& replaced, ProcessGroup& group)
        : Base(replaced.options), group_(&group) {
        weight = parameters_["weight"] = replaced.weight;
        bias = parameters_["bias"] = replaced.bias;
        train(replaced.is_training());
        if (!options.track_running_stats()) return;
        running_mean.set_data(replaced.running_mean);
        running_var.set_data(replaced.running_var);
        num_batches_tracked.set_data(replaced.num_batches_tracked);
    }

    ProcessGroup* group() const { return group_; }            // null: none
    void set_group(ProcessGroup& group) { group_ = &group; }  // outlives it
    // [samples, channels, ...], normalised by all ranks' batches while it trains.
    torch::Tensor forward(const torch::Tensor& input) {
        _check_input_dim(input);
        if (!is_training() || group_ == nullptr) return alone(input);
        require_whole_batches(*group_);
        if (group_->size() == 1) return alone(input);
        const auto pass = c10::make_intrusive<detail::BatchNormPass>(*group_, options.eps());
        {
            const torch::NoGradGuard no_grad;
            pass->batch = detail::gather_batch(input, *group_);
            track(pass->batch);
        }
        const auto numbers = torch::TensorOptions(input.device()).dtype(torch::kFloat32);
        return detail::BatchNormOfRanks::apply(
            input, weight.defined() ? weight : torch::ones({options.num_features()}, numbers),
            bias.defined() ? bias : torch::zeros({options.num_features()}, numbers), pass);
    }

    void pretty_print(std::ostream& stream) const override {
        const auto momentum = options.momentum();
        stream << std::boolalpha << "ddp::libtorch::SyncBatchNorm(" << options.num_features()
               << ", eps=" << options.eps()
               << ", momentum=" << (momentum.has_value() ? c10::str(*momentum) : "None")
               << ", affine=" << options.affine()
               << ", track_running_stats=" << options.track_running_stats() << ")";
    }

protected:
    void _check_input_dim(const torch::Tensor& input) override {
        if (input.dim() >= 2 && input.size(1) == options.num_features()) return;
        throw UsageError("libtorch: SyncBatchNorm of " + std::to_string(options.num_features()) +
                         " channels got " + describe(input) +
                         "; it takes [samples, channels, ...]");
    }

private:
    // The part of this batch in the running statistics.
    double count_batch() {
        if (num_batches_tracked.defined()) num_batches_tracked += 1;
        if (options.momentum().has_value()) return *options.momentum();
        return num_batches_tracked.defined() ? 1 / num_batches_tracked.item<double>() : 0;
    }
    torch::Tensor alone(const torch::Tensor& input) {
        const bool counts = is_training() && options.track_running_stats();
        return torch::nn::functional::detail::batch_norm(
            input, running_mean, running_var, weight, bias,
            is_training() || !options.track_running_stats(), counts ? count_batch() : 0,
            options.eps());
    }
    void track(const detail::BatchOfRanks& batch) {
        if (!options.track_running_stats()) return;
        const double part = count_batch();
        const auto move = [part](torch::Tensor& running, const torch::Tensor& now) {
            running.copy_(running.to(torch::kFloat64) * (1 - part) + now * part);
        };
        if (batch.is_empty) return;
        move(running_mean, batch.mean);
        move(running_var, batch.m2 / (batch.count - 1));
    }

    ProcessGroup* group_ = nullptr;
};
class SyncBatchNorm : public torch::nn::ModuleHolder<SyncBatchNormImpl> {
public:
    using torch::nn::ModuleHolder<SyncBatchNormImpl>::ModuleHolder;
    using Impl = SyncBatchNormImpl;  // as TORCH_MODULE's
};

// Puts a SyncBatchNorm in the place of each torch::nn::BatchNorm1d, 2d and 3d in the module, with
// its name, options, mode, parameters and buffers. One that is already there and has no group gets
// this one. Returns the module, or, if it is a batch norm itself, its successor.
//
// C++ has no way to replace what a member of a module's class holds, and that would go on being
// called: UsageError, before anything is changed, for a batch norm that something else holds than a
// Sequential, ModuleList or ModuleDict or the list of submodules. Declare such a member as
// SyncBatchNorm. (A ModuleList's or ModuleDict's elements are then called as that type.)
template <class Net>
std::shared_ptr<torch::nn::Module> convert_sync_batchnorm(
    const Net& net, ProcessGroup& group) requires(!detail::TorchModule<Net>) {
    return detail::Conversion<SyncBatchNormImpl>(group).convert(detail::share(net));
}
inline std::shared_ptr<torch::nn::Module> convert_sync_batchnorm(torch::nn::Module& module,
                                                                 ProcessGroup& group) {
    return detail::Conversion<SyncBatchNormImpl>(group).convert(detail::share(module));
}

}  // namespace ddp::libtorch
