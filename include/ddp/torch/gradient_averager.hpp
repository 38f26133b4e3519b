// What DistributedDataParallel keeps beside the module: a Reducer, and how autograd reaches it. Not
// for users.
//
// A gradient is complete when its AccumulateGrad node has run: a hook on that node brings the
// gradient into the reducer's memory and marks it ready. The first hook of a backward asks the
// engine for a callback at its end, which waits for the averages. The gradient tensors that torch
// sees are `Gradient::view`s: their storage follows the memory that the reducer gives them.
#pragma once

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>
#include <ddp/process_group.hpp>
#include <ddp/reducer.hpp>
#include <ddp/torch/gradient.hpp>
#include <ddp/torch/gradient_hook.hpp>
#include <ddp/torch/module_state.hpp>
#include <ddp/torch/stream.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

class GradientAverager : public std::enable_shared_from_this<GradientAverager> {
public:
    // Collective: see DistributedDataParallel's constructor.
    GradientAverager(const torch::nn::Module& module, ProcessGroup& group,
                     const ReducerOptions& options, bool with_buffers)
        : group_(group) {
        ModuleState state = collect_state(module);
        gradients_ = std::move(state.gradients);
        for (const Gradient& gradient : gradients_) parameters_.push_back(gradient.to_parameter());
        reducer_.emplace(parameters_, group, options);
        follow_reducer();
        require_same_strides(gradients_, group);
        broadcast_all(state.frozen, group);
        broadcast_all(state.buffers, group);
        if (with_buffers) buffers_ = std::move(state.buffers);
    }
    ~GradientAverager() { close(); }
    GradientAverager(const GradientAverager&) = delete;
    GradientAverager& operator=(const GradientAverager&) = delete;

    // Apart from the constructor: hooks refer to their owner weakly.
    void add_hooks() {
        for (std::size_t i = 0; i < gradients_.size(); ++i) {
            hooks_.push_back(gradients_[i].accumulator->add_post_hook(
                std::make_unique<GradientHook>(weak_from_this(), [this, i] { on_gradient(i); })));
        }
    }

    // Afterwards gradients stay on this rank, in memory of their own.
    void close() {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = 0; i < hooks_.size(); ++i) {
            gradients_[i].accumulator->del_post_hook(hooks_[i]);
        }
        hooks_.clear();
        reducer_.reset();
        for (Gradient& gradient : gradients_) gradient.leave_reducer();
    }

    // Torch gives a changed parameter a new accumulator, without hooks: gradients would silently
    // stay on this rank.
    void require_unchanged() const {
        for (const Gradient& gradient : gradients_) gradient.require_unchanged();
    }

    // The gradient of parameter `index` is complete.
    void on_gradient(std::size_t index) {
        const std::lock_guard lock(mutex_);
        if (!reducer_ || no_sync_) return;
        const bool first = backward_.expired();
        if (first) start_backward();
        gradients_[index].bring_to(parameters_[index]);
        reducer_->mark_ready(index, current_stream(parameters_[index].grad.device));
        if (first) follow_reducer();
    }

    Reducer& reducer() { return *reducer_; }
    void set_no_sync(bool on) { no_sync_ = on; }

private:
    // The engine drops its callbacks when a backward throws; then `backward_` expires unfinished.
    void start_backward() {
        if (unfinished_) {
            throw UsageError(
                "libtorch: an earlier backward ended by an exception, so gradients of this rank "
                "are no longer in step with the other ranks'; end the worker, or wrap the module "
                "anew on all ranks");
        }
        const auto token = std::make_shared<int>();
        torch::autograd::Engine::get_default_engine().queue_callback(
            [self = shared_from_this(), token] { self->finish_backward(); });
        backward_ = token;
        unfinished_ = true;
    }

    void finish_backward() {
        const std::lock_guard lock(mutex_);
        backward_.reset();
        if (!reducer_) return;
        try {
            reducer_->wait(current_stream(parameters_.front().grad.device));
        } catch (...) {
            follow_reducer();  // it may throw after a move
            throw;
        }
        follow_reducer();
        // Now, not before the next forward: the adapter does not see net->forward().
        broadcast_all(buffers_, group_);
        unfinished_ = false;
    }

    // The reducer may move gradients when a backward begins and when it ends.
    void follow_reducer() {
        for (std::size_t i = 0; i < gradients_.size(); ++i) gradients_[i].follow(parameters_[i]);
    }

    ProcessGroup& group_;
    std::mutex mutex_;  // hooks run on one thread a device
    std::vector<Gradient> gradients_;
    std::vector<Parameter> parameters_;  // by gradient; the reducer re-points their memory
    std::optional<Reducer> reducer_;
    std::vector<torch::Tensor> buffers_;
    std::vector<std::uintptr_t> hooks_;  // by gradient
    std::weak_ptr<int> backward_;        // alive while the engine holds our callback
    bool unfinished_ = false;
    bool no_sync_ = false;
};

}  // namespace ddp::libtorch::detail
