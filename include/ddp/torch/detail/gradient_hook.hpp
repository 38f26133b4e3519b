// The hooks on the node that adds to a parameter's gradient: before it does, and after. Not for
// users.
#pragma once

#include <ddp/error.hpp>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddp::libtorch::detail {

// A backward may hold the node that owns the hooks for longer than their owner lives: then they do
// nothing.
class OwnedCall {
public:
    OwnedCall(std::weak_ptr<const void> owner, std::function<void()> call)
        : owner_(std::move(owner)), call_(std::move(call)) {}
    void operator()() const {
        if (const auto alive = owner_.lock()) call_();
    }
    bool is_live() const { return !owner_.expired(); }

private:
    std::weak_ptr<const void> owner_;
    std::function<void()> call_;
};

class BeforeGradientHook final : public torch::autograd::FunctionPreHook {
public:
    explicit BeforeGradientHook(OwnedCall call) : call_(std::move(call)) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& gradients) override {
        call_();
        return gradients;
    }

private:
    OwnedCall call_;
};

class GradientHook final : public torch::autograd::FunctionPostHook {
public:
    explicit GradientHook(OwnedCall call) : call_(std::move(call)) {}
    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
        call_();
        return outputs;
    }
    bool is_live() const { return call_.is_live(); }

private:
    OwnedCall call_;
};

// Both hooks of a parameter, while it lives.
class GradientHooks {
public:
    // Torch's kind of pointer to a node depends on its version.
    using Accumulator = decltype(torch::autograd::impl::grad_accumulator(torch::Tensor()));

    GradientHooks(Accumulator accumulator, OwnedCall before, OwnedCall after)
        : accumulator_(std::move(accumulator)) {
        auto hook = std::make_unique<BeforeGradientHook>(std::move(before));
        before_ = hook.get();
        accumulator_->add_pre_hook(std::move(hook));
        after_ = accumulator_->add_post_hook(std::make_unique<GradientHook>(std::move(after)));
    }
    GradientHooks(GradientHooks&&) noexcept = default;
    GradientHooks& operator=(GradientHooks&&) = delete;
    ~GradientHooks() {
        if (!accumulator_) return;
        accumulator_->del_post_hook(after_);
        std::erase_if(accumulator_->pre_hooks(),
                      [&](const auto& hook) { return hook.get() == before_; });
    }

private:
    Accumulator accumulator_;
    const torch::autograd::FunctionPreHook* before_ = nullptr;
    std::uintptr_t after_ = 0;
};

// Throws UsageError when the parameter whose gradient the node accumulates has a live hook.
inline void require_unwrapped(const torch::autograd::Node& accumulator, const std::string& name) {
    for (const auto& hook : accumulator.post_hooks()) {
        const auto* ours = dynamic_cast<const GradientHook*>(hook.get());
        if (ours == nullptr || !ours->is_live()) continue;
        throw UsageError("libtorch: parameter " + name +
                         " belongs to another DistributedDataParallel already; wrap a module "
                         "once, or end the other wrapper first");
    }
}

}  // namespace ddp::libtorch::detail
