// How autograd reaches the reducer of a wrapped module. Not for users.
//
// A gradient is complete when its AccumulateGrad node has run: a hook on that node marks it ready.
// The first hook of a backward asks the engine for a callback at its end, which waits for the
// averages; hooks on what model(...) returned ask earlier, so that a backward within the backward
// (of a checkpointed layer) does not get the callback for itself.
#pragma once

#include <ddp/error.hpp>
#include <ddp/process_group.hpp>
#include <ddp/torch/detail/gradient_hook.hpp>
#include <ddp/torch/detail/graph.hpp>
#include <ddp/torch/detail/module_state.hpp>
#include <ddp/torch/detail/torch_reducer.hpp>

#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
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
                     const ReducerOptions& options)
        : reducer_(std::in_place, collect_state(module), group, options) {}
    ~GradientAverager() { close(); }
    GradientAverager(const GradientAverager&) = delete;
    GradientAverager& operator=(const GradientAverager&) = delete;

    // Apart from the constructor: hooks refer to their owner weakly.
    void add_hooks() {
        for (std::size_t i = 0; i < reducer_->gradients().size(); ++i) {
            hooks_.emplace_back(reducer_->gradients()[i].accumulator,
                                OwnedCall(weak_from_this(), [this] { start(); }),
                                OwnedCall(weak_from_this(), [this, i] { on_gradient(i); }));
        }
    }

    // Afterwards gradients stay on this rank, in memory of their own.
    void close() {
        const std::lock_guard lock(mutex_);
        hooks_.clear();
        reducer_.reset();
    }

    TorchReducer& reducer() { return *reducer_; }
    bool averaged() const { return averaged_; }

    // Torch gives a changed parameter a new accumulator, without hooks: gradients would silently
    // stay on this rank.
    void require_unchanged() const {
        for (const Gradient& gradient : reducer_->gradients()) gradient.require_unchanged();
    }

    // A backward may begin at these tensors.
    template <class Output>
    void prepare_for_backward(const Output& output) {
        if (!torch::GradMode::is_enabled()) return;
        visit_tensors(output, [this](const torch::Tensor& tensor) {
            if (!tensor.requires_grad()) return;
            reducer_->add_output(tensor);
            if (tensor.is_leaf()) return;
            tensor.register_hook([weak = weak_from_this()](const torch::Tensor& /*gradient*/) {
                if (const auto self = weak.lock()) self->expect_end();
            });
        });
    }

private:
    void expect_end() {
        const std::lock_guard lock(mutex_);
        if (reducer_) queue_end();
    }

    // The engine drops its callbacks when a backward throws; then `backward_` expires unfinished.
    void queue_end() {
        if (!backward_.expired()) return;
        if (started_) {
            throw UsageError(
                "libtorch: an earlier backward ended by an exception, so gradients of this rank "
                "are no longer in step with the other ranks'; end the worker, or wrap the module "
                "anew on all ranks");
        }
        const auto token = std::make_shared<int>();
        torch::autograd::Engine::get_default_engine().queue_callback(
            [self = shared_from_this(), token] { self->finish(); });
        backward_ = token;
    }

    // The first gradient of a backward is about to be added.
    void start() {
        const std::lock_guard lock(mutex_);
        if (!reducer_) return;
        queue_end();
        if (std::exchange(started_, true)) return;
        averaged_ = false;
        reducer_->start_backward();
    }

    void on_gradient(std::size_t index) {
        const std::lock_guard lock(mutex_);
        if (reducer_) reducer_->mark_ready(index);
    }

    // Of a backward that came to no parameter too: torch::autograd::grad().
    void finish() {
        const std::lock_guard lock(mutex_);
        backward_.reset();
        if (!reducer_ || !started_) return;
        averaged_ = reducer_->wait();
        started_ = false;
    }

    std::mutex mutex_;  // hooks run on one thread a device
    std::optional<TorchReducer> reducer_;
    std::vector<GradientHooks> hooks_;
    std::weak_ptr<int> backward_;  // alive while the engine holds our callback
    bool started_ = false;         // and not finished
    bool averaged_ = false;
};

}  // namespace ddp::libtorch::detail
