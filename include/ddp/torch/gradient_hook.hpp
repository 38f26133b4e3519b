// The hook that autograd calls when a parameter's gradient is complete. Not for users.
#pragma once

#include <ddp/error.hpp>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace ddp::libtorch::detail {

// A backward may hold the node that owns the hook for longer than the owner lives: then the hook
// does nothing.
class GradientHook final : public torch::autograd::FunctionPostHook {
public:
    GradientHook(std::weak_ptr<const void> owner, std::function<void()> on_gradient)
        : owner_(std::move(owner)), on_gradient_(std::move(on_gradient)) {}

    torch::autograd::variable_list operator()(
        const torch::autograd::variable_list& outputs,
        const torch::autograd::variable_list& /*inputs*/) override {
        if (const auto alive = owner_.lock()) on_gradient_();
        return outputs;
    }
    bool is_live() const { return !owner_.expired(); }

private:
    std::weak_ptr<const void> owner_;
    std::function<void()> on_gradient_;
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
