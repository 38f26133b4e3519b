// Tensors whose memory is given to them later, and memory that is. Not for users.
#pragma once

#include <c10/core/Storage.h>
#include <torch/types.h>

#include <memory>

namespace ddp::libtorch::detail {

// Of this tensor's shape and strides, in no memory yet.
inline torch::Tensor without_memory(const torch::Tensor& like) {
    const torch::NoGradGuard no_grad;
    const c10::Storage storage(c10::Storage::use_byte_size_t(), like.nbytes(),
                               c10::DataPtr(nullptr, like.device()));
    return torch::empty({0}, like.options().requires_grad(false))
        .set_(storage, 0, like.sizes(), like.strides());
}

// Memory for such a tensor, with these elements.
inline c10::DataPtr memory_for(const torch::Tensor& tensor, const torch::Tensor& elements) {
    const torch::NoGradGuard no_grad;
    auto owner = std::make_unique<torch::Tensor>(
        torch::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()));
    owner->copy_(elements);
    void* const memory = owner->data_ptr();
    return {memory, owner.release(), [](void* old) { delete static_cast<torch::Tensor*>(old); },
            tensor.device()};
}

}  // namespace ddp::libtorch::detail
