// ddp for LibTorch (1.13 and newer): optional and header-only. Link ddp::torch; no other header of
// ddp needs torch.
//
//     Net net;                                                       // TORCH_MODULE(Net)
//     ddp::libtorch::DistributedDataParallel model{net, group};      // all hold rank 0's weights
//     torch::optim::SGD optimizer{net->parameters(), 0.1};
//     optimizer.zero_grad();
//     auto loss = torch::nn::functional::cross_entropy(model(images), labels);
//     loss.backward();                                               // gradients are averages
//     optimizer.step();
#pragma once

#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/torch/distributed_sampler.hpp>
#include <ddp/torch/gradient_averager.hpp>
#include <ddp/torch/tensor.hpp>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <concepts>
#include <memory>
#include <utility>

namespace ddp::libtorch {

struct DistributedDataParallelOptions {
    ReducerOptions reducer = {};
    // Rank 0's buffers (a batch norm's running statistics) go to all ranks at the end of each
    // backward that averages. At construction they always do.
    bool broadcast_buffers = true;
};

namespace detail {

template <class Net>
concept TorchModule = std::derived_from<Net, torch::nn::Module>;

template <class Contained>
std::shared_ptr<Contained> share(const torch::nn::ModuleHolder<Contained>& holder) {
    return holder.ptr();
}
template <TorchModule Module>
std::shared_ptr<Module> share(const std::shared_ptr<Module>& module) {
    return module;
}
template <TorchModule Module>  // borrowed
std::shared_ptr<Module> share(Module& module) {
    return {std::shared_ptr<void>(), &module};
}

inline std::shared_ptr<GradientAverager> make_averager(
    const torch::nn::Module& module, ProcessGroup& group,
    const DistributedDataParallelOptions& options) {
    auto averager = std::make_shared<GradientAverager>(module, group, options.reducer,
                                                       options.broadcast_buffers);
    averager->add_hooks();
    return averager;
}

}  // namespace detail

// A module (borrowed: it must outlive the wrapper), a shared_ptr to one, or what TORCH_MODULE
// makes.
template <class Net>
concept TorchNet = requires(Net& net) {
    detail::share(net);
};

// A module whose loss.backward() leaves gradients averaged over all ranks, communication running
// while backward still computes. The module, its parameters and their names stay as they are: keep
// using the net, for the optimiser, torch::save and evaluation. The group must outlive the wrapper.
//
// Gradients, once computed, lie in the reducer's buckets; zero_grad() in either form and gradients
// reset to undefined are fine (undefined ones cost a copy in each backward). Parameters that do not
// require gradients are left out, a parameter with several names counts once. Not averaged: what
// torch::autograd::grad() returns, and second derivatives.
//
// What goes wrong while gradients are averaged is thrown by loss.backward(): the group's errors;
// UsageError that names a parameter without a gradient or with a sparse one. The wrapper cannot be
// used after a backward that threw.
template <TorchNet Net>
class DistributedDataParallel {
public:
    using Module = typename decltype(detail::share(std::declval<Net&>()))::element_type;

    // Collective. Rank 0's parameters and buffers go to all ranks; otherwise as Reducer's
    // constructor. Throws UsageError for a module that has a wrapper already, for one that has
    // nothing to average, and when the ranks' parameters differ, in memory format too.
    DistributedDataParallel(
        const Net& net, ProcessGroup& group,
        const DistributedDataParallelOptions& options = {}) requires(!detail::TorchModule<Net>)
        : module_(detail::share(net)), averager_(detail::make_averager(*module_, group, options)) {}
    DistributedDataParallel(
        Net& net, ProcessGroup& group,
        const DistributedDataParallelOptions& options = {}) requires detail::TorchModule<Net>
        : module_(detail::share(net)), averager_(detail::make_averager(*module_, group, options)) {}
    // Gradients stay, in memory of their own, and are this rank's alone from now on. Not during a
    // backward.
    ~DistributedDataParallel() { averager_->close(); }
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    template <class... Args>
    decltype(auto) forward(Args&&... args) {
        return (*this)->forward(std::forward<Args>(args)...);
    }
    template <class... Args>
    decltype(auto) operator()(Args&&... args) {
        return forward(std::forward<Args>(args)...);
    }
    // Throws UsageError when a parameter has got another shape, type or device since construction.
    Module* operator->() const {
        averager_->require_unchanged();
        return module_.get();
    }
    Module& module() const noexcept { return *module_; }

    // While it lives, backward averages nothing: gradients accumulate on this rank. The first
    // backward after it averages the sum. All ranks must do the same.
    class [[nodiscard]] NoSync {
    public:
        ~NoSync() { averager_.set_no_sync(false); }
        NoSync(const NoSync&) = delete;
        NoSync& operator=(const NoSync&) = delete;

    private:
        friend DistributedDataParallel;
        explicit NoSync(detail::GradientAverager& averager)
            : guard_(averager.reducer().no_sync()), averager_(averager) {
            averager_.set_no_sync(true);
        }
        Reducer::NoSync guard_;
        detail::GradientAverager& averager_;
    };
    NoSync no_sync() { return NoSync(*averager_); }  // UsageError when one lives already

    Reducer& reducer() noexcept { return averager_->reducer(); }

private:
    std::shared_ptr<Module> module_;
    std::shared_ptr<detail::GradientAverager> averager_;
};

}  // namespace ddp::libtorch
