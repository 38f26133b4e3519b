// Where a gradient lies until a reducer moves it. Not for users.
#pragma once

#include <c10/core/Storage.h>
#include <torch/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>

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

}  // namespace ddp::libtorch::detail
