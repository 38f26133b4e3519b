// One parameter's gradient, between torch and the Reducer. Not for users.
//
// Torch's gradient is, once a backward has run, `view`: a tensor over the memory that the reducer
// gave the parameter. When that memory moves, the storage under the tensor is switched, so that
// each handle that a program holds moves along.
#pragma once

#include <ddp/error.hpp>
#include <ddp/parameter.hpp>
#include <ddp/torch/tensor.hpp>

#include <c10/core/Storage.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <string>
#include <utility>

namespace ddp::libtorch::detail {

// Zeroed memory of the tensor's size. On the CPU its pages come into being when they are touched:
// a reducer in views mode reads them once and uses its buckets instead.
inline c10::DataPtr allocate_like(const torch::Tensor& tensor) {
    if (tensor.is_cpu()) {
        void* memory = std::calloc(std::max<std::size_t>(tensor.nbytes(), 1), 1);
        if (memory == nullptr) throw std::bad_alloc();
        return {memory, memory, &std::free, tensor.device()};
    }
    auto owner = std::make_unique<torch::Tensor>(torch::zeros_like(tensor));
    void* memory = owner->data_ptr();
    return {memory, owner.release(), [](void* old) { delete static_cast<torch::Tensor*>(old); },
            tensor.device()};
}

struct Gradient {
    Gradient(std::string name_, const torch::Tensor& value_)
        : name(std::move(name_)),
          value(require_sendable(name, value_)),
          accumulator(torch::autograd::impl::grad_accumulator(value_)),
          home(allocate_like(value_)) {
        view = torch::from_blob(home.get(), value.sizes(), value.strides(),
                                value.options().requires_grad(false));
        if (!value.grad().defined()) return;
        const torch::NoGradGuard no_grad;
        require_matching(value.grad());
        view.copy_(value.grad());
        value.mutable_grad() = view;
    }
    Gradient(Gradient&&) noexcept = default;
    Gradient& operator=(Gradient&&) = delete;
    ~Gradient() { leave_reducer(); }

    Parameter to_parameter() const {
        TensorView grad = memory_view(view);
        grad.data = home.get();  // also where there are no elements
        return {name, memory_view(value), grad};
    }

    // Makes torch's gradient the view, its elements the parameter's: no copy when it is already.
    void bring_to(Parameter& parameter) {
        const torch::NoGradGuard no_grad;
        follow(parameter);
        parameter.value.data = value.data_ptr();
        torch::Tensor& grad = value.mutable_grad();
        if (!grad.defined()) {
            view.zero_();
        } else {
            require_matching(grad);
            if (grad.data_ptr() == view.data_ptr() && grad.strides() == view.strides()) return;
            view.copy_(grad);
        }
        grad = view;
    }

    // The reducer may have moved the memory.
    void follow(const Parameter& parameter) {
        if (parameter.grad.data == storage().data()) return;
        storage().set_data_ptr({parameter.grad.data, view.device()});
    }

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

    // The reducer is gone and has put the elements back to where they were: torch's gradient owns
    // them from now on.
    void leave_reducer() {
        if (!view.defined() || home.get() == nullptr) return;
        storage().set_data_ptr(std::exchange(home, c10::DataPtr()));
    }

    std::string name;
    torch::Tensor value;
    torch::Tensor view;
    // The parameter itself holds it weakly. (Torch's kind of pointer depends on its version.)
    decltype(torch::autograd::impl::grad_accumulator(torch::Tensor())) accumulator;
    c10::DataPtr home;  // what the reducer was given; in copying mode, the gradient's memory

private:
    c10::StorageImpl& storage() const { return *view.storage().unsafeGetStorageImpl(); }

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

    void require_matching(const torch::Tensor& grad) const {
        const std::string what = "libtorch: the gradient of " + name + " is ";
        if (grad.layout() != torch::kStrided) {
            throw UsageError(what + "sparse, which cannot be averaged; use dense gradients " +
                             "(EmbeddingOptions::sparse(false))");
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
