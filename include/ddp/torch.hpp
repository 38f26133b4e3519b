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
#include <ddp/torch/detail/gradient_averager.hpp>
#include <ddp/torch/detail/module.hpp>
#include <ddp/torch/distributed_sampler.hpp>
#include <ddp/torch/no_sync.hpp>
#include <ddp/torch/sync_batch_norm.hpp>
#include <ddp/torch/tensor.hpp>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace ddp::libtorch {

struct DistributedDataParallelOptions {
    ReducerOptions reducer = {};
    // Instead of reducer.broadcast_buffers: rank 0's buffers (a batch norm's running statistics) go
    // to all ranks at the end of each backward that averages. At construction they always do.
    bool broadcast_buffers = true;
};

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
// require gradients are left out, a parameter with several names counts once. What
// torch::autograd::grad() returns is not averaged; a backward through it (a gradient penalty) is.
//
// What goes wrong while gradients are averaged is thrown by loss.backward(): the group's errors;
// UsageError that names a parameter without a gradient, with a sparse one, or with one that is part
// of a graph (create_graph). The wrapper cannot be used after a backward that threw.
//
// With logical_ranks (see ReducerOptions) each turn is a forward and a backward; averaged() says
// when to step. Torch's default generators, which dropout draws from, belong to the logical rank:
// number l begins with rank 0's seed + 1 + l.
template <TorchNet Net>
class DistributedDataParallel {
public:
    // The module's class.
    using Module = typename decltype(detail::share(std::declval<Net&>()))::element_type;

    // Collective. Rank 0's parameters and buffers go to all ranks; otherwise as Reducer's
    // constructor. Throws UsageError for a module that has a wrapper already, for one that has
    // nothing to average, and when the ranks' parameters differ, in memory format too.
    DistributedDataParallel(
        const Net& net, ProcessGroup& group,
        const DistributedDataParallelOptions& options = {}) requires(!detail::TorchModule<Net>)
        : module_(detail::share(net)), averager_(make_averager(*module_, group, options)) {}
    DistributedDataParallel(
        Net& net, ProcessGroup& group,
        const DistributedDataParallelOptions& options = {}) requires detail::TorchModule<Net>
        : module_(detail::share(net)), averager_(make_averager(*module_, group, options)) {}
    // Gradients stay, in memory of their own, and are this rank's alone from now on. Not during a
    // backward.
    ~DistributedDataParallel() { averager_->close(); }
    DistributedDataParallel(const DistributedDataParallel&) = delete;
    DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

    // find_unused_parameters, and layers whose backward runs a backward of its own (checkpointing),
    // need the output's tensors from here: as a tensor, or in tuples, ranges and optionals.
    template <class... Args>
    decltype(auto) forward(Args&&... args) {
        decltype(auto) output = (*this)->forward(std::forward<Args>(args)...);
        averager_->prepare_for_backward(output);
        return output;
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
    // For a net that was called in another way: what backward() will be called on, or tensors that
    // it is computed from.
    template <class Output>
    void prepare_for_backward(const Output& output) {
        averager_->prepare_for_backward(output);
    }
    // Whether the last backward left averages: time for the optimiser. Not under no_sync, nor
    // before the last logical rank of this rank had its turn.
    bool averaged() const noexcept { return averager_->averaged(); }

    NoSync no_sync() { return NoSync(averager_->reducer()); }  // UsageError when one lives already

    // Ranks with different numbers of batches: see Reducer::join. A step is its first backward
    // outside of no_sync.
    void join(const std::function<void()>& train, const JoinOptions& options = {}) {
        averager_->reducer().join(train, options);
    }

    // For a checkpoint, beside the net's: see Reducer::state_dict. With logical_ranks it has the
    // generators' state. Both are collective; load_state_dict() comes after the net was loaded.
    std::vector<NamedTensor> state_dict() { return averager_->reducer().state_dict(); }
    void load_state_dict() { averager_->reducer().load_state_dict(); }

    Reducer& reducer() noexcept { return averager_->reducer().reducer(); }  // what averages

private:
    static std::shared_ptr<detail::GradientAverager> make_averager(
        const Module& module, ProcessGroup& group, const DistributedDataParallelOptions& options) {
        ReducerOptions of_reducer = options.reducer;
        of_reducer.broadcast_buffers = options.broadcast_buffers;
        of_reducer.gradient_as_bucket_view =
            of_reducer.gradient_as_bucket_view.value_or(!of_reducer.reduce_in_float32);
        auto averager = std::make_shared<detail::GradientAverager>(module, group, of_reducer);
        averager->add_hooks();
        return averager;
    }

    std::shared_ptr<Module> module_;
    std::shared_ptr<detail::GradientAverager> averager_;
};

}  // namespace ddp::libtorch
