// One parameter's gradient, between torch and the Reducer. Not for users.
//
// Torch's gradient is, once a backward has run, `view`: a tensor over the memory that the reducer
// gave the parameter, of which there is no other. When that memory moves, the storage under the
// tensor is switched, so that each handle that a program holds moves along.
#pragma once

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>
#include <ddp/torch/detail/tensor_memory.hpp>
#include <ddp/torch/tensor.hpp>

#include <c10/core/Storage.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <cstdint>
#include <string>
#include <utility>

namespace ddp::libtorch::detail {

struct Gradient {
    Gradient(std::string name_, const torch::Tensor& value_)
        : name(std::move(name_)),
          value(require_sendable(name, value_)),
          view(without_memory(value_)),
          accumulator(torch::autograd::impl::grad_accumulator(value_)) {
        if (is_defined()) require_matching(value.grad());
    }
    Gradient(Gradient&&) noexcept = default;
    Gradient& operator=(Gradient&&) = delete;
    ~Gradient() = default;

    // In copying mode the gradient has memory of its own from now on, in which the reducer finds
    // it; else once the reducer has made some.
    Parameter to_parameter(bool views) {
        if (!views) take_memory(is_defined() ? value.grad() : torch::zeros_like(view));
        if (!views && is_defined()) value.mutable_grad() = view;
        return {name, memory_view(value), memory_view(view)};
    }

    // Makes torch's gradient, which there is, the view: no copy when it is already.
    void bring_to(Parameter& parameter) {
        follow(parameter);
        torch::Tensor& grad = value.mutable_grad();
        require_matching(grad);
        if (grad.data_ptr() == view.data_ptr() && grad.strides() == view.strides()) return;
        const torch::NoGradGuard no_grad;
        view.copy_(grad);
        grad = view;
    }
    // For a backward that may not come here: the view holds torch's gradient, zeros for none.
    void bring_or_zero(Parameter& parameter) {
        if (is_defined()) return bring_to(parameter);
        follow(parameter);
        const torch::NoGradGuard no_grad;
        view.zero_();
    }

    // The reducer may have moved the gradient, torch the value.
    void follow(Parameter& parameter) {
        parameter.value.data = value.data_ptr();
        if (parameter.grad.data == storage().data()) return;
        storage().set_data_ptr({parameter.grad.data, view.device()});
    }

    bool is_defined() const { return value.grad().defined(); }
    // Whether torch sees the view, or no gradient at all.
    void set_defined(bool defined) { value.mutable_grad() = defined ? view : torch::Tensor(); }

    // Throws UsageError when the parameter is no longer what the module was wrapped with.
    void require_unchanged() const {
        if (value.sizes() == view.sizes() && value.scalar_type() == view.scalar_type() &&
            value.device() == view.device()) {
            return;
        }
        throw UsageError("libtorch: parameter " + name + " is " + describe(value) + ", but was " +
                         describe(view) +
                         " when the module was wrapped; change a module before, not after");
    }

    // The reducer's memory is about to go: what a program still sees gets memory of its own.
    void leave_reducer() {
        if (!view.defined() || owns_memory_) return;
        if (view.use_count() == 1 && view.storage().use_count() == 1) return view.reset();
        try {
            take_memory(view);
        } catch (const c10::Error& error) {  // no memory, or a GPU that does nothing more
            storage().set_data_ptr({nullptr, view.device()});
            if (is_defined()) set_defined(false);
            TORCH_WARN("the values of the gradient of ", name, " are lost: ", error.what());
        }
    }

    std::string name;
    torch::Tensor value;
    torch::Tensor view;
    // The parameter itself holds it weakly. (Torch's kind of pointer depends on its version.)
    decltype(torch::autograd::impl::grad_accumulator(torch::Tensor())) accumulator;

private:
    c10::StorageImpl& storage() const { return *view.storage().unsafeGetStorageImpl(); }

    // The view has the elements' values from now on, in memory that it owns.
    void take_memory(const torch::Tensor& elements) {
        storage().set_data_ptr(memory_for(view, elements));
        owns_memory_ = true;
    }

    static const torch::Tensor& require_sendable(const std::string& name,
                                                 const torch::Tensor& value) {
        try {
            static_cast<void>(memory_view(value));
        } catch (const UsageError& error) {
            throw UsageError("libtorch: parameter " + name +
                             " cannot be averaged: " + error.what());
        }
        return value;
    }

    bool owns_memory_ = false;  // not the reducer's

    void require_matching(const torch::Tensor& grad) const {
        const std::string what = "libtorch: the gradient of " + name + " is ";
        if (grad.layout() != torch::kStrided) {
            throw UsageError(what + "sparse, which cannot be averaged; use dense gradients " +
                             "(EmbeddingOptions::sparse(false))");
        }
        if (grad.requires_grad()) {
            throw UsageError(what +
                             "part of a graph (backward with create_graph), which averages " +
                             "are not; get it from torch::autograd::grad(..., create_graph) and " +
                             "call backward on what you make of it");
        }
        if (grad.sizes() == view.sizes() && grad.scalar_type() == view.scalar_type() &&
            grad.device() == view.device()) {
            return;
        }
        throw UsageError(what + describe(grad) + ", not " + describe(view) +
                         " as the parameter when the module was wrapped");
    }
};

}  // namespace ddp::libtorch::detail
